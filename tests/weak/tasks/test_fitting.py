"""Fitting: what is found ends where its box does, keeps its shape, and is averaged over slices that are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak.tasks.fitting import FARTHEST, Box, Fit, Lead, found_in, lead
from ringfence.weak.tasks.fitting import fitted as both_fitted
from ringfence.weak.tasks.teaching import KnownOf, taught_labels

SPACE = (40, 48)


def fitted(fits: list[Fit]) -> list[Lead]:
    """Leads of the boxes' own classes."""
    return [own for own, _ in both_fitted(fits)]


def a_box(*ends: tuple[int, int], margin: int = 0, tight: bool = True, label: int = 1, depth: int = 0) -> Box:
    return Box(label, depth, ends, np.full(len(ends), tight), np.full(len(ends), margin))


def ellipse(centre: tuple[float, float], radii: tuple[float, float], slope: float = 0.5) -> NDArray[np.float64]:
    """Odds that fall with the distance from the middle, and are even on the ellipse."""
    rows, columns = np.mgrid[: SPACE[0], : SPACE[1]]
    distance = np.hypot((rows + 0.5 - centre[0]) / radii[0], (columns + 0.5 - centre[1]) / radii[1])
    return np.exp(slope * min(radii) * (1.0 - distance))


def one_class(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([1.0 / (1.0 + odds), odds / (1.0 + odds)])


def inside(*boxes: Box, classes: int = 1, space: tuple[int, ...] = SPACE) -> NDArray[np.bool_]:
    found = np.zeros((classes, *space), np.bool_)
    for box in boxes:
        found[(box.label - 1, *box.place)] = True
    return found


def fit_of(odds: NDArray[np.float64], box: Box, *others: Box) -> Fit:
    fit = found_in(one_class(odds), inside(box, *others), box)
    assert fit is not None
    return fit


def dice(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float(2.0 * (one & other).sum() / (one.sum() + other.sum()))


def test_the_lead_is_over_the_likeliest_other_class() -> None:
    p = np.array([0.2, 0.5, 0.3])[:, None]
    assert lead(p, 1).item() == pytest.approx(math.log(0.5 / 0.3))
    assert lead(p, 2).item() == pytest.approx(math.log(0.3 / 0.5))
    assert lead(np.array([1.0, 0.0])[:, None], 1).item() == -FARTHEST


@settings(deadline=None)
@given(st.floats(8.0, 12.0), st.floats(8.0, 16.0), st.floats(-3.0, 3.0), st.floats(-3.0, 3.0))
@example(8.0, 8.0, 0.5, 0.5)
@example(12.0, 8.0, 3.0, 0.0)
def test_where_an_object_is_found_is_told_between_pixels(
    high: float, wide: float, down: float, right: float
) -> None:
    """An ellipse ends where its even odds do, to a small fraction of a pixel."""
    centre = (20.0 + down, 24.0 + right)
    box = a_box((12, 28), (14, 34))
    fit = fit_of(ellipse(centre, (high, wide)), box)
    for found, middle, radius in zip(fit.found, centre, (high, wide), strict=True):
        ends = max(0.0, middle - radius - 4.0), middle + radius - 4.0  # half of the box is looked at around it
        assert found == pytest.approx(ends, abs=0.06)
    assert fit.ends == ((12, 28), (14, 34))


@pytest.mark.parametrize("odds", [0.2, 0.5, 1.0, 3.0, 20.0])
def test_a_teacher_that_is_too_shy_or_too_bold_gives_the_same_labels(odds: float) -> None:
    """All of an ellipse's odds times a number are a smaller or larger ellipse: stretched, it is the same again."""
    truth = ellipse((20.0, 24.0), (8.0, 12.0)) > 1.0
    box = a_box((12, 28), (12, 36))
    (ahead,) = fitted([fit_of(odds * ellipse((20.0, 24.0), (8.0, 12.0)), box)])
    assert dice(ahead > 0.0, truth[box.place]) > 0.985
    shifted, narrow = ellipse((21.5, 22.0), (7.0, 9.0)), ellipse((19.0, 25.0), (10.0, 8.0))
    for found in (shifted, narrow):
        (ahead,) = fitted([fit_of(odds**0.3 * found, box)])
        assert dice(ahead > 0.0, truth[box.place]) > 0.97


def test_each_pixel_is_the_lead_where_it_was_found() -> None:
    """By hand: the lead is linear, so that what is between two pixels is, too."""
    odds = ellipse((18.0, 22.0), (6.0, 9.0), slope=0.7)
    box = a_box((10, 30), (14, 38))
    fit, ahead = fit_of(odds, box), lead(one_class(odds), 1)
    (seen,) = fitted([fit])
    tops, lefts = (low - wide for (low, _), wide in zip(box.ends, (10, 12), strict=True))
    for row, column in ((10, 14), (29, 37), (17, 20), (23, 31)):
        (a, b), (c, d) = fit.found
        y = max(0, tops) + a + (row + 0.5 - 10) * (b - a) / 20 - 0.5
        x = lefts + c + (column + 0.5 - 14) * (d - c) / 24 - 0.5
        i, j = math.floor(y), math.floor(x)
        by_hand = sum((1 - abs(y - p)) * (1 - abs(x - q)) * ahead[p, q] for p in (i, i + 1) for q in (j, j + 1))
        assert seen[row - 10, column - 14] == pytest.approx(by_hand, abs=1e-4)


def test_ends_within_a_margin_stay_and_axes_that_are_not_tight() -> None:
    odds = ellipse((20.0, 24.0), (7.0, 10.0))
    margin = a_box((12, 28), (13, 35), margin=1)
    fit = fit_of(odds, margin)
    assert fit.ends[0] == pytest.approx((13.0, 27.0), abs=0.05)  # where it is found: within a pixel of the box
    (ahead,) = fitted([fit])
    assert dice(ahead > 0.0, odds[margin.place] > 1.0) > 0.99
    wider = fit_of(odds, a_box((10, 30), (13, 35), margin=1))
    assert wider.ends[0] == (11, 29)  # farther than the margin: moved to its end
    loose = fit_of(odds, a_box((10, 30), (11, 37), tight=False))
    np.testing.assert_allclose(fitted([loose])[0], lead(one_class(odds), 1)[10:30, 11:37], atol=1e-5)


def test_what_reaches_over_less_than_half_of_a_side_was_missed() -> None:
    odds = ellipse((20.0, 24.0), (4.0, 9.0))
    assert found_in(one_class(odds), inside(a_box((10, 30), (14, 34))), a_box((10, 30), (14, 34))) is None
    assert found_in(one_class(odds), inside(a_box((13, 27), (14, 34))), a_box((13, 27), (14, 34))) is not None
    assert found_in(one_class(odds), inside(a_box((13, 27), (14, 34))), a_box((0, 8), (14, 34))) is None


def test_an_object_ends_where_another_of_its_class_has_its_box() -> None:
    """Two that touch are found as one."""
    odds = np.maximum(ellipse((20.0, 15.0), (8.0, 8.0)), ellipse((20.0, 30.0), (8.0, 8.0)))
    left, right = a_box((12, 28), (7, 22)), a_box((12, 28), (22, 38))
    fit = fit_of(odds, left, right)
    assert fit.found[1][1] == pytest.approx(22, abs=0.6)
    assert fit_of(odds, left).found[1][1] > 25


def test_the_part_counts_that_has_most_pixels_in_the_box() -> None:
    odds = np.full(SPACE, 0.1)
    odds[12:20, 12:20] = 10.0
    odds[12:28, 22:26] = 10.0  # larger, and beside the box
    fit = fit_of(odds, a_box((12, 20), (12, 20)))
    assert [round(end) for end in fit.found[1]] == [4, 12]


def test_slices_that_are_alike_are_averaged_by_their_overlap() -> None:
    truth = ellipse((20.0, 24.0), (8.0, 12.0))
    noisy = [truth.copy() for _ in range(3)]
    noisy[1][14:18, 18:30] = 0.2  # a dent that neighbours do not have
    here = [a_box((12, 28), (12, 36), depth=number) for number in range(3)]
    fits = [fit_of(odds, box) for odds, box in zip(noisy, here, strict=True)]
    alone, together = fitted(fits[1:2])[0], fitted(fits)[1]
    assert dice(together > 0.0, truth[here[1].place] > 1.0) > dice(alone > 0.0, truth[here[1].place] > 1.0) + 0.05
    np.testing.assert_allclose(together, (alone + 2.0 * fitted(fits[:1])[0]) / 3.0, atol=1e-5)
    narrower = a_box((12, 28), (12, 30), depth=2)  # 18 of 24 columns: IoU 3/4, which counts half
    seen = fit_of(ellipse((20.0, 21.0), (8.0, 9.0)), narrower)
    other = fitted([Fit(here[1], seen.ahead, None, seen.found, fits[1].ends)])[0]
    np.testing.assert_allclose(fitted([fits[1], seen])[0], (alone + 0.5 * other) / 1.5, atol=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        a_box((12, 28), (12, 36), label=2, depth=1),  # of another class
        a_box((12, 28), (12, 36), depth=0),  # in the same slice
        a_box((12, 28), (0, 24), depth=1),  # overlaps by a third
    ],
)
def test_what_is_not_alike_does_not_count(other: Box) -> None:
    fit = fit_of(ellipse((20.0, 24.0), (8.0, 12.0)), a_box((12, 28), (12, 36)))
    beside = Fit(other, -fit.ahead, None, fit.found, fit.ends)
    np.testing.assert_array_equal(fitted([fit, beside])[0], fitted([fit])[0])


def test_two_that_overlap_count_by_what_they_cover_together() -> None:
    own, beside = a_box((12, 28), (12, 36)), a_box((12, 28), (16, 40), depth=1)  # IoU 20/28
    fit = fit_of(ellipse((20.0, 24.0), (8.0, 12.0)), own)
    other = Fit(beside, -fit.ahead, None, fit.found, fit.ends)
    share = 2 * 20 / 28 - 1
    np.testing.assert_allclose(fitted([fit, other])[0], fitted([fit])[0] * (1 - share) / (1 + share), atol=1e-5)


def test_of_many_alike_the_nearest_slices_count_and_always_itself() -> None:
    """Leads of 0, 1, 2, ... in slices with the same box: of those of the last one, nine are the last nine."""
    fit = fit_of(ellipse((20.0, 24.0), (8.0, 12.0)), a_box((12, 28), (12, 36)))
    fits = [
        Fit(fit.box._replace(depth=z), np.full_like(fit.ahead, z), None, fit.found, fit.ends) for z in range(20)
    ]
    leads = fitted(fits)
    assert leads[19].mean() == pytest.approx(np.mean(range(11, 20)))
    assert leads[10].mean() == pytest.approx(10.0)
    assert fitted(fits[::-1])[0].mean() == pytest.approx(np.mean(range(11, 20)))


def test_boxes_that_are_not_tight_are_not_averaged() -> None:
    """An object that wanders through a box in space, which serves for its slices."""
    fits = [
        fit_of(ellipse((14.0 + z, 24.0), (4.0, 4.0)), a_box((6, 34), (10, 38), tight=False, depth=z))
        for z in range(12)
    ]
    for z, ahead in enumerate(fitted(fits)):
        np.testing.assert_array_equal(ahead, fitted([fits[z]])[0])


def test_a_side_of_one_pixel_that_is_found_is_not_missed() -> None:
    odds = np.full(SPACE, 0.01)
    odds[20, 12:30] = 1.5
    assert found_in(one_class(odds), inside(a_box((20, 21), (12, 30))), a_box((20, 21), (12, 30))) is not None


def test_where_a_part_ends_is_told_by_its_own_pixels() -> None:
    """On the same line there is another part, which is brighter."""
    odds = np.full(SPACE, math.exp(-2.0))
    odds[12:20, 12:20] = math.exp(2.0)
    odds[19, 21] = math.exp(5.0)
    fit = fit_of(odds, a_box((12, 20), (12, 20)))
    assert fit.found[0] == pytest.approx((4.0, 12.0))
    assert float(fit.ahead.max()) == pytest.approx(5.0)
    sure = fit_of(np.where(odds > 1.0, 1e9, odds), a_box((12, 20), (12, 20)))
    assert float(sure.ahead.max()) == FARTHEST


def test_in_space_slices_tell_of_each_other_and_boxes_of_several_do_not() -> None:
    p = np.stack([one_class(ellipse((20.0, 24.0), (8.0 - one, 12.0))) for one in (0.0, 2.0)], axis=1)
    flat = [
        Box(1, z, ((z, z + 1), (12, 28), (12, 36)), np.array([False, True, True]), np.zeros(3, int)) for z in (0, 1)
    ]
    covered = inside(*flat, space=(2, *SPACE))
    fits = [found_in(p, covered, box) for box in flat]
    assert all(fit is not None for fit in fits)
    each = [fitted([fit])[0] for fit in fits if fit]
    together = fitted([fit for fit in fits if fit])
    for one in together:
        np.testing.assert_allclose(one, (each[0] + each[1]) / 2.0, atol=1e-5)
    deep = Box(1, 0, ((0, 2), (12, 28), (12, 36)), np.array([True, True, True]), np.zeros(3, int))
    fit = found_in(p, covered, deep)
    assert fit is not None
    assert fits[1] is not None
    np.testing.assert_array_equal(fitted([fit, fits[1]])[0], fitted([fit])[0])
    np.testing.assert_array_equal(fitted([fits[1], fit])[0], fitted([fits[1]])[0])


def test_labels_touch_tight_boxes_and_have_the_size_of_what_is_there() -> None:
    """Of many ellipses that are found too small, or too large, and shifted."""
    random, areas = np.random.default_rng(0), []
    for _ in range(40):
        centre, radii = random.uniform((16, 18), (24, 30)), random.uniform(6.0, 11.0, 2)
        truth = ellipse(tuple(centre), tuple(radii)) > 1.0
        place = [[int(one.min()), int(one.max()) + 1] for one in np.nonzero(truth)]
        known = KnownOf(
            np.array([[place]]), np.ones((1, 1, 2), bool), np.zeros(2, np.int64), np.zeros((0, 3), np.int64)
        )
        found = ellipse(tuple(centre + random.uniform(-1.5, 1.5, 2)), tuple(radii * random.uniform(0.75, 1.2, 2)))
        (labels,) = taught_labels([(one_class(found), known)], 0.0)
        box = labels[tuple(slice(*ends) for ends in place)] == 1
        assert all(side.any() for side in (box[0], box[-1], box[:, 0], box[:, -1]))
        areas.append(box.sum() / truth.sum())
    assert np.mean(areas) == pytest.approx(1.0, abs=0.02)
