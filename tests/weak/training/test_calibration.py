"""Levels: what is found of a class has the boxes that were drawn, in training images, and nothing else changes."""

from __future__ import annotations

import csv
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.special import expit, softmax
from torch import Tensor

from prepared_sets import make_prepared
from ringfence.weak import (
    AugmentSettings,
    BoxDataSettings,
    NetworkSettings,
    TrainingSettings,
    TrainSettings,
    box_task,
    from_preset,
    train,
)
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.build import Tempered
from ringfence.weak.training.box_agreement import by_class
from ringfence.weak.training.calibration import (
    LEVELS,
    USUAL,
    Calibration,
    agreements_at,
    best_levels,
    some_with_boxes,
)
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.views import mean_of

STEEP = 0.5 * math.log(2.0)
"""Of a disc's logit, by the pixel: a level for each pixel of its radius."""


def discs(radius: float, drawn: list[int], size: int = 40, margin: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """An image for each class, with a disc whose logit falls by STEEP a pixel; and boxes of other radii."""
    y, x = torch.meshgrid(*[torch.arange(size) + 0.5 - size / 2] * 2, indexing="ij")
    logits = torch.full((len(drawn), 1 + len(drawn), size, size), -20.0)
    logits[:, 0] = 0.0
    box = torch.zeros(len(drawn), len(drawn), 1, 2, 2, dtype=torch.int64)
    for number, wanted in enumerate(drawn):
        logits[number, 1 + number] = STEEP * (radius - torch.maximum(y.abs(), x.abs()))
        box[number, number, 0] = torch.tensor([[size // 2 - wanted, size // 2 + wanted]] * 2)
    margins = torch.full((len(drawn), 2), margin)
    return logits, {"box": box, "whole": torch.ones(box.shape[:-1], dtype=torch.bool), "margin": margins}


@pytest.mark.parametrize("drawn", [[10], [14], [13], [10, 11, 12]])
def test_each_class_has_the_level_of_its_own_boxes(drawn: list[int]) -> None:
    """A disc of radius 10 that should be one of 13 needs three levels more, since each is worth a pixel."""
    found = best_levels(agreements_at(*discs(10.0, drawn)))
    assert found == pytest.approx([STEEP * (one - 10) for one in drawn])


def test_what_is_likeliest_is_always_found() -> None:
    """A disc of radius 10 that should be one of 8 stays as it is: training images look surer than others."""
    found = agreements_at(*discs(10.0, [8, 12]))
    assert best_levels(found) == pytest.approx([0.0, 2 * STEEP])
    assert LEVELS[int((found[:, 0, 1] / found[:, 0, 0]).argmax())] == pytest.approx(-2 * STEEP)


def test_what_is_worse_than_less_is_not_as_good_for_being_the_best_of_what_may_be_chosen() -> None:
    """Boxes want odds of 4; those of 1/2 are within a standard error of 1, and not of 4: it is 1."""
    means = torch.linspace(0.60, 0.52, len(LEVELS), dtype=torch.float64)
    count, error = 100.0, 0.015
    squares = count * (means.square() + count * error**2)
    found = torch.stack([torch.full_like(means, count), count * means, squares], dim=1)
    assert best_levels(found[:, None]) == [0.0]
    assert best_levels(found[4:, None], LEVELS[4:]) == pytest.approx([0.5 * USUAL])


def test_a_margin_leaves_open_where_an_object_ends() -> None:
    """Within the margin all levels are as good, and the nearest to odds of 1/2 is taken: two steps."""
    assert best_levels(agreements_at(*discs(10.0, [13], margin=2))) == pytest.approx([2 * STEEP])  # 1 to 3 would do
    assert best_levels(agreements_at(*discs(10.0, [10], margin=2))) == pytest.approx([0.0])  # -2 to 0
    assert best_levels(agreements_at(*discs(10.0, [14], margin=1))) == pytest.approx([3 * STEEP])  # 3 and 4


@pytest.mark.parametrize(("spread", "expected"), [(0.001, 0.0), (0.2, USUAL)])
def test_what_is_as_good_within_a_standard_error_is_as_good(spread: float, expected: float) -> None:
    """A hundred boxes whose mean is 0.8 at level 0 and 0.79 elsewhere; the standard error is spread / 10."""
    each = torch.randn(len(LEVELS), 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    each = (each - each.mean(dim=1, keepdim=True)) / each.std(dim=1, keepdim=True, correction=0) * spread + 0.79
    each[LEVELS.index(0.0)] += 0.01
    found = torch.stack(
        [torch.full((len(LEVELS),), 100.0).double(), each.sum(dim=1), each.square().sum(dim=1)], dim=1
    )
    assert best_levels(found[:, None]) == [expected]


def test_a_class_whose_boxes_tell_nothing_has_odds_of_a_half() -> None:
    logits, batch = discs(10.0, [13, 9])
    batch["box"][1] = 0
    assert best_levels(agreements_at(logits, batch)) == pytest.approx([3 * STEEP, USUAL])
    logits[:, 2] = -1000.0  # there is a box, and nothing is ever found in it
    assert best_levels(agreements_at(logits, discs(10.0, [13, 9])[1])) == pytest.approx([3 * STEEP, USUAL])


def test_levels_are_odds_from_four_to_a_quarter() -> None:
    assert 0.0 in LEVELS
    assert USUAL in LEVELS
    assert (LEVELS[0], LEVELS[-1]) == pytest.approx((-math.log(4), math.log(4)))


def test_samples_with_boxes_are_spread_over_all() -> None:
    box = torch.zeros(30, 1, 1, 2, 2, dtype=torch.int64)
    box[5:, ..., 1] = 3
    rows = {"box": box, "whole": torch.ones(box.shape[:-1], dtype=torch.bool)}
    rows["whole"][29] = False  # cut, or not tight
    assert some_with_boxes(rows, 100).tolist() == list(range(5, 29))
    assert some_with_boxes(rows, 10).tolist() == list(range(5, 29, 3))


def settings(folder: Path, *, calibrate: bool = True, epochs: int = 12) -> TrainSettings:
    """Of a network that looks at single pixels, and finds too little for the first epochs."""
    begun = replace(
        from_preset(TrainSettings, "boxes"),
        network=NetworkSettings("torch.nn.Conv2d", {"kernel_size": 3, "padding": 1}),
        training=TrainingSettings(
            epochs=epochs,
            batch_size=4,
            lr=1e-2,
            device="cpu",
            prior=0.02,
            calibrate=calibrate,
            keep_checkpoint=True,
        ),
        augment=AugmentSettings(),
    )
    return replace(begun, data=BoxDataSettings(prepared=str(folder)))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as lines:
        return list(csv.DictReader(lines))


def state(folder: Path) -> dict[str, Tensor]:
    return read_model(folder / "model.safetensors")[0].state_dict()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    make_prepared(folder / "set")
    for name, calibrate in (("with", True), ("without", False)):
        train(settings(folder / "set", calibrate=calibrate), folder / name, console=Console(quiet=True))
    return folder


def test_the_last_ten_epochs_are_calibrated_and_training_is_as_it_was(place: Path) -> None:
    found, plain = rows(place / "with"), rows(place / "without")
    assert [row["level"] != "" for row in found] == [False] * 2 + [True] * 10
    assert "level" not in plain[0]
    assert [row["train_loss"] for row in found] == [row["train_loss"] for row in plain]
    assert [row["dice"] for row in found[:2]] == [row["dice"] for row in plain[:2]]
    weights, others = state(place / "with"), state(place / "without")
    assert all(torch.equal(weights[name], others[name]) for name in weights if name != "offset")
    prior = math.log(0.02 / 0.98)
    assert others["offset"].tolist() == pytest.approx([0.0, prior])
    assert weights["offset"].tolist() == pytest.approx([0.0, prior + float(found[-1]["level"])], rel=1e-5)
    assert any(float(row["level"]) for row in found[2:])  # or nothing of this was tested


def test_the_model_finds_what_the_last_validation_found(place: Path) -> None:
    """Levels are those of the mean over flips in both, and a model's card says so."""
    asked = settings(place / "set")
    task = box_task(asked.data, asked.constraints)
    network, card = read_model(place / "with" / "model.safetensors")
    (level,) = card.levels
    assert level == pytest.approx(float(rows(place / "with")[-1]["level"]), rel=1e-5)
    assert read_model(place / "without" / "model.safetensors")[1].levels == ()
    assert card.flips
    answers = Predictor(network, card, device="cpu")(task.validation["image"].numpy(), card.preprocessing.size)
    found, truth = torch.cat(list(answers)).argmax(dim=1) == 1, task.validation["mask"][:, 0].bool()
    volumes = [task.validation["case"] == number for number in task.validation["case"].unique()]
    dice = [2 * (found & truth)[one].sum() / (found[one].sum() + truth[one].sum()) for one in volumes]
    assert float(rows(place / "with")[-1]["dice"]) == pytest.approx(float(torch.stack(dice).mean()), abs=1e-6)


@given(
    classes=st.integers(1, 3),
    flips=st.integers(1, 4),
    levels=st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_levels_are_those_of_the_mean(classes: int, flips: int, levels: list[float], seed: int) -> None:
    """In float64: the mean of softmax(z) over flips, and only then times e^level."""
    random = np.random.default_rng(seed)
    logits, shift = random.normal(0.0, 3.0, (flips, 2, 1 + classes, 5)), np.array([0.0, *levels[:classes]])
    mean = softmax(logits, axis=2).mean(axis=0) * np.exp(shift)[:, None]
    expected = mean / mean.sum(axis=1, keepdims=True)
    answers = [torch.tensor(one, dtype=torch.float32) + torch.tensor(shift)[:, None].float() for one in logits]
    found = mean_of([one.softmax(dim=1) for one in answers], torch.tensor(shift).float())
    torch.testing.assert_close(found.double(), torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_levels_of_nothing_are_no_levels() -> None:
    """Also where a view sees half of a pixel, which then counts half."""
    answers = torch.rand(2, 1, 3, 4, 4).softmax(dim=2) * torch.rand(2, 1, 1, 4, 4)
    torch.testing.assert_close(mean_of(answers, torch.zeros(3)), mean_of(answers))
    expected = answers.sum(dim=0) / answers.sum(dim=(0, 2)).unsqueeze(1)
    torch.testing.assert_close(mean_of(answers), expected)


def test_validation_gives_levels_to_the_mean_over_flips() -> None:
    """A network that looks to the left sees something else in the flipped image: in float64, by hand."""
    network = torch.nn.Conv2d(1, 2, 3, padding=1, bias=False)
    with torch.no_grad():
        network.weight.zero_()
        network.weight[1, 0, 1, 0] = 6.0
    module = WeakSegmentation(network, {}, None, supervised=True, flips=(3,))
    image = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0))
    module.network.level([USUAL])
    Calibration({}).setup(pl.Trainer(logger=False), module, "fit")
    with torch.no_grad():
        found = module.predicted(image).softmax(dim=1)[:, 1]
    padded = np.pad(image[:, 0].double().numpy(), ((0, 0), (0, 0), (1, 1)))
    mean = (expit(6.0 * padded[..., :-2]) + expit(6.0 * padded[..., 2:])) / 2
    np.testing.assert_allclose(found.numpy(), 2 * mean / (1 + mean), rtol=1e-4)


def test_a_state_that_is_loaded_tells_its_levels() -> None:
    network, other = (Tempered(torch.nn.Conv2d(1, 3, 1), 2, prior=0.02) for _ in range(2))
    network.level([0.5, -0.25])
    other.load_state_dict(network.state_dict())
    assert other.levels.tolist() == pytest.approx([0.0, 0.5, -0.25], abs=1e-6)


def test_box_agreement_of_training_images_is_not_worse(place: Path) -> None:
    """Of the last model, by its own levels and without."""
    asked = settings(place / "set")
    task = box_task(asked.data, asked.constraints)
    found = []
    for name in ("with", "without"):
        network, _ = read_model(place / name / "model.safetensors")
        with torch.no_grad():
            sums, count = by_class(network.eval()(task.train["image"] / 255.0), task.train).sum(dim=0).tolist()
        found.append(sums / count)
    assert found[0] >= found[1] - 0.02  # flips are averaged where levels are found, and not here


def test_a_training_that_goes_on_begins_without_levels(place: Path) -> None:
    """Interrupted after an epoch with levels: the weights are an uninterrupted one's."""
    asked = settings(place / "set")

    class Stopped(Calibration):
        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.current_epoch == 7:
                raise KeyboardInterrupt
            super().on_train_epoch_start(trainer, pl_module)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ringfence.weak.training.fit.Calibration", Stopped)
        with pytest.raises(KeyboardInterrupt):
            train(asked, place / "parts", console=Console(quiet=True))
    train(asked, place / "parts", resume=True, console=Console(quiet=True))
    whole, parts = state(place / "with"), state(place / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_finished_training_that_is_lengthened_goes_on_without_its_levels(place: Path, tmp_path: Path) -> None:
    found = []
    for name, calibrate in (("with", True), ("without", False)):
        shutil.copytree(place / name, tmp_path / name)
        longer = settings(place / "set", calibrate=calibrate, epochs=14)
        train(longer, tmp_path / name, resume=True, console=Console(quiet=True))
        found.append([row["train_loss"] for row in rows(tmp_path / name)])
    assert len(found[0]) == 14
    assert found[0] == found[1]


def test_a_streamed_set_has_the_same_levels(place: Path, tmp_path: Path) -> None:
    """Images are read from the disk for it, as for the steps."""
    asked = settings(place / "set").changed({"data.streamed": "always", "data.workers": 0})
    train(asked, tmp_path / "run", console=Console(quiet=True))
    assert [row["level"] for row in rows(tmp_path / "run")] == [row["level"] for row in rows(place / "with")]


@pytest.mark.parametrize("changes", [{"method": "full_supervision"}, {"data.patch": [6, 16, 16]}])
def test_masks_and_volumes_are_not_calibrated(changes: dict[str, object], place: Path, tmp_path: Path) -> None:
    asked = settings(place / "set", epochs=1).changed(changes)
    if "data.patch" in changes:
        asked = asked.changed({"network.class_path": "torch.nn.Conv3d"})
    train(asked, tmp_path / "run", console=Console(quiet=True))
    assert "level" not in rows(tmp_path / "run")[0]


def test_it_is_for_our_own_module() -> None:
    with pytest.raises(TypeError, match="calibration is for a WeakSegmentation, .*; got LightningModule"):
        Calibration({}).on_train_epoch_start(pl.Trainer(logger=False), pl.LightningModule())
