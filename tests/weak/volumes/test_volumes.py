"""Volumes: what goes out comes back, in its place; what is damaged is refused with what is wrong."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from numpy.typing import NDArray

from ringfence.weak.volumes.volume import (
    Volume,
    check_same_grid,
    read_channels,
    read_shape,
    read_volume,
    volume_name,
    write_volume,
)

VOXELS = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)  # z, y, x


@pytest.fixture
def metaimage(tmp_path: Path) -> Path:
    image = sitk.GetImageFromArray(VOXELS)
    image.SetSpacing((0.5, 0.625, 3.5))
    image.SetOrigin((10.0, -20.0, 30.0))
    image.SetDirection((0, 1, 0, -1, 0, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / "Case00.mhd"))
    return tmp_path / "Case00.mhd"


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    sitk.WriteImage(sitk.GetImageFromArray(VOXELS), str(tmp_path / "Case01.mhd"), True)
    return tmp_path / "Case01.mhd"


@pytest.fixture
def nifti(tmp_path: Path) -> Path:
    affine = np.array([[0, -0.5, 0, 1], [0.625, 0, 0, 2], [0, 0, 3.5, 3], [0, 0, 0, 1]])
    image = nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), affine)
    image.header["cal_max"] = 900
    nibabel.save(image, tmp_path / "a.nii.gz")
    return tmp_path / "a.nii.gz"


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


def test_nifti_by_its_axes(nifti: Path) -> None:
    volume = read_volume(nifti)
    assert np.array_equal(volume.voxels, VOXELS)
    assert volume.spacing == pytest.approx((3.5, 0.5, 0.625))


def test_an_answer_lies_where_the_question_did(metaimage: Path, nifti: Path, tmp_path: Path) -> None:
    """Read back by the libraries themselves."""
    mask = (VOXELS % 3 == 0).astype(np.uint8)
    write_volume(tmp_path / "m.mhd", mask, read_volume(metaimage))
    question, answer = sitk.ReadImage(str(metaimage)), sitk.ReadImage(str(tmp_path / "m.mhd"))
    assert np.array_equal(sitk.GetArrayFromImage(answer), mask)
    assert answer.GetSpacing() == question.GetSpacing()
    assert answer.GetOrigin() == question.GetOrigin()
    assert answer.GetDirection() == question.GetDirection()
    write_volume(tmp_path / "m.nii.gz", mask, read_volume(nifti))
    answer = nibabel.load(tmp_path / "m.nii.gz")
    assert np.array_equal(np.asanyarray(answer.dataobj), mask.transpose(2, 1, 0))
    assert np.array_equal(answer.affine, nibabel.load(nifti).affine)
    assert answer.get_data_dtype() == np.uint8
    assert (answer.header["cal_min"], answer.header["cal_max"]) == (0, 0)  # the image's would show 1 as black
    with pytest.raises(ValueError, match="do not fit the geometry"):
        write_volume(tmp_path / "n.mhd", mask[:2], read_volume(metaimage))
    with pytest.raises(ValueError, match=r"an answer to Case00.mhd is written in the same format"):
        write_volume(tmp_path / "n.nii", mask, read_volume(metaimage))


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


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


def test_other_damage_is_named(metaimage: Path, nifti: Path, tmp_path: Path) -> None:
    metaimage.with_suffix(".raw").unlink()
    with pytest.raises(ValueError, match=r"Case00.mhd: its data file Case00.raw is missing"):
        read_volume(metaimage)
    metaimage.write_text("hello")
    with pytest.raises(ValueError, match=r"Case00.mhd is no MetaImage header that can be used"):
        read_volume(metaimage)
    nifti.write_bytes(nifti.read_bytes()[:80])
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read"):
        read_volume(nifti)
    with pytest.raises(FileNotFoundError, match="nothing.mhd does not exist"):
        read_volume(tmp_path / "nothing.mhd")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"a.txt is no volume: it should end in .mhd, .mha, .nii, .nii.gz"):
        read_volume(tmp_path / "a.txt")
    voxels = np.zeros((2, 2, 2), dtype=np.float32)
    voxels[0, 1, 1] = np.nan
    sitk.WriteImage(sitk.GetImageFromArray(voxels), str(tmp_path / "nan.mhd"))
    with pytest.raises(ValueError, match=r"nan.mhd: 1 of 8 voxels are NaN or infinite"):
        read_volume(tmp_path / "nan.mhd")
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2, 2), dtype=np.uint8), np.eye(4)), tmp_path / "four.nii")
    with pytest.raises(ValueError, match=r"four.nii has 4 axes \[2, 2, 2, 2\]; a volume has three"):
        read_volume(tmp_path / "four.nii")


def test_names_without_endings() -> None:
    assert volume_name(Path("x/Case07.mhd")) == "Case07"
    assert volume_name(Path("BRATS_001_0000.nii.gz")) == "BRATS_001_0000"
    assert volume_name(Path("a.NII")) == "a"
    assert volume_name(Path("dataset.json")) is None


def test_channels_from_several_files_or_one(metaimage: Path, nifti: Path, tmp_path: Path) -> None:
    sitk.WriteImage(sitk.ReadImage(str(metaimage)), str(tmp_path / "same.nii.gz"))  # ITK's idea of the same place
    both = read_channels([metaimage, tmp_path / "same.nii.gz"])
    assert [volume.path for volume in both] == [metaimage, tmp_path / "same.nii.gz"]
    assert both[0].affine == pytest.approx(both[1].affine, abs=1e-5)
    assert all(np.array_equal(volume.voxels, VOXELS) for volume in both)
    assert [volume.voxels.shape for volume in read_channels([nifti])] == [VOXELS.shape]
    four = np.stack([VOXELS, 7 * VOXELS, -VOXELS], axis=-1)
    affine = np.diag([0.5, 0.625, 3.5, 1.0])
    nibabel.save(nibabel.Nifti1Image(four.transpose(2, 1, 0, 3), affine), tmp_path / "four.nii.gz")
    channels = read_channels([tmp_path / "four.nii.gz"])
    assert len(channels) == 3
    for channel, volume in enumerate(channels):
        assert np.array_equal(volume.voxels, four[..., channel])
        assert volume.spacing == pytest.approx((3.5, 0.625, 0.5))
    write_volume(tmp_path / "answer.nii.gz", VOXELS.astype(np.uint8), channels[1])
    answer = nibabel.load(tmp_path / "answer.nii.gz")
    assert answer.shape == (6, 5, 4)
    assert answer.header.get_zooms() == pytest.approx((0.5, 0.625, 3.5))
    assert np.array_equal(answer.affine, affine)


def test_channels_that_do_not_belong_together(metaimage: Path, tmp_path: Path) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(VOXELS[:3]), str(tmp_path / "short.mhd"))
    with pytest.raises(ValueError, match=r"Case00.mhd has 4 × 5 × 6 voxels, but .*short.mhd has 3 × 5 × 6"):
        read_channels([metaimage, tmp_path / "short.mhd"])
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 5, 4, 2), dtype=np.uint8), np.eye(4)), tmp_path / "four.nii")
    with pytest.raises(ValueError, match=r"four.nii has 4 axes .*; a volume has three"):
        read_channels([metaimage, tmp_path / "four.nii"])
    with pytest.raises(ValueError, match=r"no file"):
        read_channels([])


def test_the_shape_alone(metaimage: Path, nifti: Path, tmp_path: Path) -> None:
    assert read_shape(metaimage) == read_shape(nifti) == VOXELS.shape
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 5, 4, 2), dtype=np.uint8), np.eye(4)), tmp_path / "four.nii")
    assert read_shape(tmp_path / "four.nii") == VOXELS.shape
    for content in (b"", b"hello", b"DimSize = 3 x\n", b"\xff\x00="):
        for name in ("a.mhd", "a.nii", "a.nii.gz"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ValueError, match=f"{name} cannot be read"):
                read_shape(tmp_path / name)


@pytest.mark.parametrize("place", ["../secret.raw", "/etc/hostname", "sub/Case00.raw"])
def test_a_header_reads_nothing_but_the_file_beside_it(metaimage: Path, place: str) -> None:
    rewrite(metaimage, "Case00.raw", place)
    with pytest.raises(ValueError, match=f"its data file should be beside it; the header names {place}"):
        read_volume(metaimage)


def test_voxels_are_plain_numbers(tmp_path: Path) -> None:
    for name, kind in (("colour.nii", [("R", "u1"), ("G", "u1"), ("B", "u1")]), ("wave.nii", np.complex64)):
        nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2), dtype=kind), np.eye(4)), tmp_path / name)
        with pytest.raises(ValueError, match=f"{name}: its voxels are no plain numbers"):
            read_volume(tmp_path / name)


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
        ("DimSize = 6 5 4", "DimSize = 6 0 4", r"header that can be used: NDims 3, DimSize 6 0 4"),
        ("NDims = 3", "NDims = 2", r"header that can be used: NDims 2, DimSize 6 5 4"),
        ("MET_SHORT", "MET_STRING", r"header that can be used: ElementType MET_STRING; MET_CHAR"),
        ("DimSize", "Size", r"header that can be used: there is no DimSize"),
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


def placed(path: Path, affine: NDArray[Any], code: int = 1) -> Volume:
    image = nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), affine)
    image.set_sform(affine, code)
    image.set_qform(affine, code)
    nibabel.save(image, path)
    return read_volume(path)


def moved(affine: NDArray[Any], x: float, z: float) -> NDArray[Any]:
    shift = np.eye(4)
    shift[:3, 3] = x, 0, z
    return shift @ affine


def test_what_lies_elsewhere_is_refused_with_both(tmp_path: Path) -> None:
    here = np.array([[0.5, 0, 0, -40], [0, 0.5, 0, 7], [0, 0, 3.0, 100], [0, 0, 0, 1]])
    one = placed(tmp_path / "one.nii", here)
    tilted = here.copy()
    tilted[:3, :3] = tilted[:3, :3] @ [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]
    for affine, message in (
        (
            here @ np.diag([1, 1, 1.2, 1]),
            r"one.nii has voxels of 3 × 0.5 × 0.5 mm, but .*other.nii of 3.6 × 0.5 × 0.5",
        ),
        (here @ np.diag([-1, 1, 1, 1]), r"the axes of .*one.nii run to RAS, those of .*other.nii to LAS"),
        (
            moved(here, 0.25, 0),
            r"one.nii and .*other.nii lie up to 0.5 voxels apart \(they begin at -40 7 100 and at -39.75 7 100 mm",
        ),
        (tilted, r"lie up to 3.4 voxels apart .*: resample one to the other's grid or"),
    ):
        other = placed(tmp_path / "other.nii", affine)
        with pytest.raises(ValueError, match=message):
            check_same_grid(one, other)
    for affine, code in (
        (moved(here, 0.09, 0) * (1 + 1e-5), 1),  # rounded
        (np.eye(4), 1),  # who wrote it did not know
        (np.diag([-1.0, -1.0, 1.0, 1.0]), 1),
        (np.diag([0.5, 0.5, 3.0, 1.0]), 0),  # who wrote it knew the steps, but not the place
    ):
        check_same_grid(one, placed(tmp_path / "other.nii", affine, code))
    ones = here.copy()
    ones[:3, :3] = np.eye(3)
    check_same_grid(placed(tmp_path / "one.nii", ones), placed(tmp_path / "other.nii", np.eye(4)))
    with pytest.raises(ValueError, match=r"up to 5 voxels apart \(they begin at -40 7 100 and at -40 7 105 mm\)"):
        check_same_grid(
            placed(tmp_path / "one.nii", ones),
            placed(tmp_path / "other.nii", moved(ones, 0, 5)),
        )


def test_a_nifti_that_is_nowhere_is_refused(nifti: Path) -> None:
    content = bytearray(gzip.decompress(nifti.read_bytes()))
    struct.pack_into("<4f", content, 280, *[math.nan] * 4)  # srow_x
    nifti.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read: the header does not say where the voxels are"):
        read_volume(nifti)


def test_single_slices_and_single_volumes(tmp_path: Path) -> None:
    affine = np.diag([0.5, 0.625, 3.5, 1.0])
    nibabel.save(nibabel.Nifti1Image(VOXELS[:1].transpose(2, 1, 0), affine), tmp_path / "one.nii")
    assert read_volume(tmp_path / "one.nii").voxels.shape == (1, 5, 6)
    nibabel.save(nibabel.Nifti1Image(VOXELS[0].T, affine), tmp_path / "flat.nii")
    with pytest.raises(
        ValueError, match=r"flat.nii has 2 axes \[5, 6\]; a volume has three; save a single slice as"
    ):
        read_volume(tmp_path / "flat.nii")
    nibabel.save(nibabel.Nifti2Image(VOXELS.transpose(2, 1, 0)[..., None], affine), tmp_path / "four.nii")
    volume = read_volume(tmp_path / "four.nii")
    assert np.array_equal(volume.voxels, VOXELS)
    write_volume(tmp_path / "answer.nii", VOXELS.astype(np.uint8), volume)
    assert nibabel.load(tmp_path / "answer.nii").shape == (6, 5, 4)
