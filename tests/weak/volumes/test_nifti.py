"""NIfTI in, against nibabel, and headers that their data do not keep."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from volume_files import VOXELS

from ringfence.weak.volumes import (
    read_volume,
)


def test_nifti_by_its_axes(nifti: Path) -> None:
    volume = read_volume(nifti)
    assert np.array_equal(volume.voxels, VOXELS)
    assert volume.spacing == pytest.approx((3.5, 0.5, 0.625))


@pytest.mark.parametrize("dimensions", [(6, 5, 9), (6, 5, 2), (30000, 30000, 30000), (6, -5, 4)])
def test_a_nifti_header_that_lies_is_refused(nifti: Path, dimensions: tuple[int, ...]) -> None:
    content = bytearray(gzip.decompress(nifti.read_bytes()))
    struct.pack_into("<3h", content, 42, *dimensions)  # dim[1..3]
    for file in (nifti, nifti.with_name("b.nii")):
        file.write_bytes(gzip.compress(content) if file == nifti else content)
        with pytest.raises(
            ValueError, match=r"the header promises .* bytes in all, and there are 592: the file is"
        ):
            read_volume(file)


@pytest.mark.parametrize("missing", [1, 8, 60])
def test_a_nifti_that_is_cut_off_is_refused(nifti: Path, missing: int) -> None:
    """Also where only the checksum is missing, which nibabel alone would not see."""
    nifti.write_bytes(nifti.read_bytes()[:-missing])
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read: Compressed file ended before"):
        read_volume(nifti)


def test_a_nifti_that_is_nowhere_is_refused(nifti: Path) -> None:
    content = bytearray(gzip.decompress(nifti.read_bytes()))
    struct.pack_into("<4f", content, 280, *[math.nan] * 4)  # srow_x
    nifti.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read: the header does not say where the voxels are"):
        read_volume(nifti)
