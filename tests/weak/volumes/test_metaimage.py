"""MetaImage in and out, and headers that their data do not keep."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from volume_files import VOXELS, rewrite

from ringfence.weak.volumes import read_shape, read_volume, write_volume

KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
NAMES = ("CHAR", "UCHAR", "SHORT", "USHORT", "INT", "UINT", "LONG_LONG", "ULONG_LONG", "FLOAT", "DOUBLE")
SIZES = st.tuples(*[st.integers(1, 6)] * 3)
LENGTHS = st.floats(0.01, 50)
PLACES = st.floats(-500, 500)


def rotation(seed: int) -> list[float]:
    """A random one, perhaps with a reflection."""
    turned, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return [float(value) for value in turned.ravel()]


def numbers(seed: int, kind: str, shape: tuple[int, ...]) -> Any:
    info = np.iinfo(kind) if np.dtype(kind).kind in "iu" else None
    rng = np.random.default_rng(seed)
    return (
        rng.integers(info.min, info.max, shape, kind, endpoint=True)
        if info
        else rng.normal(size=shape).astype(kind)
    )


def check_as_itk_reads_it(path: Path) -> None:
    image, volume = sitk.ReadImage(str(path), imageIO="MetaImageIO"), read_volume(path)
    voxels = sitk.GetArrayFromImage(image)
    assert volume.voxels.dtype == voxels.dtype
    assert np.array_equal(volume.voxels, voxels)
    assert volume.spacing == image.GetSpacing()[::-1]
    corner = tuple(size - 1 for size in image.GetSize())
    left, back, head = image.TransformIndexToPhysicalPoint(corner)
    assert (volume.affine @ (*corner, 1))[:3] == pytest.approx((-left, -back, head), rel=1e-9, abs=1e-6)
    assert read_shape(path) == voxels.shape


RARELY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@RARELY
@given(SIZES, st.sampled_from(KINDS), st.integers(0, 99), st.tuples(*[LENGTHS] * 3), st.tuples(*[PLACES] * 3), st.booleans(), st.sampled_from(("a.mhd", "a.mha")))  # fmt: skip
def test_what_itk_writes_is_read_as_itk_reads_it(
    tmp_path: Path, shape: Any, kind: str, seed: int, spacing: Any, origin: Any, packed: bool, name: str
) -> None:
    image = sitk.GetImageFromArray(numbers(seed, kind, shape))
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    image.SetDirection(rotation(seed))
    sitk.WriteImage(image, str(tmp_path / name), packed)
    check_as_itk_reads_it(tmp_path / name)
    volume = read_volume(tmp_path / name)
    write_volume(tmp_path / f"b{name}", volume.voxels, volume)  # and what we write
    check_as_itk_reads_it(tmp_path / f"b{name}")
    again = sitk.ReadImage(str(tmp_path / f"b{name}"))
    for fact in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection", "GetPixelID"):
        assert getattr(again, fact)() == getattr(sitk.ReadImage(str(tmp_path / name)), fact)()


@RARELY
@given(SIZES, st.sampled_from(KINDS), st.integers(0, 99), st.sampled_from("<>"), st.booleans(), st.sampled_from(("LOCAL", "d.raw")), st.integers(0, 9))  # fmt: skip
def test_other_writers_headers_are_read_as_itk_reads_them(
    tmp_path: Path, shape: Any, kind: str, seed: int, order: str, packed: bool, data: str, skipped: int
) -> None:
    """Either order of bytes, bytes before the voxels, synonyms, other fields, Windows's ends of lines."""
    raw = numbers(seed, kind, shape).astype(order + kind).tobytes()
    stored = zlib.compress(raw) if packed else raw
    word = "Position" if seed % 2 else "Origin"
    lines = [
        "ObjectType = Image", "NDims = 3", "Comment = ", "DICOM_0008|0060 = MR", "",
        f"ElementByteOrderMSB = {order == '>'}", f"{word} = 1 -2 3e1", "ElementSize = 1 1 1",
        f"Orientation = {' '.join(map(repr, rotation(seed)))}", "ElementSpacing = 0.5 .625 3.",
        f"DimSize = {' '.join(map(str, reversed(shape)))}", f"ElementType = MET_{NAMES[KINDS.index(kind)]}",
    ]  # fmt: skip
    lines += [f"CompressedData = {packed}", f"CompressedDataSize = {len(stored)}"] if packed else []
    lines += [f"HeaderSize = {skipped}"] if data != "LOCAL" else []
    text = "".join(f"{line}\r\n" for line in lines).encode() + f"ElementDataFile = {data}\n".encode()
    (tmp_path / "d.raw").write_bytes(b"x" * skipped + stored)
    (tmp_path / "a.mhd").write_bytes(text + (stored if data == "LOCAL" else b""))
    check_as_itk_reads_it(tmp_path / "a.mhd")


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
    before = compressed.with_name("Case01.zraw").stat().st_size
    rewrite(compressed, f"CompressedDataSize = {before}", f"CompressedDataSize = {packed.stat().st_size}")
    assert np.array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(compressed))), VOXELS)
    assert np.array_equal(read_volume(compressed).voxels, VOXELS)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"promises CompressedDataSize \d+, and Case01.raw.gz holds \d+: the file is cut"
    ):
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
    with pytest.raises(
        ValueError, match=r"promises CompressedDataSize \d+, and Case01.zraw holds \d+: the file is cut"
    ):
        read_volume(compressed)


