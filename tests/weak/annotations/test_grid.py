"""Boxes and bounds in the prepared grid, against exact fractions and against masks that are resized themselves."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.segmentation import Region
from ringfence.weak.annotations import (
    BoxAnnotation,
    SizeAnnotation,
    annotations_from_boxes,
    boxes_from_masks,
    place_boxes,
    place_sizes,
    place_volume_boxes,
    place_volume_sizes,
)
from ringfence.weak.prepared.prepared_set import Case, resized_labels


def case(shape: tuple[int, int, int]) -> Case:
    return Case("A", "train", "A.npz", "", shape, None, False)


@st.composite
def boxes_in_images(draw: Any) -> tuple[tuple[int, int], tuple[int, int], tuple[int, ...], tuple[int, ...]]:
    sides = st.integers(1, 700)
    native, size = draw(st.tuples(sides, sides)), draw(st.tuples(sides, sides))
    low = tuple(draw(st.integers(0, side - 1)) for side in native)
    high = tuple(draw(st.integers(start + 1, side)) for start, side in zip(low, native, strict=True))
    return native, size, low, high


@settings(max_examples=300, deadline=None)
@given(boxes_in_images())
def test_a_scaled_box_is_the_smallest_around_the_exact_one(drawn: Any) -> None:
    native, size, low, high = drawn
    placed = place_boxes([BoxAnnotation("A", 1, 2, low, high)], case((3, *native)), size, 2)
    for axis in range(2):
        scale = Fraction(size[axis], native[axis])
        start, stop = placed[1, 1, axis].tolist()
        assert 0 <= start < stop <= size[axis]
        assert start <= low[axis] * scale < start + 1
        assert stop - 1 < high[axis] * scale <= stop
    placed[1, 1] = 0
    assert not placed.any()


PLANES = st.tuples(st.integers(1, 24), st.integers(1, 24))
"""Heights and widths of slices."""


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_in_the_box_is_in_it_after_resizing(data: Any) -> None:
    """The mask is resized as ``ringfence prepare`` does it, and nothing of it may come to lie outside."""
    native, size = data.draw(PLANES), data.draw(PLANES)
    mask = np.zeros((1, *native), np.uint8)
    count = data.draw(st.integers(1, 6))
    for _ in range(count):
        mask[(0, *(data.draw(st.integers(0, side - 1)) for side in native))] = 1
    tight = boxes_from_masks(torch.from_numpy(mask == 1)[:, None])
    placed = place_boxes(annotations_from_boxes("A", tight.numpy()), case((1, *native)), size, 1)
    small = torch.from_numpy(resized_labels(mask, size) == 1)[:, None]
    logits = torch.cat([~small, small], dim=1).double() * 2000 - 1000
    assert float(Region(logits).outside(torch.from_numpy(placed))) == 0.0
    if native == size:
        assert placed.tolist() == tight.tolist()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_slices_boxes_make_the_volumes_box(data: Any) -> None:
    """For a solid object: the box around its slices' boxes is its own."""
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 12)))
    mask = np.zeros(shape, bool)
    low = [data.draw(st.integers(0, side - 1)) for side in shape]
    high = [data.draw(st.integers(start + 1, side)) for start, side in zip(low, shape, strict=True)]
    mask[tuple(slice(*ends) for ends in zip(low, high, strict=True))] = True
    masks = torch.from_numpy(np.stack([mask, np.zeros_like(mask)]))
    slices = boxes_from_masks(masks.movedim(1, 0)).numpy()
    volume = boxes_from_masks(masks[None])[0].numpy()
    size = (2 * shape[1], shape[2])
    by_slices = place_volume_boxes(annotations_from_boxes("A", slices), case(shape), size, 2)
    given_whole = place_volume_boxes(annotations_from_boxes("A", volume), case(shape), size, 2)
    assert by_slices.tolist() == given_whole.tolist() == (volume * [[[1], [2], [1]]]).tolist()


def test_a_slanted_object_goes_from_its_first_to_its_last_row() -> None:
    notes = [BoxAnnotation("A", place, 1, (place, 3), (place + 2, 5 + place)) for place in (2, 1, 3)]
    boxes = place_volume_boxes([*notes, BoxAnnotation("B", 9, 1, (0, 0), (9, 9))], case((5, 10, 10)), (10, 20), 2)
    assert boxes.tolist() == [[[1, 4], [1, 5], [6, 16]], [[0, 0]] * 3]


def test_a_larger_slice_holds_a_smaller_one() -> None:
    notes = [BoxAnnotation("A", 0, 1, (0, 1), (9, 9)), BoxAnnotation("A", 1, 1, (3, 2), (5, 4))]
    assert place_volume_boxes(notes, case((5, 10, 10)), (10, 10), 1).tolist() == [[[0, 2], [0, 9], [1, 9]]]


def test_rounding_goes_outwards() -> None:
    boxes = place_boxes([BoxAnnotation("A", 0, 1, (1, 5), (2, 7))], case((1, 10, 10)), (5, 14), 1)
    assert boxes.tolist() == [[[[0, 1], [floor(7.0), ceil(9.8)]]]]


