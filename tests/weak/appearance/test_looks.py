"""Objects that are told from their surroundings by brightness: against what they were drawn with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak.appearance.looks import looks
from ringfence.weak.appearance.telling import unlike


def rod(
    contrast: float, *, angle: float = 0.7, tilt: float = 0.0, channels: int = 1, seed: int = 0
) -> NDArray[np.uint8]:
    """A rod of 30 × 8 pixels in noise of deviation 10, and a field of brightness that rises by ``tilt`` a pixel."""
    rows, columns = np.mgrid[:60, :60] - 29.5
    along = rows * np.sin(angle) + columns * np.cos(angle)
    across = rows * np.cos(angle) - columns * np.sin(angle)
    inside = (np.abs(along) < 15) & (np.abs(across) < 4)
    noise = np.random.default_rng(seed).normal(0.0, 10.0, (channels, 60, 60))
    plane = 100.0 + tilt * columns + contrast * inside * (np.arange(channels) == 0)[:, None, None]
    return (plane + noise).clip(0, 255).astype(np.uint8)


def box_of_rod(angle: float = 0.7) -> NDArray[np.int64]:
    half = np.array([15 * np.sin(angle) + 4 * np.cos(angle), 15 * np.cos(angle) + 4 * np.sin(angle)])
    return np.stack([np.rint(30 - half), np.rint(30 + half)], axis=-1).astype(np.int64)[None, None]


TIGHT = np.ones((1, 1), dtype=bool)


def told_apart(
    image: NDArray[np.uint8], boxes: NDArray[np.int64], tight: NDArray[np.bool_]
) -> list[tuple[int, float | None]]:
    """The class of each box that is looked at, and what its object fills of it."""
    return [(look.number, look.fill) for look in looks(image, boxes, tight)]


@pytest.mark.parametrize("tilt", [0.0, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_bright_is_told_apart_and_noise_is_not(tilt: float, channels: int) -> None:
    """A mean over nine pixels has a third of the deviation: 25 brighter is seven of them, 2 is less than one."""
    for contrast, expected in ((25.0, 1.0), (-25.0, 1.0), (2.0, 0.0), (0.0, 0.0)):
        found = [
            fill is not None
            for seed in range(10)
            for _, fill in told_apart(rod(contrast, tilt=tilt, channels=channels, seed=seed), box_of_rod(), TIGHT)
        ]
        assert len(found) == 10
        assert np.mean(found) == pytest.approx(expected, abs=0.1)


@settings(max_examples=30)
@given(distance=st.floats(5.0, 12.0), share=st.floats(0.4, 0.8), seed=st.integers(0, 99), down=st.booleans())
def test_deviations_are_those_of_two_normal_distributions(
    distance: float, share: float, seed: int, down: bool
) -> None:
    random = np.random.default_rng(seed)
    surroundings, within = random.normal(0.0, 3.0, (1, 900)), random.normal(0.0, 3.0, (1, 900))
    within[:, : round(900 * share)] += (-3.0 if down else 3.0) * distance
    deviations, likely = unlike(within, surroundings)
    assert deviations == pytest.approx(distance, rel=0.15)
    assert (likely > 0.5).mean() == pytest.approx(share, abs=0.05)


def test_boxes_that_say_nothing_are_not_looked_at() -> None:
    image, box = rod(25.0), box_of_rod()
    assert list(told_apart(image, box, ~TIGHT)) == []  # a 3-D box's slices
    assert list(told_apart(image, np.zeros_like(box), TIGHT)) == []
    small = np.array([[[[10, 15], [10, 30]]]])
    assert list(told_apart(image, small, TIGHT)) == []
    whole = np.array([[[[0, 60], [0, 60]]]])
    assert list(told_apart(image, whole, TIGHT)) == []  # nothing is around it
    both = np.concatenate([small, box])
    ((number, fill),) = told_apart(image, both, np.ones((2, 1), dtype=bool))
    assert number == 1
    assert fill == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize("wider", [0, 1, 2])
def test_how_much_a_rod_fills_hardly_depends_on_how_wide_its_box_is(wider: int) -> None:
    """240 pixels of 26 × 28, and a little more by a mean over 3×3 pixels."""
    box = box_of_rod() + np.array([-wider, wider])
    found = [
        fill for seed in range(10) for _, fill in told_apart(rod(30.0, seed=seed), box, TIGHT) if fill is not None
    ]
    assert len(found) >= 8
    assert np.median(found) == pytest.approx(0.42, abs=0.08)


def test_something_small_in_an_object_is_not_the_object() -> None:
    """A bright spot in what is as bright as its surroundings; and a class of its own in another's box."""
    random = np.random.default_rng(0)
    image = random.normal(100.0, 5.0, (1, 60, 60))
    image[:, 26:34, 26:34] += 60.0
    outer, inner = np.array([[[15, 45], [15, 45]]]), np.array([[[26, 34], [26, 34]]])
    image = image.clip(0, 255).astype(np.uint8)
    assert list(told_apart(image, outer[None], TIGHT)) == [(0, None)]
    found = dict(told_apart(image, np.stack([outer, inner]), np.ones((2, 1), dtype=bool)))
    assert found == {0: None, 1: pytest.approx(1.0)}  # what is in the outer one's box surrounds the inner one


