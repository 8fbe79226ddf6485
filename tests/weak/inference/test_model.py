"""The model in memory: an array in, a mask out, exactly as `ringfence predict` does a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ringfence.weak import load_model, predict
from ringfence.weak.inference.model import Model
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

RANDOM = np.random.default_rng(0)
SCAN = RANDOM.normal(300.0, 100.0, (5, 12, 10))


def written(path: Path, channels: int = 1, size: tuple[int, int] = (12, 10), **card: object) -> Path:
    """A model whose foreground, which is 4 in masks, is where the channels' mean is above one half."""
    args = {"in_channels": channels, "out_channels": 2, "kernel_size": 1}
    network = build_network("torch.nn.Conv2d", args)
    with torch.no_grad():
        network.weight.zero_()
        network.weight[1] = 60.0 / channels
        network.bias.copy_(torch.tensor([0.0, -30.0]))
    names = tuple(f"c{one}" for one in range(channels))
    made = ModelCard("torch.nn.Conv2d", args, names, ("liver",), Preprocessing(size), labels=(4,), method="penalty")
    save_model(path, Tempered(network), replace(made, **card))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load_model(written(tmp_path / "model.safetensors"), device="cpu")


def half(voxels: NDArray, percentiles: tuple[float, float] = (0.5, 99.5)) -> NDArray:
    """What the model should find, by NumPy alone."""
    low, high = np.percentile(voxels, percentiles)
    return np.round(255 * np.clip((voxels - low) / (high - low), 0, 1)) > 127.5


def test_a_volume_and_a_slice(model: Model) -> None:
    found = model.predict(SCAN, (3.0, 0.5, 0.5))
    assert np.array_equal(found.mask, 4 * half(SCAN).astype(np.uint8))
    assert (found.mask.dtype, found.probabilities.dtype) == (np.uint8, np.float32)
    assert found.probabilities.shape == (1, 5, 12, 10)
    assert np.array_equal(found.probabilities[0] > 0.5, half(SCAN))
    count = int(half(SCAN).sum())
    assert (found.classes, found.labels, found.voxels) == (("liver",), (4,), {"liver": count})
    assert found.millilitres == {"liver": pytest.approx(count * 0.75 / 1000)}
    assert str(found) == f"Segmentation [5, 12, 10]: liver {count} voxels ({count * 0.75 / 1000:.1f} ml)"
    single = model.predict(SCAN[2], (0.5, 0.5))
    assert (single.mask.shape, single.probabilities.shape) == ((12, 10), (1, 12, 10))
    assert np.array_equal(single.mask > 0, half(SCAN[2]))
    assert single.millilitres is None  # a slice has no volume
    assert model.predict(SCAN).millilitres is None


def test_numbers_of_any_kind(model: Model) -> None:
    for kind in (np.int16, np.float16, np.uint16):
        image = SCAN.astype(kind)
        assert np.array_equal(model.predict(image).mask > 0, half(image)), kind
    assert model.predict(SCAN > 300).mask.max() == 4  # of yes and no, too


def test_the_percentiles_are_those_of_the_training(tmp_path: Path) -> None:
    card = {"preprocessing": Preprocessing((12, 10), (10.0, 50.0))}
    found = load_model(written(tmp_path / "m.pt", **card), device="cpu").predict(SCAN)
    assert np.array_equal(found.mask > 0, half(SCAN, (10.0, 50.0)))
    assert (half(SCAN, (10.0, 50.0)) != half(SCAN)).any()


def test_several_channels_come_first(tmp_path: Path) -> None:
    model = load_model(written(tmp_path / "two.pt", channels=2), device="cpu")
    other = RANDOM.normal(size=SCAN.shape)
    found = model.predict(np.stack([SCAN, other]))
    assert found.mask.shape == (5, 12, 10)
    single = model.predict(np.stack([SCAN[0], other[0]]))
    assert single.mask.shape == (12, 10)
    with pytest.raises(
        ValueError,
        match=r"image is \[5, 12, 10\]; this model takes 2 channels \(c0, c1\): \[2, slices, height, width\]",
    ):
        model.predict(SCAN)


def test_the_largest_part_alone(model: Model) -> None:
    image = np.zeros((3, 12, 10))
    image[1, 2:9, 2:9] = image[0, 0, 9] = 1.0
    assert model.predict(image).voxels == {"liver": 50}
    assert model.predict(image, largest=True).voxels == {"liver": 49}


