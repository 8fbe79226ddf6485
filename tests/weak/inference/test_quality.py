"""What an answer says about itself: uncertainty and agreement of flips, against NumPy and by hand; and its picture."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from ringfence.weak.inference.export import predict
from ringfence.weak.inference.model import Model
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.inference.output import Prediction
from ringfence.weak.inference.overlays import HEAT, SHADE, heated, overlay_sheet
from ringfence.weak.inference.predictor import Predictor, segment
from ringfence.weak.inference.quality import Quality, QualityTally, doubt_of
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

RANDOM = np.random.default_rng(0)


def softmax(seed: int, shape: tuple[int, ...], steep: float) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return (steep * torch.randn(shape, generator=random)).softmax(dim=1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), classes=st.integers(1, 3), steep=st.floats(0.0, 6.0), batch=st.integers(1, 4))
def test_uncertainty_is_what_the_mean_probability_of_the_mask_lacks_of_one(
    seed: int, classes: int, steep: float, batch: int
) -> None:
    """Against NumPy, in batches of any size; and it is within 0..1."""
    answer = softmax(seed, (4, 1 + classes, 5, 6), steep)
    tally = QualityTally(classes)
    for some in answer.split(batch):
        tally.add(some, some.argmax(dim=1))
    whole = QualityTally(classes)
    whole.add(answer, answer.argmax(dim=1))
    assert str(tally.quality()) == str(whole.quality())  # NaN is not itself
    assert tally.quality().flip_agreement is None
    labels, shares = answer.argmax(dim=1).numpy(), answer.double().numpy()
    for number, found in enumerate(tally.quality().uncertainty, start=1):
        drawn = labels == number
        if not drawn.any():
            assert math.isnan(found)
            continue
        assert found == pytest.approx(1.0 - shares[:, number][drawn].mean(), abs=1e-5)
        assert -1e-6 <= found <= 1.0


def test_sure_a_coin_toss_and_what_is_not_drawn() -> None:
    def uncertainty(*foreground: float) -> float:
        share = torch.tensor(foreground).view(1, 1, 1, -1)
        answer = torch.cat([1.0 - share, share], dim=1)
        tally = QualityTally(1)
        tally.add(answer, answer.argmax(dim=1))
        return tally.quality().uncertainty[0]

    assert uncertainty(1.0, 1.0, 0.0, 0.0) == 0.0
    assert uncertainty(0.5001, 0.4999, 0.5001, 0.4999) == pytest.approx(0.5, abs=1e-3)
    assert math.isnan(uncertainty(0.4, 0.4, 0.0, 0.0))
    assert uncertainty(1.0, *[0.3] * 1000) == 0.0  # a little everywhere is no object
    assert uncertainty(*[1.0] * 50, 0.6) < uncertainty(*[1.0] * 5, 0.6)  # a pixel matters more to a small one


def test_if_probabilities_are_right_uncertainty_is_the_share_of_the_mask_that_is_wrong() -> None:
    """Truths drawn from the probabilities themselves."""
    answer = softmax(3, (6, 2, 32, 32), 2.0)
    tally = QualityTally(1)
    tally.add(answer, answer.argmax(dim=1))
    mask, share = answer.argmax(dim=1).numpy().astype(bool), answer[:, 1].numpy()
    wrong = [(RANDOM.random(share.shape) >= share)[mask].mean() for _ in range(20)]
    assert tally.quality().uncertainty[0] == pytest.approx(np.mean(wrong), abs=0.01)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), flips=st.integers(2, 4), classes=st.integers(1, 2))
def test_flips_agree_as_the_dice_of_all_pairs(seed: int, flips: int, classes: int) -> None:
    answers = [softmax(seed + 1000 * n, (3, 1 + classes, 4, 5), 2.0) for n in range(flips)]
    tally = QualityTally(classes)
    for image in range(3):
        tally.compare([one[image : image + 1] for one in answers])
    tally.add(answers[0], answers[0].argmax(dim=1))
    found = tally.quality().flip_agreement
    assert found is not None
    labels = [one.argmax(dim=1).numpy() for one in answers]
    for number in range(1, 1 + classes):
        pairs = list(combinations([one == number for one in labels], 2))
        both, total = sum((a & b).sum() for a, b in pairs), sum(a.sum() + b.sum() for a, b in pairs)
        assert found[number - 1] == pytest.approx(2 * both / total)


def shifted(patch: tuple[int, int, int] | None = None) -> tuple[Tempered, ModelCard]:
    """A network that sees what is bright one column to the right of where it is; its flip, one to the left."""
    path = "torch.nn.Conv2d" if patch is None else "torch.nn.Conv3d"
    args = {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1}
    network = build_network(path, args)
    with torch.no_grad():
        network.weight.zero_()
        network.weight.view(2, -1, 3, 3)[1, -1 if patch is None else 1, 1, 0] = 40.0
        network.bias.copy_(torch.tensor([0.0, -20.0]))
    card = ModelCard(path, args, ("T2",), ("disc",), Preprocessing((16, 16)), patch, flips=("left-right",))
    return Tempered(network), card


def cube() -> NDArray[np.uint8]:
    image = np.zeros((4, 1, 16, 16), np.uint8)
    image[1:3, 0, 4:12, 4:12] = 255
    return image


@pytest.mark.parametrize("patch", [None, (4, 16, 16)])
def test_a_case_is_told_by_its_flips_and_by_its_probabilities(patch: tuple[int, int, int] | None) -> None:
    """Two discs of 8 columns, two apart: Dice 6 / 8; and two columns on each side are a coin toss."""
    predictor = Predictor(*shifted(patch), device="cpu")
    found = segment(predictor, cube(), doubts=True)
    assert found.probabilities is None
    assert found.quality.flip_agreement == (pytest.approx(6 / 8),)
    inside, drawn = 2 * 8 * 6, int((found.mask > 0).sum())
    assert found.quality.uncertainty == (pytest.approx(0.5 * (drawn - inside) / drawn, abs=1e-4),)
    assert found.doubts is not None
    assert found.doubts[1, 6, [2, 3, 4, 5, 7, 10, 11, 12, 13]].tolist() == [0, 255, 255, 0, 0, 0, 255, 255, 0]
    alone = segment(Predictor(*shifted(patch), device="cpu", flips=False), cube())
    assert alone.quality.flip_agreement is None
    assert alone.quality.uncertainty[0] < 1e-6
    assert alone.doubts is None


def test_the_model_in_memory_says_it_too() -> None:
    found = Model(Predictor(*shifted(), device="cpu"), Path("a")).predict(cube()[:, 0])
    assert found.quality is not None
    assert found.quality.flip_agreement == (pytest.approx(0.75),)


def write_nifti(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(cube()[:, 0].transpose(), np.diag([0.5, 0.5, 4.0, 1.0])), path)


def test_the_table_is_whole_after_a_kill(tmp_path: Path) -> None:
    """As a process that was killed leaves it: masks with their parts of the table, and no table."""
    save_model(tmp_path / "model.safetensors", *shifted())
    for name in ("a", "b", "c"):
        write_nifti(tmp_path / f"scans/{name}.nii.gz")
    out, again = tmp_path / "out", tmp_path / "again"
    done = predict(tmp_path / "model.safetensors", tmp_path / "scans", out)
    assert "flips agree 0.75" in str(done)
    rows = list(csv.DictReader((out / "predictions.csv").read_text().splitlines()))
    assert [row["case"] for row in rows] == ["a", "b", "c"]
    assert {row["flip_agreement"] for row in rows} == {"0.7500"}
    (tmp_path / "scans/c.nii.gz").write_bytes(b"noise")
    assert predict(tmp_path / "model.safetensors", tmp_path / "scans", again).failed
    table = (again / "predictions.csv").read_text()
    assert len(table.splitlines()) == 3
    (again / "predictions.csv").unlink()
    head, first, second = table.splitlines(keepends=True)
    (again / ".a.found").write_text(head + first)
    (again / ".b.found").write_text(head + second)
    write_nifti(tmp_path / "scans/c.nii.gz")
    predict(tmp_path / "model.safetensors", tmp_path / "scans", again)
    assert (again / "predictions.csv").read_bytes() == (out / "predictions.csv").read_bytes()
    assert sorted(one.name for one in again.iterdir()) == sorted(one.name for one in out.iterdir())


def test_the_line_of_a_case_names_its_least_sure_class() -> None:
    quality = Quality((0.1, 0.3, math.nan), (0.9, 0.95, math.nan))
    one = Prediction("p", Path("p.nii"), {"a": 5, "b": 7, "c": 0}, None, quality)
    told = "a 5 voxels, b 7 voxels, c: nothing found; uncertainty 0.30 (b), flips agree 0.90 (a)"
    assert one.found == told
    assert [row[4:] for row in one.rows()] == [("0.1000", "0.9000"), ("0.3000", "0.9500"), ("", "")]
    nothing = replace(one, voxels={"a": 0}, quality=Quality((math.nan,)))
    assert nothing.found == "a: nothing found"


def test_doubt_is_one_at_a_coin_toss_of_two_or_more() -> None:
    answer = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.4, 0.3, 0.3], [0.75, 0.25, 0.0]]).view(4, 3, 1, 1)
    assert doubt_of(answer).flatten().tolist() == pytest.approx([0.0, 1.0, 1.0, 0.5])


def test_doubts_glow_over_the_image_in_the_dark() -> None:
    image = np.full((1, 20, 20), 102, np.uint8)
    doubts = np.zeros_like(image)
    doubts[0, :, 10:] = 255
    picture = heated(image, doubts)
    assert picture.shape == (1, 200, 200, 3)
    assert np.allclose(picture[0, 100, 20], SHADE * 0.4)
    assert np.allclose(picture[0, 100, 180], HEAT[-1])


@pytest.mark.parametrize("slices", [1, 2, 9])
def test_a_sheet_has_a_row_of_doubts_under_each_row(slices: int, tmp_path: Path) -> None:
    from matplotlib.image import imread

    image = np.zeros((slices, 30, 40), np.uint8)
    doubts = np.full_like(image, 255)
    overlay_sheet(tmp_path / "a.png", image, image, ("prostate",), title="a", doubts=doubts)
    picture = imread(tmp_path / "a.png")
    columns, rows = min(6, slices), -(-slices // 6)
    assert picture.shape[:2] == (rows * 304 - 4 + 34, columns * 204 - 4)
    assert np.allclose(picture[34 + 200, 100, :3], HEAT[-1])
    assert picture[34 + 100, 100, :3].max() == 0.0


def test_masks_are_as_they_would_be_without() -> None:
    """The likeliest class of the flips' mean, from the network alone."""
    torch.manual_seed(0)
    network = Tempered(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1)), 2)
    card = ModelCard("x", {}, ("T2",), ("a", "b"), Preprocessing((16, 16)), flips=("left-right", "up-down"))
    image = RANDOM.integers(0, 256, (5, 1, 16, 16)).astype(np.uint8)
    found = segment(Predictor(network, card, device="cpu"), image)
    images = torch.from_numpy(image).float() / 255.0
    with torch.no_grad():
        axes: list[tuple[int, ...]] = [(), (2,), (3,), (2, 3)]
        mean = sum(network(images.flip(some)).softmax(dim=1).flip(some) for some in axes)
    assert isinstance(mean, torch.Tensor)
    assert np.array_equal(found.mask, mean.argmax(dim=1).numpy())


def test_views_are_compared_where_all_of_them_see() -> None:
    """An answer that is nothing at all out of sight does not disagree there."""
    tally, answer = QualityTally(1), torch.tensor([0.1, 0.9]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    half = answer.clone()
    half[..., :2] = 0.0
    tally.compare([answer, half])
    tally.add(answer, answer.argmax(dim=1))
    assert tally.quality().flip_agreement == (1.0,)
