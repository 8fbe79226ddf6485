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
from hypothesis.extra.numpy import array_shapes, arrays

from ringfence.weak.annotations import (
    BoxAnnotation,
    SizeAnnotation,
    annotations_from_boxes,
    boxes_from_masks,
    place_boxes,
    place_objects,
    place_sizes,
    place_volume_boxes,
    place_volume_sizes,
)
from ringfence.weak.prepared import Case
from ringfence.weak.prepared.preprocessing import resized_labels


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
    placed, whole = place_boxes([BoxAnnotation("A", 1, 2, low, high)], case((3, *native)), size, 2)
    for axis in range(2):
        scale = Fraction(size[axis], native[axis])
        start, stop = placed[1, 1, 0, axis].tolist()
        assert 0 <= start < stop <= size[axis]
        assert start <= low[axis] * scale < start + 1
        assert stop - 1 < high[axis] * scale <= stop
    assert placed.shape == (3, 2, 1, 2, 2)
    placed[1, 1] = 0
    assert not placed.any()
    assert whole.all()


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
    placed, _ = place_boxes(annotations_from_boxes("A", tight.numpy()), case((1, *native)), size, 1)
    small = resized_labels(mask, size)[0]
    for (top, bottom), (left, right) in placed[0, 0]:
        small[top:bottom, left:right] = 0
    assert not small.any()
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
    by_slices = place_objects(annotations_from_boxes("A", slices), case(shape), size, 2)
    given_whole = place_objects(annotations_from_boxes("A", volume), case(shape), size, 2)
    assert by_slices.tolist() == given_whole.tolist() == (volume * [[1], [2], [1]]).tolist()


def test_a_slanted_object_goes_from_its_first_to_its_last_row() -> None:
    notes = [BoxAnnotation("A", place, 1, (place, 3), (place + 2, 5 + place)) for place in (2, 1, 3)]
    boxes = place_objects([*notes, BoxAnnotation("B", 9, 1, (0, 0), (9, 9))], case((5, 10, 10)), (10, 20), 2)
    assert boxes.tolist() == [[[[1, 4], [1, 5], [6, 16]]], [[[0, 0]] * 3]]


def test_a_larger_slice_holds_a_smaller_one() -> None:
    notes = [BoxAnnotation("A", 0, 1, (0, 1), (9, 9)), BoxAnnotation("A", 1, 1, (3, 2), (5, 4))]
    assert place_objects(notes, case((5, 10, 10)), (10, 10), 1).tolist() == [[[[0, 2], [0, 9], [1, 9]]]]


def test_rounding_goes_outwards() -> None:
    boxes, _ = place_boxes([BoxAnnotation("A", 0, 1, (1, 5), (2, 7))], case((1, 10, 10)), (5, 14), 1)
    assert boxes.tolist() == [[[[[0, 1], [floor(7.0), ceil(9.8)]]]]]


def test_several_objects_of_a_class_in_a_slice() -> None:
    boxes = [
        BoxAnnotation("A", 1, 2, (6, 1), (8, 3)),
        BoxAnnotation("A", 1, 2, (2, 5), (4, 9)),
        BoxAnnotation("A", 0, 1, (0, 0), (10, 10)),
    ]
    placed, _ = place_boxes(boxes, case((2, 10, 10)), (10, 20), 2)
    assert placed.shape == (2, 2, 2, 2, 2)
    assert placed[1, 1].tolist() == [[[2, 4], [10, 18]], [[6, 8], [2, 6]]]
    assert placed[0, 0].tolist() == [[[0, 10], [0, 20]], [[0, 0], [0, 0]]]
    assert not placed[0, 1].any()
    assert not placed[1, 0].any()
    assert place_boxes([], case((2, 10, 10)), (10, 20), 2).boxes.shape == (2, 2, 1, 2, 2)
    close = [BoxAnnotation("A", 0, 1, (0, one), (1, one + 1)) for one in range(4)]
    assert place_boxes(close, case((1, 4, 4)), (1, 1), 1).boxes.tolist() == [
        [[[[0, 1], [0, 1]]]]
    ]  # one pixel, one box


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([(0, (1, 1), (3, 3)), (1, (1, 1), (3, 3)), (4, (1, 1), (3, 3))], [[0, 1, 1, 2, 3, 3], [4, 1, 1, 5, 3, 3]]),
        ([(0, (1, 1), (3, 3)), (1, (5, 1), (6, 3))], [[0, 1, 1, 1, 3, 3], [1, 5, 1, 2, 6, 3]]),
        ([(0, (1, 1), (3, 3)), (1, (3, 3), (6, 5))], [[0, 1, 1, 2, 6, 5]]),
        ([(0, (1, 1), (3, 3)), (0, (5, 5), (6, 6)), (1, (2, 2), (6, 6))], [[0, 1, 1, 2, 6, 6]]),
        ([(0, (1, 1), (3, 3)), (0, (2, 2), (6, 6))], [[0, 1, 1, 1, 3, 3], [0, 2, 2, 1, 6, 6]]),
        ([(None, (0, 1, 1), (2, 3, 3)), (None, (1, 1, 1), (3, 3, 3))], [[0, 1, 1, 2, 3, 3], [1, 1, 1, 3, 3, 3]]),
    ],
    ids=["gap-in-slices", "gap-in-rows", "touching", "joined-by-a-third", "same-slice", "in-3d"],
)
def test_which_boxes_are_one_object(boxes: list[Any], expected: list[list[int]]) -> None:
    annotations = [BoxAnnotation("A", place, 1, low, high) for place, low, high in boxes]
    for some in (annotations, annotations[::-1]):
        (placed,) = place_objects(some, case((5, 10, 10)), (10, 10), 1)
        assert placed.transpose(0, 2, 1).reshape(-1, 6).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(arrays(bool, array_shapes(min_dims=3, max_dims=3, max_side=7)))
