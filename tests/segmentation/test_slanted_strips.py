"""Slanted strips against loops over lines and pixels; and that every connected object obeys its tight box."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from connected_objects import grown, hard_logits, named_shapes, percolated, tight_box, walked
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.segmentation import Region, pairs_of

ANGLES = (45.0, -45.0, 1.0, -10.0, 30.0, -37.0)


def lines_by_loops(
    s: np.ndarray, box: list[list[int]], pair: tuple[int, int], angle: float, margin: list[int]
) -> list[float]:
    """The mass of every whole line, in order: each line's pixels are looked at one by one."""
    (a, b), slope = pair, math.tan(math.radians(angle))
    others = [range(start, stop) for axis, (start, stop) in enumerate(box) if axis not in pair]
    low, high = box[a][0] + margin[a], box[a][1] - margin[a]
    masses = []
    for line in range(-2 * max(s.shape), 3 * max(s.shape)):
        pixels = []
        for x_b in range(*box[b]):
            x_a = line + math.floor(slope * (x_b - box[b][0]) + 0.5)
            for other in itertools.product(*others):
                pixel = list(other)
                for axis, place in sorted([(a, x_a), (b, x_b)]):
                    pixel.insert(axis, place)
                pixels.append(tuple(pixel))
        if pixels and all(low <= pixel[a] < high for pixel in pixels):
            masses.append(sum(s[pixel] for pixel in pixels))
    return masses


def test_pairs() -> None:
    assert pairs_of(1) == ()
    assert pairs_of(2) == ((0, 1), (1, 0))
    assert pairs_of(3) == ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))