@pytest.mark.parametrize("size", ["6 5 9", "6 5 2"])
def test_a_header_that_lies_about_its_size_is_refused(metaimage: Path, compressed: Path, size: str) -> None:
    for path in (metaimage, compressed):
        rewrite(path, "DimSize = 6 5 4", f"DimSize = {size}")
        with pytest.raises(ValueError, match=r"holds (240|more): the file is cut off, or the header is wrong"):
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
    with pytest.raises(ValueError, match=r"a.mha: the header promises .*, and a.mha holds"):
        read_volume(path)
    path.write_bytes(content.replace(b"DimSize = 6 5 4", b"DimSize = 6 5 3"))
    with pytest.raises(ValueError, match=r"180 bytes, and a.mha holds (240|more)"):
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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("NDims = 3", "NDims = 999999999\nOffset = 1\nNDims = 3", "NDims 999999999|NDims twice"),  # D2
        ("NDims = 3", "NDims = 3\nNDims = 3", "has NDims twice"),
        ("DimSize = 6 5 4", "DimSize = 6 5 4\nDimSize = 6 5 4", "has DimSize twice"),
        ("Offset = 10", "Position = 1 2 3\nOffset = 10", "has Offset 10 -20 30, and by another name 1 2 3"),
        (
            "BinaryDataByteOrderMSB",
            "ElementByteOrderMSB = True\nBinaryDataByteOrderMSB",
            "MSB False, and by another",
        ),
        (
            "TransformMatrix",
            "Rotation = 1 0 0 0 1 0 0 0 1\nTransformMatrix",
            "has TransformMatrix .* and by another",
        ),
        ("ElementSpacing", "elementspacing", "has elementspacing, which should be spelled ElementSpacing"),
        ("ElementSpacing = 0.5", "ElementSpacing = nan", "has ElementSpacing nan .*; it should be 3 numbers"),
        ("ElementSpacing = 0.5", "ElementSpacing = 1e999", "has ElementSpacing 1e999 .*, which is not finite"),
        ("ElementSpacing = 0.5", "ElementSpacing = -0.5", "has ElementSpacing -0.5 .* above 0"),
        ("ElementSpacing = 0.5", "ElementSpacing = 0", "has ElementSpacing 0 .* above 0"),
        ("Offset = 10", "Offset = 1_0", "has Offset 1_0"),
        ("Offset = 10", "Offset = 1e300", "Offset gives the affine"),
        ("TransformMatrix = 0", "TransformMatrix = 1", "has TransformMatrix .*; it should be 3 axes of length 1"),
        ("TransformMatrix", "Matrix = 1\nTransformMatrix = 1 0 0 1 0 0 0 0 1\nM", "TransformMatrix 1 0 0 1 0 0"),
        ("CenterOfRotation = 0 0 0", "CenterOfRotation = 0", "has CenterOfRotation 0; it should be 3 numbers"),
        ("DimSize = 6 5 4", "DimSize = 6 5 4 1", "has NDims 3, DimSize 6 5 4 1"),
        ("DimSize = 6 5 4", "DimSize = 6 5 ４", "has NDims 3, DimSize 6 5"),
        ("DimSize = 6 5 4", "DimSize = 6 5\x004", "is not text"),
        ("BinaryData = True", "BinaryData = False", "has BinaryData False: voxels written as text"),
        ("BinaryData = True", "BinaryData = maybe", "has BinaryData maybe; it should be True or False"),
        ("CompressedData = False", "CompressedData = True", "CompressedData True, and no CompressedDataSize"),
        ("ObjectType = Image", "ObjectType = Tube", "has ObjectType Tube; only Image"),
        ("DimSize", "DistanceUnits = um\nDimSize", "has DistanceUnits um; only mm"),
        ("DimSize", "ElementToIntensityFunctionSlope = 2\nDimSize", "FunctionSlope 2: save it with its values"),
        ("DimSize", "HeaderSize = 99999999999999999999\nDimSize", "has HeaderSize 99999999999999999999"),
        ("DimSize", "HeaderSize = 1000\nDimSize", "and Case00.raw holds 0: the file is cut off"),
        ("Case00.raw", "Case00.raw\nDimSize = 6 5 4", "has lines after ElementDataFile"),
        ("Case00.raw", "..", "a name that cannot be used"),
        ("Case00.raw", "a\\\\b.raw", "should be beside it"),
        ("Case00.raw", "x" * 300, "a name that cannot be used"),
        ("DimSize", "Color = 1 0 0\nDimSize", "has Color 1 0 0; it should be 4 numbers"),
        ("DimSize", "ElementMin =\nDimSize", "has ElementMin without a value"),
        ("ElementSpacing", "ElementSpacinf", "'ElementSpacinf': is ElementSpacing meant"),
        ("DimSize", "Comment = " + "x" * 70000 + "\nDimSize", "65,536 in a line"),
        ("DimSize", "Comment = x\n" * 90000 + "DimSize", "more than 1,000,000 bytes"),
    ],
)
def test_a_header_that_can_be_read_in_two_ways_is_refused(
    metaimage: Path, old: str, new: str, message: str
) -> None:
    """D2, D3, D13: the field is named, in one line."""
    rewrite(metaimage, old, new)
    with pytest.raises((ValueError, OSError), match=message) as error:
        read_volume(metaimage)
    assert "Case00" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.mhd", "a.mha"])
