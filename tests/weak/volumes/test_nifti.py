"""NIfTI in, against nibabel, and headers that their data do not keep."""

from __future__ import annotations

import gzip
import math
import os
import struct
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from volume_files import VOXELS

from ringfence.weak.volumes import header_sizes, read_channels, read_shape, read_volume, write_volume


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.one_of(st.tuples(*[st.integers(1, 6)] * 3), st.tuples(*[st.integers(1, 4)] * 4)),
    kind=st.sampled_from(("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")),
    order=st.sampled_from("<>"),
    version=st.sampled_from((nibabel.Nifti1Image, nibabel.Nifti2Image)),
    name=st.sampled_from(("a.nii", "a.nii.gz")),
    scale=st.sampled_from(((math.nan, math.nan), (0.0, 7.0), (1.0, 0.0), (1.0, -1024.0), (0.3, 0.0), (-2.5, 1e6))),
    forms=st.sampled_from(((0, 0), (1, 0), (0, 2), (3, 4))),
    extended=st.booleans(),
    seed=st.integers(0, 99),
)
def test_as_nibabel_reads_it(
    tmp_path: Path, shape: Any, kind: str, order: str, version: Any, name: str, scale: Any, forms: Any,
    extended: bool, seed: int,
) -> None:  # fmt: skip
    """Voxels with their kind, steps and place, of each kind of number, scaled or not; and masks for them."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    affine = np.eye(4)
    affine[:3] = np.column_stack([turned * (0.5, 0.75, 3.0), rng.normal(size=3)])
    header = version.header_class(endianness=order)
    header.set_data_dtype(kind)
    image = version((100 * rng.random(shape)).astype(kind), affine, header)
    image.set_qform(affine, forms[0])
    image.set_sform(affine, forms[1])
    if extended:
        image.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, b"a comment"))
    content = bytearray(image.to_bytes())
    at, letter = (112, "f") if version is nibabel.Nifti1Image else (176, "d")
    struct.pack_into(f"{order}2{letter}", content, at, *scale)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    expected = nibabel.load(path)
    volumes = read_channels([path])
    voxels = np.asanyarray(expected.dataobj).T
    for volume, wanted in zip(volumes, voxels if voxels.ndim == 4 else [voxels], strict=True):
        assert volume.voxels.dtype == voxels.dtype.newbyteorder("=")
        assert np.array_equal(volume.voxels, wanted)
        assert volume.spacing == tuple(map(float, expected.header.get_zooms()[2::-1]))
        assert np.array_equal(volume.affine, expected.affine)
    assert header_sizes(path) == shape
    assert read_shape(path) == shape[2::-1]
    mask = rng.integers(0, 3, volumes[0].voxels.shape).astype(np.uint8)
    write_volume(tmp_path / f"m{name}", mask, volumes[0])
    written = nibabel.load(tmp_path / f"m{name}")
    assert np.array_equal(np.asanyarray(written.dataobj).T, mask)
    assert np.allclose(written.affine, expected.affine, atol=1e-6)
    assert written.header.endianness == order
    assert (written.header["qform_code"], written.header["sform_code"]) == (
        expected.header["qform_code"], expected.header["sform_code"],
    )  # fmt: skip
    assert np.array_equal(read_volume(tmp_path / f"m{name}").voxels, mask)


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
            ValueError, match=r"bytes in all, and there are (592|more): the file is|of memory, and|has dim 3 6 -5 4"
        ):
            read_volume(file)


@pytest.mark.parametrize("missing", [1, 8, 60])
def test_a_nifti_that_is_cut_off_is_refused(nifti: Path, missing: int) -> None:
    """Also where only the checksum is missing, which nibabel alone would not see."""
    nifti.write_bytes(nifti.read_bytes()[:-missing])
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read: its compressed bytes end too early"):
        read_volume(nifti)


FIELDS = [
    (40, "<h", (0,), "has dim 0 "),
    (40, "<h", (9,), "has dim 9 "),
    (42, "<h", (-6,), "has dim 3 -6 5 4"),
    (70, "<h", (0,), "datatype 0"),
    (70, "<h", (1536,), "datatype 1536"),
    (72, "<h", (32,), "datatype 4 and bitpix 32, which do not agree"),
    (80, "<f", (math.nan,), "has pixdim nan 0.5 3.5; each should be a number of millimetres above 0"),
    (84, "<f", (math.inf,), "has pixdim 0.625 inf 3.5"),
    (88, "<f", (0.0,), "has pixdim 0.625 0.5 0;"),
    (88, "<f", (-3.5,), "has pixdim 0.625 0.5 -3.5"),
    (88, "<f", (1e-40,), "has pixdim 0.625 0.5 9.99995e-41"),
    (108, "<f", (math.nan,), "has vox_offset nan"),
    (108, "<f", (0.0,), "has vox_offset 0; it should be a whole number from 352"),
    (108, "<f", (352.5,), "has vox_offset 352.5"),
    (108, "<f", (1e30,), "has vox_offset 1e"),
    (112, "<2f", (math.inf, 0.0), "has scl_slope inf"),
    (112, "<2f", (2.0, math.nan), "has scl_slope 2, scl_inter nan; both should be finite"),
    (123, "<B", (3,), "has xyzt_units 3, which are not millimetres"),
    (252, "<h", (99,), "has qform_code 99"),
    (254, "<h", (-1,), "has sform_code -1"),
    (252, "<2h4f", (1, 0, 3.0, 3.0, 3.0, 0.0), "has a qform that is none"),
    (252, "<2h4f", (1, 2, 0.0, math.nan, 0.0, 0.0), "has quatern_c nan; it should be finite"),
    (280, "<4f", (math.nan,) * 4, "the header does not say where the voxels are: sform"),
    (280, "<4f", (0.0,) * 4, "the header does not say where the voxels are: sform"),
    (280, "<4f", (1e38,) * 4, "the header does not say where the voxels are: sform"),
    (344, "<4s", (b"ni1",), "has magic b'ni1"),
    (0, "<i", (347,), "it is not NIfTI"),
]


@pytest.mark.parametrize(("place", "form", "values", "message"), FIELDS)
def test_a_field_that_means_nothing_is_refused(
    nifti: Path, place: int, form: str, values: tuple[Any, ...], message: str
) -> None:
    """D13: also steps that are no lengths, of which 183 kinds were accepted."""
    content = bytearray(gzip.decompress(nifti.read_bytes()))
    struct.pack_into(form, content, place, *values)
    for file in (nifti, nifti.with_name("a.nii")):
        file.write_bytes(gzip.compress(content) if file == nifti else content)
        with pytest.raises(ValueError, match=message) as error:
            read_volume(file)
        assert str(error.value).startswith(f"{file} cannot be read: ")
        assert "\n" not in str(error.value)


def test_several_members_and_zeros_are_one_file(nifti: Path) -> None:
    """As bgzip and tapes leave them, and as gzip itself reads them; anything else after the end is refused."""
    content = gzip.decompress(nifti.read_bytes())
    parts = b"".join(gzip.compress(content[at : at + 100]) for at in range(0, len(content), 100))
    nifti.write_bytes(parts + gzip.compress(b"") + bytes(70_000))
    assert gzip.decompress(nifti.read_bytes()) == content
    assert np.array_equal(read_volume(nifti).voxels, VOXELS)
    for more, message in ((b"more", "are damaged"), (gzip.compress(b"x"), "and there are more")):
        nifti.write_bytes(parts + more)
        with pytest.raises(ValueError, match=message):
            read_volume(nifti)


def test_only_files_are_read(tmp_path: Path) -> None:
    """D13: a pipe named as a volume blocked its reader."""
    os.mkfifo(tmp_path / "x.nii.gz")
    (tmp_path / "zero.nii").symlink_to("/dev/zero")
    (tmp_path / "folder.nii.gz").mkdir()
    for name, what in (("x.nii.gz", "a pipe"), ("zero.nii", "a device"), ("folder.nii.gz", "a folder")):
        for read in (read_volume, read_shape, header_sizes):
            with pytest.raises(ValueError, match=f"{name} is {what}"):
                read(tmp_path / name)


def test_voxels_of_two_sizes_are_refused(tmp_path: Path) -> None:
    """D3: volumes would be measured by pixdim, and masks placed by the sform."""
    image = nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), np.diag([0.5, 0.75, 3.0, 1.0]))
    image.header["pixdim"][1] = 0.501  # rounded
    nibabel.save(image, tmp_path / "a.nii")
    block = bytearray((tmp_path / "a.nii").read_bytes())
    assert read_volume(tmp_path / "a.nii").spacing == pytest.approx((3.0, 0.75, 0.501))
    block[80:84] = struct.pack("<f", 2.0)
    (tmp_path / "a.nii").write_bytes(block)
    with pytest.raises(ValueError, match=r"pixdim 2 × 0.75 × 3 mm, and its sform has steps of 0.5 × 0.75 × 3"):
        read_volume(tmp_path / "a.nii")