@pytest.mark.parametrize("space", [(9, 7), (6, 13), (5, 4, 6)], ids=str)
@given(data=st.data(), seed=st.integers(0, 2**31), width=st.integers(1, 4), halves=st.integers(1, 90))
@settings(max_examples=20, deadline=None)
def test_against_loops_over_lines_and_pixels(
    space: tuple[int, ...], data: st.DataObject, seed: int, width: int, halves: int
) -> None:
    angle = data.draw(st.sampled_from([-1, 1])) * halves / 2
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, length + 1, (1, 2, 3, 2), generator=generator) for length in space]
    boxes = torch.stack([end.sort(dim=-1).values for end in ends], dim=3)
    boxes[0, 0, 0] = torch.tensor([[0, length] for length in space])  # up to the border
    boxes[0, 1, 2] = 0
    margin = torch.randint(0, 2, (1, len(space)), generator=generator)
    region = Region(torch.randn(1, 3, *space, generator=generator, dtype=torch.float64))
    strips = region.slanted_strips(boxes, angle, width, margin)
    most = max(-(-length // width) for length in space)
    assert strips.sums.shape == strips.mask.shape == (1, 2, 3, len(pairs_of(len(space))), most)
    for class_, number in itertools.product(range(2), range(3)):
        s, box = region.probabilities[0, class_].numpy(), boxes[0, class_, number].tolist()
        for place, pair in enumerate(pairs_of(len(space))):
            masses = lines_by_loops(s, box, pair, angle, margin[0].tolist())
            groups = [masses[first : first + width] for first in range(0, len(masses), width)]
            sums, widths, mask = (one[0, class_, number, place] for one in strips)
            assert mask.tolist() == [k < len(groups) for k in range(most)]
            assert widths.tolist() == [len(group) for group in groups] + [0.0] * (most - len(groups))
            assert sums[mask].tolist() == pytest.approx([sum(group) for group in groups], rel=1e-11, abs=1e-12)
            assert (sums[~mask] == 0.0).all()
    alone = region.slanted_strips(boxes[:, :, 1], angle, width, margin)
    for one, several in zip(alone, strips, strict=True):
        torch.testing.assert_close(one, several[:, :, 1], rtol=1e-12, atol=1e-12)


def check_obeys(mask: np.ndarray) -> int:
    """Every strip of the mask in its tight box, and in looser ones, holds its width; how many strips there were."""
    assert scipy.ndimage.label(mask)[1] == 1
    region, tight, seen = Region(hard_logits(mask)), tight_box(mask), 0
    for margin in ([0] * mask.ndim, [1, 3, 2][: mask.ndim]):
        widened = tight + torch.tensor([[-one, one] for one in margin])
        for axis, length in enumerate(mask.shape):
            widened[..., axis, :].clamp_(0, length)
        for width in (1, 4):
            every = [region.strips(widened, width, torch.tensor([margin]))]
            every += [region.slanted_strips(widened, angle, width, torch.tensor([margin])) for angle in ANGLES]
            for strips in every:
                assert (strips.sums >= strips.widths)[strips.mask].all()
                seen += int(strips.mask.sum())
    return seen


@pytest.mark.parametrize("name", named_shapes())
def test_named_shapes_obey_their_boxes(name: str) -> None:
    mask = named_shapes()[name]
    assert check_obeys(mask) > 0  # where the object is at the border
    assert check_obeys(np.pad(mask, 3)) > 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("space", [(16, 21), (8, 9, 10)], ids=str)
def test_random_objects_obey_their_boxes(space: tuple[int, ...], seed: int) -> None:
    generator = np.random.default_rng(seed)
    for mask in (grown(generator, space, 60), walked(generator, space, 120), percolated(generator, space)):
        assert check_obeys(mask) > 0


def test_the_bound_is_sharp() -> None:
    """A staircase of pixels, one wide and connected through faces, has one pixel on each line: equality."""
    mask = np.zeros((20, 4), dtype=bool)
    for column in range(4):
        mask[5 * column : 5 * column + 5, column] = True
        mask[5 * column, max(column - 1, 0)] = True
    strips = Region(hard_logits(mask)).slanted_strips(tight_box(mask), -45.0, width=1)
    downwards = strips.mask[0, 0, 0]
    assert downwards.sum() == 17
    assert torch.equal(strips.sums[0, 0, 0][downwards], strips.widths[0, 0, 0][downwards])


def test_an_object_connected_through_corners_slips_between_the_lines() -> None:
    """Why faces: every other diagonal misses a diagonal row of pixels."""
    mask = np.eye(8, dtype=bool)
    assert scipy.ndimage.label(mask, np.ones((3, 3)))[1] == 1
    region, box = Region(hard_logits(mask)), tight_box(mask)
    strips = region.slanted_strips(box, -45.0, width=1)
    assert strips.mask[0, 0].sum() == 2
    assert (strips.sums < strips.widths)[strips.mask].all()
    straight = region.strips(box, width=1)
    assert (straight.sums >= straight.widths)[straight.mask].all()


@pytest.mark.parametrize("space", [(5, 4), (3, 4, 3)], ids=str)
@pytest.mark.parametrize("objects", [None, 2])
def test_gradients(space: tuple[int, ...], objects: int | None) -> None:
    logits = torch.randn(1, 2, *space, dtype=torch.float64, requires_grad=True)
    box = torch.tensor([[0, length] for length in space])
    boxes = box[None, None] if objects is None else torch.stack([box, box.clamp(max=3)])[None, None]
    assert torch.autograd.gradcheck(lambda x: Region(x).slanted_strips(boxes, 20.0, 2).sums, logits)


def test_a_box_empty_along_one_axis_has_no_lines() -> None:
    region = Region(torch.zeros(1, 1, 6, 6, 6))
    for axis in range(3):
        boxes = torch.tensor([[[[0, 6], [0, 6], [0, 6]]]])
        boxes[..., axis, :] = 2
        strips = region.slanted_strips(boxes, 10.0)
        assert not strips.mask.any()
        assert not strips.sums.any()


@pytest.mark.parametrize("angle", [0.0, 45.1, -46, math.nan, True, "30"])
def test_bad_angles(angle: object) -> None:
    with pytest.raises(ValueError, match=rf"0 < \|angle\| <= 45, got {angle!r}"):
        Region(torch.zeros(1, 1, 4, 4)).slanted_strips(torch.tensor([[[[0, 2], [0, 2]]]]), angle)  # type: ignore[arg-type]


def test_bad_space_and_width() -> None:
    with pytest.raises(ValueError, match=r"two or three axes of space, got 1, of shape \[4\]"):
        Region(torch.zeros(1, 1, 4)).slanted_strips(torch.tensor([[[[0, 2]]]]), 10.0)
    with pytest.raises(ValueError, match="width must be a whole number"):
        Region(torch.zeros(1, 1, 4, 4)).slanted_strips(torch.tensor([[[[0, 2], [0, 2]]]]), 10.0, width=0)
