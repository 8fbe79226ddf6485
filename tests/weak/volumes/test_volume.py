"""Volumes of either format: channels, shapes, damage, and masks that lie where their image does."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from volume_files import VOXELS

from ringfence.weak.volumes import (
    read_channels,
    read_shape,
    read_volume,
    write_volume,
)


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
    with pytest.raises(ValueError, match=r"what belongs to Case00.mhd is written in the same format"):
        write_volume(tmp_path / "n.nii", mask, read_volume(metaimage))


def test_other_damage_is_named(metaimage: Path, nifti: Path, tmp_path: Path) -> None:
    metaimage.with_suffix(".raw").unlink()
    with pytest.raises(ValueError, match=r"Case00.mhd: its data file Case00.raw is missing"):
        read_volume(metaimage)
    metaimage.write_text("hello")
    with pytest.raises(
        ValueError, match=r"Case00.mhd cannot be read: its header has the line 'hello', which is not"
    ):
        read_volume(metaimage)
    nifti.write_bytes(nifti.read_bytes()[:80])
    with pytest.raises(ValueError, match=r"a.nii.gz cannot be read"):
        read_volume(nifti)
    with pytest.raises(FileNotFoundError, match="nothing.mhd does not exist"):
        read_volume(tmp_path / "nothing.mhd")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(
        ValueError, match=r"a.txt is not a volume: its name should end in .nii, .nii.gz, .mhd, .mha, .png"
    ):
        read_volume(tmp_path / "a.txt")
    voxels = np.zeros((2, 2, 2), dtype=np.float32)
    voxels[0, 1, 1] = np.nan
    sitk.WriteImage(sitk.GetImageFromArray(voxels), str(tmp_path / "nan.mhd"))
    with pytest.raises(ValueError, match=r"nan.mhd: 1 of 8 voxels are NaN or infinite"):
        read_volume(tmp_path / "nan.mhd")
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2, 2), dtype=np.uint8), np.eye(4)), tmp_path / "four.nii")
    with pytest.raises(ValueError, match=r"four.nii has 4 axes \[2, 2, 2, 2\]; a volume has three"):
        read_volume(tmp_path / "four.nii")


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


def test_the_shape_of_what_is_too_large(
    metaimage: Path, nifti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8: what cannot be read has no shape that others would be brought to."""
    monkeypatch.setenv("RINGFENCE_MEMORY", "719")
    for path in (metaimage, nifti):
        for read in (read_shape, read_volume):
            with pytest.raises(
                ValueError, match=rf"{path.name} would take 720 bytes of memory, and the limit is 719"
            ):
                read(path)
    monkeypatch.setenv("RINGFENCE_MEMORY", "1000")
    assert read_shape(metaimage) == read_shape(nifti) == read_volume(metaimage).voxels.shape
    image = nibabel.load(nifti)
    scaled = nibabel.Nifti1Image(2.0 * VOXELS.transpose(2, 1, 0) + 1, image.affine)
    scaled.set_data_dtype(np.int16)
    nibabel.save(scaled, tmp_path / "scaled.nii")
    with pytest.raises(ValueError, match=r"scaled.nii would take 2.88 kB of memory"):
        read_volume(tmp_path / "scaled.nii")


def test_voxels_are_plain_numbers(tmp_path: Path) -> None:
    for name, kind in (("colour.nii", [("R", "u1"), ("G", "u1"), ("B", "u1")]), ("wave.nii", np.complex64)):
        nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2), dtype=kind), np.eye(4)), tmp_path / name)
        with pytest.raises(ValueError, match=f"{name} cannot be read: its voxels are not plain numbers"):
            read_volume(tmp_path / name)


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
