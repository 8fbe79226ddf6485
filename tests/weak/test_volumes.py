"""Volumes: what goes out comes back, in its place; what is damaged is refused with what is wrong."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit

from ringfence.weak.volumes import read_channels, read_shape, read_volume, volume_name, write_volume

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
    nibabel.save(nibabel.Nifti1Image(VOXELS.transpose(2, 1, 0), affine), tmp_path / "a.nii.gz")
    return tmp_path / "a.nii.gz"


def test_metaimage_by_its_axes(metaimage: Path, compressed: Path) -> None:
    volume = read_volume(metaimage)
    assert np.array_equal(volume.voxels, VOXELS)
    assert volume.spacing == (3.5, 0.625, 0.5)
    assert volume.spacing_known
    volume = read_volume(compressed)
    assert np.array_equal(volume.voxels, VOXELS)
    assert not volume.spacing_known


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
    with pytest.raises(ValueError, match=r"240 bytes, and Case01.zraw holds \d+: the file is cut off|is damaged"):
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
    both = read_channels([metaimage, nifti])
    assert [volume.path for volume in both] == [metaimage, nifti]
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