def test_compressed_bytes_are_as_many_as_promised(tmp_path: Path, name: str) -> None:
    """D3: a tenth of CompressedDataSize, or none, made most voxels wrong; another number is refused as well."""
    path = tmp_path / name
    sitk.WriteImage(sitk.GetImageFromArray(VOXELS), str(path), True)
    content = path.read_bytes()
    size = int(content.split(b"CompressedDataSize = ")[1].split()[0])
    for wrong in (size // 10, size - 1, size + 1, 0, -5):
        path.write_bytes(content.replace(b"CompressedDataSize = %d" % size, b"CompressedDataSize = %d" % wrong))
        with pytest.raises(ValueError, match=rf"CompressedDataSize {wrong}"):
            read_volume(path)
    path.write_bytes(content.replace(b"CompressedDataSize = %d\n" % size, b""))
    with pytest.raises(ValueError, match=r"has CompressedData True, and no CompressedDataSize"):
        read_volume(path)
    path.write_bytes(content)
    data = path if name == "a.mha" else path.with_suffix(".zraw")
    data.write_bytes(data.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"promises CompressedDataSize \d+, and .* holds \d+"):
        read_volume(path)


def test_only_files_are_read(metaimage: Path) -> None:
    """D13: a pipe or a device in the place of the data or of the header is refused at once."""
    data = metaimage.with_suffix(".raw")
    kept = data.read_bytes()
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(ValueError, match=r"Case00.raw is a pipe"):
        read_volume(metaimage)
    data.unlink()
    data.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"Case00.raw is a device"):
        read_volume(metaimage)
    data.unlink()
    (metaimage.parent / "elsewhere").write_bytes(kept)
    data.symlink_to(metaimage.parent / "elsewhere")  # as data sets often are
    assert np.array_equal(read_volume(metaimage).voxels, VOXELS)


def test_a_name_that_cannot_stand_in_a_header(metaimage: Path) -> None:
    """Then the voxels are in the header's file."""
    volume = read_volume(metaimage)
    path = metaimage.with_name("50%\n of it.mhd")
    write_volume(path, volume.voxels, volume)
    assert np.array_equal(read_volume(path).voxels, VOXELS)
    assert not path.with_suffix(".zraw").exists()
    with pytest.raises(ValueError, match="holds no voxels of the kind complex64"):
        write_volume(path, volume.voxels.astype(np.complex64), volume)
