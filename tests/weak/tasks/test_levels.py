"""Levels: what is found above them touches the sides of its box, and above any higher one it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ringfence.weak.tasks.levels import FARTHEST, box_level, lead, settled_level, usual_levels
from ringfence.weak.tasks.teaching import KnownOf, levels_of, taught_labels

BOTH = np.array([True, True])
TIGHT = np.array([0, 0])


def touches(mask: np.ndarray) -> bool:
    return bool(mask[0].any() and mask[-1].any() and mask[:, 0].any() and mask[:, -1].any())


@given(arrays(np.float32, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.floats(-3, 3, width=32)))
def test_a_level_is_the_highest_at_which_all_sides_are_reached(ahead: np.ndarray) -> None:
    level = box_level(ahead, BOTH, TIGHT)
    assert level is not None
    assert touches(ahead >= level)
    assert not touches(ahead > level)


def test_only_tight_sides_count_and_a_margin_is_searched() -> None:
    ahead = np.full((6, 6), -2.0, np.float32)
    ahead[1, 1:5] = ahead[4, 1:5] = 1.5
    assert box_level(ahead, BOTH, TIGHT) == -2.0
    assert box_level(ahead, BOTH, np.array([1, 1])) == 1.5  # the object touches one of the outer three lines
    assert box_level(ahead, np.array([False, False]), TIGHT) is None
    ahead[0, 2] = ahead[-1, 2] = 0.5
    assert box_level(ahead, np.array([True, False]), TIGHT) == 0.5
    assert box_level(np.full((2, 2), 40.0, np.float32), BOTH, TIGHT) == FARTHEST


def test_the_lead_is_over_the_likeliest_other_class() -> None:
    p = np.array([0.2, 0.5, 0.3])[:, None]
    assert lead(p, 1).item() == pytest.approx(math.log(0.5 / 0.3))
    assert lead(p, 2).item() == pytest.approx(math.log(0.3 / 0.5))
    assert math.isfinite(lead(np.array([1.0, 0.0])[:, None], 1).item())


def test_what_is_usual_is_the_median_and_counts_half() -> None:
    usual = usual_levels([(1, -1.0), (1, 0.5), (1, 3.0), (3, 2.0)], 3)
    assert usual == [0.5, 0.0, 2.0]
    assert settled_level(1.5, 1, usual) == pytest.approx(1.0, abs=1e-3)
    assert settled_level(None, 3, usual) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("odds", [0.05, 0.4, 1.0, 3.0, 20.0])
def test_a_teacher_that_is_too_shy_or_too_bold_gives_the_same_labels(odds: float) -> None:
    """A blob with a soft rim: all of its odds times a number are the same blob, and the levels undo the number."""
    rows, columns = np.mgrid[:20, :24]
    distance = np.hypot((rows - 9.5) / 5.0, (columns - 11.5) / 7.0)
    truth = distance <= 1.0
    own = odds * np.exp(6.0 * (1.0 - distance))
    p = np.stack([1.0 / (1.0 + own), own / (1.0 + own)])
    place = [[int(one.min()), int(one.max()) + 1] for one in np.nonzero(truth)]
    known = KnownOf(
        np.array([[place]]), np.ones((1, 1, 2), bool), np.zeros(2, np.int64), np.zeros((0, 3), np.int64)
    )
    usual = usual_levels(levels_of(p, known), 1)
    labels = taught_labels(p, known, 0.0, usual)
    (top, bottom), (left, right) = place
    sides = [distance[top].min(), distance[bottom - 1].min(), distance[:, left].min(), distance[:, right - 1].min()]
    np.testing.assert_array_equal(labels == 1, distance <= max(sides) + 1e-6)
    assert touches((labels == 1)[top:bottom, left:right])
    assert (labels == 1).sum() > 0.85 * truth.sum()