def test_what_is_in_the_box_of_another_class_is_left_out() -> None:
    """A bright square, of which another class takes the middle."""
    image = np.random.default_rng(0).normal(100.0, 5.0, (1, 60, 60))
    image[:, 15:45, 15:45] += 60.0
    image[:, 20:40, 20:40] -= 60.0
    boxes = np.array([[[[15, 45], [15, 45]]], [[[20, 40], [20, 40]]]])
    found = dict(told_apart(image.clip(0, 255).astype(np.uint8), boxes, np.ones((2, 1), dtype=bool)))
    assert found[0] == pytest.approx(1.0, abs=0.1)  # 0.56 of the whole box


def test_another_object_of_the_class_is_not_left_out() -> None:
    """Two boxes of a class that overlap: each holds all that is in it."""
    image = np.random.default_rng(0).normal(100.0, 5.0, (1, 60, 60))
    image[:, 15:45, 15:30] += 60.0
    image[:, 15:45, 32:47] += 60.0
    boxes = np.array([[[[15, 45], [15, 40]], [[15, 45], [32, 47]]]])
    first, second = looks(image.clip(0, 255).astype(np.uint8), boxes, np.ones((1, 2), dtype=bool))
    assert first.inside.sum() == 30 * 25
    assert second.inside.sum() == 30 * 15


def test_boxes_as_large_as_each_other_surround_neither() -> None:
    """Of two classes in the same place, each is explained by the other."""
    boxes = np.array([[[[20, 40], [20, 40]]], [[[20, 40], [20, 40]]]])
    assert list(looks(rod(25.0), boxes, np.ones((2, 1), dtype=bool))) == []


def test_a_mean_over_neighbours_does_not_reach_into_the_ring() -> None:
    """One pixel beside each box, its own and others', is neither in it nor around it."""
    boxes = np.array([[[[20, 40], [20, 40]], [[22, 30], [48, 58]]]])
    first, _ = looks(rod(25.0), boxes, np.ones((1, 2), dtype=bool))
    ring = np.zeros((60, 60), bool)
    ring[first.rows, first.columns] = first.ring
    assert not ring[19:41, 19:41].any()
    assert not ring[21:31, 47:50].any()
    assert ring[18, 18:42].all()
    assert ring[21:31, 46].all()


def test_each_box_of_a_class_may_be_tight_or_not() -> None:
    boxes = np.array([[[[5, 20], [5, 20]], [[30, 50], [30, 50]]]])
    (look,) = looks(rod(25.0), boxes, np.array([[False, True]]))
    np.testing.assert_array_equal(look.box, boxes[0, 1])


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_box_with_next_to_nothing_around_it_tells_nothing(columns: int) -> None:
    noise = np.random.default_rng(1).normal(100.0, 10.0, (1, 60, 60)).astype(np.uint8)
    assert list(told_apart(noise, np.array([[[[0, 60], [0, 60 - columns]]]]), TIGHT)) == []


def test_a_constant_image_has_nothing_to_tell() -> None:
    assert list(told_apart(np.full((1, 60, 60), 7, np.uint8), box_of_rod(), TIGHT)) == [(0, None)]