@pytest.mark.parametrize(
    ("image", "spacing", "message"),
    [
        (np.zeros(5), None, r"image is \[5\]; this model takes 1 channel \(c0\): \[slices, height, width\] or"),
        (np.zeros((2, 3, 12, 10)), None, r"image is \[2, 3, 12, 10\]; this model takes 1 channel"),
        (np.zeros((0, 12, 10)), None, r"image is \[0, 12, 10\]"),
        (np.full((2, 12, 10), np.nan), None, "got float64 with NaN or infinities"),
        (np.zeros((2, 12, 10), complex), None, "image must be finite real numbers, got complex128$"),
        (SCAN, (1.0, 1.0), r"spacing must be 3 lengths above 0, one for each axis; got \[1.0, 1.0\]"),
        (SCAN, (1.0, 1.0, 0.0), "spacing must be 3 lengths above 0"),
    ],
)
def test_what_is_not_an_image_is_refused(model: Model, image: NDArray, spacing: tuple | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.predict(image, spacing)


def test_a_model_says_what_it_is(model: Model, tmp_path: Path) -> None:
    assert (
        str(model)
        == f"Model {tmp_path / 'model.safetensors'}: Conv2d of slices at 12 × 10, c0 -> liver, trained by penalty"
    )
    assert "<td>liver</td>" in model.predict(SCAN)._repr_html_()


def write_nifti(path: Path, voxels: NDArray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels.transpose(), np.diag([0.5, 0.5, 3.0, 1.0])), path)
    return path


@pytest.mark.parametrize("size", [(12, 10), (8, 8)])
def test_files_and_arrays_are_segmented_alike(size: tuple[int, int], tmp_path: Path) -> None:
    file = write_nifti(tmp_path / "scans/a.nii.gz", SCAN.astype(np.float32))
    model = load_model(written(tmp_path / "m.pt", size=size), device="cpu")
    done = predict(model, file, tmp_path / "out", probabilities=True)
    found = model.predict(SCAN.astype(np.float32))
    mask = np.asanyarray(nibabel.load(tmp_path / "out/a.nii.gz").dataobj).transpose()
    share = np.asanyarray(nibabel.load(tmp_path / "out/a_liver_probability.nii.gz").dataobj).transpose()
    assert np.array_equal(mask, found.mask)
    np.testing.assert_allclose(share, found.probabilities[0], atol=1e-6)
    assert (done.cases, done.before, done.failed) == (1, 0, ())
    assert done.made[0].voxels == found.voxels


def test_predict_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    for name in "abc":
        write_nifti(tmp_path / f"scans/{name}.nii.gz", SCAN.astype(np.float32))
    (tmp_path / "scans/b.nii.gz").write_bytes(b"noise")
    file = written(tmp_path / "m.pt")
    seen: list[tuple[str, int]] = []
    done = predict(
        file, tmp_path / "scans", tmp_path / "out", each=lambda one, total: seen.append((one.name, total))
    )
    assert seen == [("a", 3), ("b", 3), ("c", 3)]
    assert [one.name for one in done.failed] == ["b"]
    assert "2 of 3 cases segmented in" in str(done)
    assert "<td>b</td>" in done._repr_html_()
    with pytest.raises(FileExistsError, match="with other options: repeat that one, or name a new folder"):
        predict(file, tmp_path / "scans", tmp_path / "out", largest=True)
    write_nifti(tmp_path / "scans/b.nii.gz", SCAN.astype(np.float32))
    again = predict(file, tmp_path / "scans", tmp_path / "out")
    assert (again.before, [one.name for one in again.made], again.failed) == (2, ["b"], ())
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        *("a.nii.gz", "b.nii.gz", "c.nii.gz", "predictions.csv"),
    ]
    with pytest.raises(FileExistsError, match="out already holds files: name a new folder. Nothing was changed"):
        predict(file, tmp_path / "scans", tmp_path / "out")


def test_a_model_is_found_in_the_folder_of_its_training(tmp_path: Path) -> None:
    file = written(tmp_path / "model.safetensors")
    assert load_model(tmp_path, device="cpu").path == file
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is a folder without a model.safetensors: name a model's file"):
        load_model(tmp_path / "empty")


def test_what_is_not_an_image_of_its_channels(tmp_path: Path, model: Model) -> None:
    with pytest.raises(TypeError, match=r"for a file such as scan.nii.gz there is ringfence.weak.predict"):
        model.predict("scan.nii.gz")  # type: ignore[arg-type]
    two = load_model(written(tmp_path / "two.pt", channels=2), device="cpu")
    with pytest.raises(ValueError, match=r"\[2, slices, height, width\] or .* np.moveaxis\(image, -1, 0\)"):
        two.predict(np.zeros((5, 12, 10, 2)))
