"""From voxels to grey values and slices of one size, against arithmetic of the test's own."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.prepared import Preprocessing
from ringfence.weak.prepared.preprocessing import normalised, resized


def test_values_too_far_apart_are_refused_without_a_warning() -> None:
    with pytest.raises(ValueError, match=r"values from -1.7e\+308 to 1.7e\+308 are too far apart"):
        normalised(np.array([[[-1.7e308, 0.0, 1.7e308]]]))
    assert set(np.unique(normalised(np.array([[[-3e38, 0.0, 3e38]]], np.float32)))) == {0, 128, 255}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 40), st.floats(60, 100))
def test_grey_values_are_linear_between_the_percentiles(seed: int, low: float, high: float) -> None:
    voxels = np.random.default_rng(seed).normal(100.0, 30.0, (3, 7, 9))
    ordered = np.sort(voxels, axis=None)
    black, white = np.interp(np.array([low, high]) / 100 * (ordered.size - 1), np.arange(ordered.size), ordered)
    expected = 255 * (voxels.clip(black, white) - black) / (white - black)
    grey = Preprocessing((7, 9), (low, high)).image(voxels)
    assert grey.dtype == np.uint8
    assert np.abs(grey - expected).max() <= 0.5001


def test_the_default_percentiles_are_those_of_the_first_format() -> None:
    voxels = np.random.default_rng(0).normal(size=(3, 7, 9))
    assert np.array_equal(Preprocessing((7, 9)).image(voxels), normalised(voxels, (0.5, 99.5)))
    assert np.array_equal(Preprocessing((5, 4)).image(voxels), resized(normalised(voxels), (5, 4)))


def test_halving_averages_and_labels_stay_labels() -> None:
    """With antialiasing, a pixel of an image of half the size is a weighted mean: a checkerboard becomes grey."""
    board = np.indices((1, 16, 16)).sum(axis=0) % 2
    grey = Preprocessing((8, 8), (0, 100)).image(board)
    assert grey.shape == (1, 8, 8)
    assert np.abs(grey[:, 1:-1, 1:-1].astype(int) - 128).max() <= 1
    labels = Preprocessing((8, 8)).labels((3 * board).astype(np.uint8))
    assert set(np.unique(labels)) <= {0, 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 16),), r"size is \(0, 16\); height and width are needed, whole numbers between 1 and"),
        (((16,),), "height and width are needed"),
        (((16, 16.5),), "height and width are needed"),
        (((True, 16),), "height and width are needed"),
        ((16,), "size is 16; height and width"),
        (((16, 16), (99.5, 0.5)), r"percentiles are \(99.5, 0.5\); two are needed, the lower first"),
        (((16, 16), (0, 101)), "between 0 and 100"),
        (((16, 16), (-1, 99)), "between 0 and 100"),
        (((16, 16), (5, 5)), "the lower first"),
        (((16, 16), (float("nan"), 99)), "two are needed"),
        (((16, 16), ("0", "99")), "two are needed"),
        (((16, 16), 5), "two are needed"),
    ],
    ids=str,
)
def test_it_checks_itself(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(*arguments)


@given(st.tuples(st.integers(1, 4096), st.integers(1, 4096)), st.tuples(st.floats(0, 49), st.floats(50, 100)))
def test_facts_make_the_same_one(size: tuple[int, int], percentiles: tuple[float, float]) -> None:
    before = Preprocessing(size, percentiles)
    assert Preprocessing.from_facts(json.loads(json.dumps(before.to_facts()))) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "preprocessing has version 3, and this ringfence knows 1 to 2: update ringfence"),
        (
            {"bias_field": True},
            "preprocessing has 'bias_field', which this ringfence does not know: .* update this one",
        ),
        ({"percentile": [1, 2]}, r"did you mean 'percentiles'\?"),
        ({"size": None}, "size is None; height and width are needed"),
    ],
    ids=str,
)
def test_facts_of_another_kind_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_facts(Preprocessing((16, 16)).to_facts() | change)


def test_facts_that_are_not_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="preprocessing has no size and no percentiles"):
        Preprocessing.from_facts({"version": 1})
    with pytest.raises(ValueError, match=r"preprocessing is \[1\]; names and values are needed"):
        Preprocessing.from_facts([1])  # type: ignore[arg-type]
