"""Motion against brute force: pixels are moved one by one by index arithmetic, and boxes are those of what results."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ringfence.weak.constraints.motion import Motion


def box_around(mask: Tensor) -> list[list[int]]:
    """First pixel and one past the last along each axis; zeros for an empty mask."""
    places = mask.nonzero()
    if len(places) == 0:
        return [[0, 0]] * mask.ndim
    return torch.stack([places.amin(dim=0), places.amax(dim=0) + 1], dim=-1).tolist()


def filled(box: list[list[int]], size: tuple[int, ...]) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[tuple(slice(start, stop) for start, stop in box)] = True
    return mask


@st.composite
def images(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]]]:
    size = tuple(draw(st.lists(st.integers(1, 7), min_size=2, max_size=3)))
    return size, [sorted([draw(st.integers(0, length)), draw(st.integers(0, length))]) for length in size]


def whole_for(boxes: Tensor) -> Tensor:
    return torch.ones(boxes.shape[:-1], dtype=torch.bool)


@given(image=images(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_window_has_the_boxes_of_what_is_seen_in_it(
    image: tuple[tuple[int, ...], list[list[int]]], data: st.DataObject
) -> None:
    size, box = image
    window = [data.draw(st.integers(1, length)) for length in size]
    start = [data.draw(st.integers(0, length - part)) for length, part in zip(size, window, strict=True)]
    mask = filled(box, size)
    seen = mask[tuple(slice(first, first + part) for first, part in zip(start, window, strict=True))]
    boxes = torch.tensor(box)[None, None]
    moved, whole = Motion.crop(torch.tensor([start]), size, window).boxes(boxes, whole_for(boxes))
    assert moved[0, 0].tolist() == box_around(seen)
    if not mask.any():
        assert bool(whole.all())
        return
    # along an axis strips are whole unless something is cut off along another
    for axis in range(len(size)):
        others = [one for one in range(len(size)) if one != axis]
        lost = [box[one][0] < start[one] or box[one][1] > start[one] + window[one] for one in others]
        assert bool(whole[0, 0, axis]) == (not any(lost))


@given(image=images(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_flips_and_shifts_have_the_boxes_of_what_is_flipped_and_shifted(
    image: tuple[tuple[int, ...], list[list[int]]], data: st.DataObject
) -> None:
    size, box = image
    flips = [data.draw(st.booleans()) for _ in size]
    steps = [data.draw(st.integers(-length, length)) for length in size]
    mask, seen = filled(box, size), torch.zeros(size, dtype=torch.bool)
    for place in mask.nonzero().tolist():
        to = [
            (length - 1 - one if flip else one) + step
            for one, length, flip, step in zip(place, size, flips, steps, strict=True)
        ]
        if all(0 <= one < length for one, length in zip(to, size, strict=True)):
            seen[tuple(to)] = True
    scale = torch.tensor([[-1.0 if flip else 1.0 for flip in flips]])
    shift = torch.tensor([[step / length for step, length in zip(steps, size, strict=True)]])
    boxes = torch.tensor(box)[None, None]
    moved, whole = Motion.resampled(scale, shift, size).boxes(boxes, whole_for(boxes))
    assert moved[0, 0].tolist() == box_around(seen)
    assert bool(whole.all()) == (int(seen.sum()) == int(mask.sum()))


@given(
    ends=st.lists(st.integers(0, 40), min_size=2, max_size=2).map(sorted),
    scale=st.floats(0.5, 2.0) | st.floats(-2.0, -0.5),
    shift=st.floats(-0.5, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_scaled_boxes_hold_the_pixels_that_come_from_them(ends: list[int], scale: float, shift: float) -> None:
    """Pixel p' shows the pixel that its centre comes from, x = (x' - m - d)/s + m; nearly on an edge, either one."""
    motion = Motion.resampled(torch.tensor([[scale, 1.0]]), torch.tensor([[shift, 0.0]]), (40, 8))
    boxes = torch.tensor([[ends, [2, 5]]])[:, None]
    (moved,) = motion.boxes(boxes, whole_for(boxes))[0].flatten(0, 1)
    assert moved[1].tolist() == ([2, 5] if bool(moved[0, 1] > moved[0, 0]) else [0, 0])
    for pixel in range(40):
        came_from = (pixel + 0.5 - 20.0 - 40.0 * shift) / scale + 20.0
        if min(abs(came_from - end) for end in ends) > 1e-3:
            inside = int(moved[0, 0]) <= pixel < int(moved[0, 1])
            assert inside == (ends[0] <= came_from < ends[1])


def test_intervals_keep_their_order_and_grow_with_the_image() -> None:
    scale = torch.tensor([[2.0, -0.5], [-1.0, 1.0]])
    motion = Motion.resampled(scale, torch.tensor([[0.0, 0.1], [0.25, 0.0]]), (10, 20))
    ends = torch.tensor([[[1.0, 3.0], [4.0, 8.0]], [[2.0, 9.0], [0.0, 20.0]]])
    assert motion.intervals(ends).tolist() == [[[-3.0, 1.0], [13.0, 15.0]], [[3.5, 10.5], [0.0, 20.0]]]
    assert motion.content.tolist() == [[1.0], [1.0]]
    several = ends[:, None, None].expand(-1, 3, 2, -1, -1)
    assert torch.equal(motion.intervals(several), motion.intervals(ends)[:, None, None].expand(-1, 3, 2, -1, -1))
    unbounded = torch.tensor([[[-torch.inf, torch.inf]] * 2] * 2)
    assert torch.equal(motion.intervals(unbounded), unbounded)


def test_content_is_what_sizes_are_multiplied_by() -> None:
    motion = Motion.resampled(torch.tensor([[2.0, -1.5, 0.5], [1.0, 1.0, -3.0]]), torch.zeros(2, 3), (4, 4, 4))
    assert motion.content.tolist() == [[1.5], [3.0]]


def test_what_was_not_whole_stays_so_and_empty_boxes_stay_empty() -> None:
    motion = Motion.crop(torch.tensor([[1, 1]]), (9, 9), (8, 8))
    boxes = torch.tensor([[[[2, 5], [2, 5]], [[0, 0], [0, 0]]]])
    whole = torch.tensor([[[True, False], [True, True]]])
    moved, still = motion.boxes(boxes, whole)
    assert moved.tolist() == [[[[1, 4], [1, 4]], [[0, 0], [0, 0]]]]
    assert torch.equal(still, whole)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_box_cut_along_one_axis_keeps_its_strips_along_it(axis: int) -> None:
    box = torch.tensor([[[2, 8], [2, 8], [2, 8]]])[:, None]
    start = torch.zeros(1, 3, dtype=torch.long)
    start[0, axis] = 4
    moved, whole = Motion.crop(start, (12, 12, 12), (8, 8, 8)).boxes(box, whole_for(box))
    expected = [[2, 8]] * 3
    expected[axis] = [0, 4]
    assert moved[0, 0].tolist() == expected
    assert whole[0, 0].tolist() == [one == axis for one in range(3)]


def test_two_windows_one_after_the_other_are_as_good_as_one() -> None:
    box = torch.tensor([[[3, 9], [1, 4]]])[:, None]
    for first, second in itertools.product(range(4), range(3)):
        once = Motion.crop(torch.tensor([[first, 0]]), (12, 6), (8, 6))
        again = Motion.crop(torch.tensor([[second, 1]]), (8, 6), (6, 5))
        both = again.boxes(*once.boxes(box, whole_for(box)))
        direct = Motion.crop(torch.tensor([[first + second, 1]]), (12, 6), (6, 5)).boxes(box, whole_for(box))
        assert torch.equal(both[0], direct[0])
        assert torch.equal(both[1], direct[1])


def test_answers_are_kept_for_the_same_tensors_and_for_no_others() -> None:
    motion = Motion.crop(torch.tensor([[1, 0]]), (9, 9), (8, 8))
    boxes = torch.tensor([[[[2, 5], [2, 5]]]])
    whole = whole_for(boxes)
    first = motion.boxes(boxes, whole)
    assert all(one is other for one, other in zip(first, motion.boxes(boxes, whole), strict=True))
    assert not bool(motion.boxes(boxes, ~whole)[1].any())
    for start in range(5):  # each made where the last one was, if its memory was given back
        other = torch.tensor([[[[start, start + 3], [0, 4]]]])
        now = motion.boxes(other, whole_for(other))[0]
        assert now.tolist() == [[[[max(start - 1, 0), start + 2], [0, 4]]]]
        del other


def test_motion_is_on_the_devices_of_its_tensors() -> None:
    scale = torch.ones(2, 2, device="meta")
    motion = Motion.resampled(scale, scale, (4, 4))
    assert motion.centre.device.type == motion.window.device.type == motion.content.device.type == "meta"