def test_boxes_that_cannot_be_tight_are_refused() -> None:
    in_3d = BoxAnnotation("A", None, 1, (0, 1, 1), (2, 3, 3))
    with pytest.raises(ValueError, match=r"A has a box in 3-D, of class 1, which is not tight in every slice"):
        place_boxes([in_3d], case((5, 10, 10)), (10, 10), 1)
    gap = [BoxAnnotation("A", place, 1, (1, 1), (3, 3)) for place in (0, 1, 4)]
    with pytest.raises(
        ValueError, match=r"A: boxes of class 1 leave out slices 2 to 3, .* annotate what is missing"
    ):
        place_volume_boxes(gap, case((5, 10, 10)), (10, 10), 1)
    with pytest.raises(ValueError, match=r"leave out slices 1 to 1"):
        place_volume_boxes([gap[0], BoxAnnotation("A", 2, 1, (1, 1), (3, 3))], case((5, 10, 10)), (10, 10), 1)
    apart = [BoxAnnotation("A", 0, 1, (1, 1), (3, 3)), BoxAnnotation("A", 1, 1, (5, 1), (6, 3))]
    with pytest.raises(ValueError, match=r"leave out rows 3 to 4"):
        place_volume_boxes(apart, case((5, 10, 10)), (10, 10), 1)
    with pytest.raises(ValueError, match=r"a note on A is about class 2; labels are from 1 to 1"):
        place_boxes([BoxAnnotation("A", 0, 2, (0, 0), (1, 1))], case((5, 10, 10)), (10, 10), 1)
    with pytest.raises(ValueError, match=r"boxes of shape \[2, 2\]"):
        annotations_from_boxes("A", np.zeros((2, 2), np.int64))


def test_areas_scale_as_the_plane_does() -> None:
    notes = [
        SizeAnnotation("A", 1, 1, 30.0, 60.0),
        SizeAnnotation("A", 2, 2, -np.inf, 7.0),
        SizeAnnotation("A", None, 1, 90.0, 100.0),
        SizeAnnotation("B", 0, 1, 1.0, 1.0),
    ]
    low, high = place_sizes(notes, case((3, 20, 30)), (10, 60), 2)  # as many pixels as voxels: 600
    assert low.dtype == high.dtype == np.float32
    assert low.tolist() == [[-np.inf, -np.inf], [30.0, -np.inf], [-np.inf, -np.inf]]
    assert high.tolist() == [[np.inf, np.inf], [60.0, np.inf], [np.inf, 7.0]]
    low, high = place_sizes(notes, case((3, 20, 30)), (10, 15), 2)
    assert (low[1, 0], high[1, 0], high[2, 1]) == (7.5, 15.0, 1.75)
    low, high = place_volume_sizes(notes, case((3, 20, 30)), (10, 15), 2)
    assert (low[0], high[0]) == (22.5, 25.0)
    assert (low[1], high[1]) == (-np.inf, np.inf)  # two slices say nothing


def test_bounds_on_every_slice_bound_the_volume() -> None:
    notes = [
        SizeAnnotation("A", place, 1, low, high)
        for place, low, high in [(0, 1.0, 2.0), (1, -np.inf, 5.0), (2, 3.0, 4.0)]
    ]
    low, high = place_volume_sizes(notes, case((3, 4, 4)), (8, 8), 1)
    assert (low.tolist(), high.tolist()) == ([16.0], [44.0])
    low, high = place_volume_sizes(notes[1:], case((3, 4, 4)), (8, 8), 1)
    assert (low.tolist(), high.tolist()) == ([12.0], [np.inf])
    with pytest.raises(ValueError, match=r"A has bounds on the size of class 1 in the whole volume only"):
        place_sizes([SizeAnnotation("A", None, 1, 1.0, 2.0)], case((3, 4, 4)), (8, 8), 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(2, 12))
def test_the_size_of_a_magnified_mask_keeps_its_bounds(times: int, side: int) -> None:
    mask = np.random.default_rng(side).random((1, side, side)) < 0.4
    note = SizeAnnotation("A", 0, 1, 0.9 * mask.sum(), 1.1 * mask.sum())
    size = (times * side, times * side)
    low, high = place_sizes([note], case((1, side, side)), size, 1)
    magnified = resized_labels(mask.astype(np.uint8), size).sum()
    assert low[0, 0] <= magnified * (1 + 1e-6)
    assert magnified <= high[0, 0] * (1 + 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_object_vanishes_when_slices_shrink(data: Any) -> None:
    """A slice without its object would teach that it is not there."""
    native, size = data.draw(PLANES), data.draw(PLANES)
    labels = np.zeros((2, *native), np.uint8)
    place = tuple(data.draw(st.integers(0, side - 1)) for side in native)
    labels[(1, *place)] = 3
    small = resized_labels(labels, size)
    assert small.shape == (2, *size)
    assert small.dtype == np.uint8
    assert not small[0].any()
    assert set(np.unique(small[1])) - {0} == {3}
    if size[0] <= native[0] and size[1] <= native[1]:  # where its middle falls
        at = tuple(int((one + 0.5) * new / old) for one, new, old in zip(place, size, native, strict=True))
        assert small[(1, *at)] == 3
