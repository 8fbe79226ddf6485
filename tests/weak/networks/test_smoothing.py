"""Smoothing, against scipy's Gaussian filter in float64; and where it is applied."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

from prepared_sets import make_prepared
from ringfence.weak import BoxDataSettings, TrainingSettings, TrainSettings, box_task, from_preset, train
from ringfence.weak.inference.lanes import Lanes
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.build import Tempered
from ringfence.weak.networks.smoothing import smoothed
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.flip_averaging import flip_averaged, flip_mean
from ringfence.weak.training.module import WeakSegmentation


@given(
    sigma=st.floats(0.1, 6.0),
    space=st.sampled_from([(7, 9), (1, 5), (4, 6, 8)]),
    classes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_it_is_a_gaussian_in_each_slice(sigma: float, space: tuple[int, ...], classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    p = softmax(random.normal(0.0, 3.0, (2, 1 + classes, *space)), axis=1)
    reach = math.ceil(3.0 * sigma)
    rows_and_columns = (p.ndim - 2, p.ndim - 1)
    expected = gaussian_filter(p, sigma, mode="nearest", radius=reach, axes=rows_and_columns)
    found = smoothed(torch.tensor(p), sigma)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(dim=1).numpy(), 1.0, atol=1e-12)
    half = smoothed(torch.tensor(p, dtype=torch.float32), sigma)
    np.testing.assert_allclose(half.numpy(), expected, atol=1e-6)


def test_none_is_none() -> None:
    p = torch.rand(1, 2, 4, 4)
    assert smoothed(p, 0.0) is p
    assert torch.equal(smoothed(p, 1e-50), p)


def test_it_computes_in_full_precision_whatever_is_going_on() -> None:
    p = torch.rand(1, 2, 9, 9).softmax(dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(smoothed(p, 1.5), smoothed(p, 1.5).float())
        found = smoothed(p, 1.5)
    assert torch.equal(found, smoothed(p, 1.5))


def test_the_mean_over_flips_is_smoothed_before_it_has_levels() -> None:
    random = np.random.default_rng(0)
    logits, level = random.normal(0.0, 2.0, (2, 1, 2, 12, 10)), math.log(3.0)
    mean = gaussian_filter(softmax(logits, axis=2).mean(axis=0), 1.2, mode="nearest", radius=4, axes=(2, 3))
    expected = 3.0 * mean[:, 1] / (mean[:, 0] + 3.0 * mean[:, 1])
    shift = torch.tensor([0.0, level], dtype=torch.float64)
    answers = [(torch.tensor(one) + shift.view(1, 2, 1, 1)).softmax(dim=1) for one in logits]
    found = flip_mean(answers, shift, smoothing=1.2)
    np.testing.assert_allclose(found[:, 1].numpy(), expected, atol=1e-12)


def test_lanes_smooth_as_everybody_does() -> None:
    torch.manual_seed(0)
    network, images = torch.nn.Conv2d(1, 3, 3, padding=1), torch.rand(3, 1, 16, 12)
    with torch.no_grad():
        expected = flip_averaged(network, images, (3,), None, 2.0)
        torch.testing.assert_close(Lanes(network, 2, smoothing=2.0)(images, (3,)), expected, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(Lanes(network, 2)(images, (3,)), expected, atol=1e-3)


@pytest.mark.parametrize("flips", [(), (3,)])
def test_validation_judges_what_is_smooth(flips: tuple[int, ...]) -> None:
    network, images = torch.nn.Conv2d(1, 2, 1), torch.rand(2, 1, 16, 16)
    module = WeakSegmentation(network, {}, None, supervised=True, flips=flips, smoothing=1.5)
    with torch.no_grad():
        plain = Tempered(network)(images).softmax(dim=1)  # which flips do not matter to
        found = module.predicted(images).softmax(dim=1)
        torch.testing.assert_close(module(images).softmax(dim=1), plain)  # what constraints are measured on
    torch.testing.assert_close(found, smoothed(plain, 1.5), rtol=1e-4, atol=1e-6)


def settings(prepared: Path, **changes: object) -> TrainSettings:
    return replace(
        from_preset(TrainSettings, "boxes"),
        data=BoxDataSettings(prepared=str(prepared)),
        training=TrainingSettings(epochs=1, batch_size=4, device="cpu", smoothing=1.5),
    ).changed({"network.class_path": "torch.nn.Conv2d", "network.init_args": SMALL, **changes})


SMALL = {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1}


def test_a_model_is_as_smooth_as_it_was_judged(tmp_path: Path) -> None:
    asked = settings(make_prepared(tmp_path / "set").path)
    train(asked, tmp_path / "run", console=Console(quiet=True))
    task = box_task(asked.data, asked.constraints)
    network, card = read_model(tmp_path / "run/model.safetensors", "torch.nn.Conv2d")
    assert card.smoothing == 1.5
    images = task.validation["image"]
    found = torch.cat(list(Predictor(network, card, device="cpu")(images.numpy(), card.preprocessing.size)))
    with torch.no_grad():
        expected = flip_averaged(network, images / 255.0, (3,), None, 1.5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_masks_know_outlines_and_are_not_smoothed(tmp_path: Path) -> None:
    asked = settings(make_prepared(tmp_path / "set").path, method="full_supervision")
    train(asked, tmp_path / "run", console=Console(quiet=True))
    assert read_model(tmp_path / "run/model.safetensors", "torch.nn.Conv2d")[1].smoothing == 0.0


def test_nor_are_those_who_learn_from_a_teacher(tmp_path: Path) -> None:
    asked = settings(make_prepared(tmp_path / "set").path)
    task = box_task(asked.data, asked.constraints)
    pupil = replace(task, train={**task.train, "unsure": torch.zeros(task.count, 1, 24, 20, dtype=torch.bool)})
    assert pupil.taught
    found = [make_module(asked, one, "log_barrier", 0).smoothing for one in (task, pupil)]
    assert found == [1.5, 0.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "training.smoothing must be finite and not negative, got -1.0"),
        (math.nan, "training.smoothing must be finite and not negative, got nan"),
        (101.0, "training.smoothing is at most 100 pixels, got 101.0"),
    ],
)
def test_what_is_no_smoothing_is_refused(value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(smoothing=value)