def test_objects_of_a_volume_from_its_slices(mask: np.ndarray) -> None:
    """Every connected part lies in one of the boxes, and every plane across a box meets the mask in it."""
    slices = boxes_from_masks(torch.from_numpy(mask)[:, None]).numpy()
    (joined,) = place_objects(annotations_from_boxes("A", slices), case(mask.shape), mask.shape[1:], 1)
    joined = joined[joined.any(axis=(1, 2))]
    (parts,) = boxes_from_masks(torch.from_numpy(mask)[None, None])[0].numpy()
    for part in parts[parts.any(axis=(1, 2))]:
        assert any((box[:, 0] <= part[:, 0]).all() and (part[:, 1] <= box[:, 1]).all() for box in joined)
    for box in joined:
        inside = mask[tuple(slice(*ends) for ends in box)]
        assert all(inside.any(axis=tuple({0, 1, 2} - {axis})).all() for axis in range(3))
    assert len(joined) <= sum(part.any() for part in parts)


@pytest.mark.parametrize("margin", [0, 2])
def test_boxes_of_several_objects_come_back_in_place(margin: int) -> None:
    masks = torch.from_numpy(np.random.default_rng(0).random((4, 2, 12, 15)) < 0.2)
    boxes = boxes_from_masks(masks, margin).numpy()
    assert boxes.shape[2] > 3
    placed, _ = place_boxes(annotations_from_boxes("A", boxes), case((4, 12, 15)), (12, 15), 2)
    assert placed.tolist() == boxes.tolist()
    volume = boxes_from_masks(masks.transpose(0, 1)[None], margin)[0].numpy()
    notes = annotations_from_boxes("A", volume)
    placed, whole = place_volume_boxes(notes, case((4, 12, 15)), (12, 15), 2)
    assert placed.tolist() == place_objects(notes, case((4, 12, 15)), (12, 15), 2).tolist() == volume.tolist()
    assert whole.all()


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"an annotation of A is of class 2; labels are from 1 to 1"):
        place_boxes([BoxAnnotation("A", 0, 2, (0, 0), (1, 1))], case((5, 10, 10)), (10, 10), 1)
    with pytest.raises(ValueError, match=r"boxes of shape \[2, 2\]: \[slices, classes, objects, 2, 2\] or"):
        annotations_from_boxes("A", np.zeros((2, 2), np.int64))


def test_boxes_of_slices_are_one_slice_deep_in_a_volume() -> None:
    notes = [
        BoxAnnotation("A", 3, 1, (2, 5), (4, 9)),
        BoxAnnotation("A", 1, 1, (0, 0), (1, 1)),
        BoxAnnotation("A", 3, 1, (2, 1), (4, 3), tight=False),
        BoxAnnotation("A", None, 2, (0, 1, 1), (4, 6, 6)),
    ]
    boxes, whole = place_volume_boxes(notes, case((5, 10, 10)), (10, 20), 3)
    assert boxes[0].tolist() == [[[1, 2], [0, 1], [0, 2]], [[3, 4], [2, 4], [2, 6]], [[3, 4], [2, 4], [10, 18]]]
    assert whole[0].tolist() == [[False, True, True], [False] * 3, [False, True, True]]
    assert boxes[1].tolist() == [[[0, 4], [1, 6], [2, 12]], [[0, 0]] * 3, [[0, 0]] * 3]
    assert whole[1:].all()
    assert not boxes[2].any()


def test_a_box_in_3d_is_loose_in_each_of_its_slices() -> None:
    """Unless it has but one, in which it is as tight as in space; and another of the same place may be tight."""
    notes = [
        BoxAnnotation("A", None, 1, (1, 2, 3), (4, 6, 9)),
        BoxAnnotation("A", None, 2, (2, 0, 0), (3, 5, 5)),
    ]
    boxes, whole = place_boxes(notes, case((5, 10, 10)), (10, 10), 2)
    assert boxes.shape == (5, 2, 1, 2, 2)
    for number in range(5):
        assert boxes[number, 0, 0].tolist() == ([[2, 6], [3, 9]] if 1 <= number < 4 else [[0, 0], [0, 0]])
        assert whole[number, 0, 0].tolist() == [not 1 <= number < 4] * 2
        assert boxes[number, 1, 0].tolist() == ([[0, 5], [0, 5]] if number == 2 else [[0, 0], [0, 0]])
    assert whole[:, 1].all()
    drawn = [*notes, BoxAnnotation("A", 2, 1, (2, 3), (6, 9))]
    _, both = place_boxes(drawn, case((5, 10, 10)), (10, 10), 2)
    assert both[:, 0, 0].all(axis=-1).tolist() == [True, False, True, False, True]


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
