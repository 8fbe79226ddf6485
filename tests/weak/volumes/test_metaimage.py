"""MetaImage in and out, and headers that their data do not keep."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from volume_files import VOXELS, rewrite

from ringfence.weak.volumes import (
    read_volume,
)


def test_metaimage_by_its_axes(metaimage: Path, compressed: Path) -> None:
    volume = read_volume(metaimage)
    assert np.array_equal(volume.voxels, VOXELS)
    assert volume.spacing == (3.5, 0.625, 0.5)
    assert volume.spacing_known
    volume = read_volume(compressed)
    assert np.array_equal(volume.voxels, VOXELS)
    assert not volume.spacing_known


def test_data_may_be_packed_by_gzip(compressed: Path) -> None:
    """SimpleITK reads such files, too."""
    packed = compressed.with_name("Case01.raw.gz")
    packed.write_bytes(gzip.compress(VOXELS.tobytes()))
    rewrite(compressed, "Case01.zraw", packed.name)
    assert np.array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(compressed))), VOXELS)
    assert np.array_equal(read_volume(compressed).voxels, VOXELS)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cut off, or the header is wrong"):
        read_volume(compressed)


def test_a_cut_off_file_is_refused(metaimage: Path, compressed: Path) -> None:
    data = metaimage.with_suffix(".raw")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(
        ValueError, match=r"promises 6 × 5 × 4 voxels, 240 bytes, and Case00.raw holds 100: the file is cut off"
    ):
        read_volume(metaimage)
    data = compressed.with_suffix(".zraw")
    data.write_bytes(data.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"240 bytes, and Case01.zraw holds \d+ and then ends too early: the file"):
        read_volume(compressed)


@pytest.mark.parametrize("size", ["6 5 9", "6 5 2"])
def test_a_header_that_lies_about_its_size_is_refused(metaimage: Path, compressed: Path, size: str) -> None:
    for path in (metaimage, compressed):
        rewrite(path, "DimSize = 6 5 4", f"DimSize = {size}")
        with pytest.raises(ValueError, match=r"holds 240: the file is cut off, or the header is wrong"):
            read_volume(path)


@pytest.mark.parametrize("place", ["../secret.raw", "/etc/hostname", "sub/Case00.raw"])
def test_a_header_reads_nothing_but_the_file_beside_it(metaimage: Path, place: str) -> None:
    rewrite(metaimage, "Case00.raw", place)
    with pytest.raises(ValueError, match=f"its data file should be beside it; the header names {place}"):
        read_volume(metaimage)


@pytest.mark.parametrize("packed", [False, True])
def test_data_in_the_header_s_own_file(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.mha"
    sitk.WriteImage(sitk.GetImageFromArray(VOXELS), str(path), packed)
    assert np.array_equal(read_volume(path).voxels, VOXELS)
    content = path.read_bytes()
    path.write_bytes(content[:-2])
    with pytest.raises(
        ValueError, match=r"a.mha: the header promises 6 × 5 × 4 voxels, 240 bytes, and a.mha holds"
    ):
        read_volume(path)
    path.write_bytes(content.replace(b"DimSize = 6 5 4", b"DimSize = 6 5 3"))
    with pytest.raises(ValueError, match=r"180 bytes, and a.mha holds 240"):
        read_volume(path)


def test_what_else_a_header_may_say(metaimage: Path) -> None:
    text, data = metaimage.read_text(), metaimage.with_suffix(".raw").read_bytes()
    for old, new, message in (
        ("DimSize = 6 5 4", "DimSize = 6 0 4", r"its header has NDims 3, DimSize 6 0 4"),
        ("NDims = 3", "NDims = 2", r"its header has NDims 2, DimSize 6 5 4"),
        ("MET_SHORT", "MET_STRING", r"its header has ElementType MET_STRING; MET_CHAR"),
        ("DimSize", "Size", r"its header has no DimSize"),
        ("Case00.raw", "LIST", r"its data are in several files \(LIST\): save it as one"),
        ("Case00.raw", "%03d.raw 1 4 1", r"its data are in several files"),
    ):
        metaimage.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            read_volume(metaimage)
    for size in (7, -1):
        metaimage.write_text(text.replace("ElementType", f"HeaderSize = {size}\nElementType"))
        metaimage.with_suffix(".raw").write_bytes(b"foreign" + data)
        assert np.array_equal(read_volume(metaimage).voxels, VOXELS)
    swapped = text.replace("BinaryDataByteOrderMSB = False", "BinaryDataByteOrderMSB = True")
    metaimage.with_suffix(".raw").write_bytes(VOXELS.astype(">i2").tobytes())
    metaimage.write_text(swapped)
    assert np.array_equal(read_volume(metaimage).voxels, VOXELS)
    shouting = metaimage.rename(metaimage.with_suffix(".MHD"))
    assert np.array_equal(read_volume(shouting).voxels, VOXELS)
