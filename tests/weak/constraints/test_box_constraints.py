"""Strips, outside, box size and slanted strips: against plain loops over pixels, in 64-bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from true_masks import batch_of, found, ready

from ringfence.segmentation import Region
from ringfence.weak.constraints.box_size import BoxSize, overlapping
from ringfence.weak.constraints.boxes import OnBoxes
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.constraints.outside import Outside
from ringfence.weak.constraints.slanted_strips import SlantedStrips
from ringfence.weak.constraints.strips import Strips

BOXES = torch.tensor(
    [
        [[[2, 7], [3, 9]], [[5, 11], [8, 14]], [[0, 3], [11, 12]]],  # two overlap; one is a column of three pixels
        [[[0, 12], [0, 15]], [[4, 6], [4, 6]], [[0, 0], [0, 0]]],  # one within the other
        [[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]],
    ]
)[:, None]


def targets(boxes: Tensor = BOXES, margin: int = 0) -> dict[str, Tensor]:
    whole = torch.ones(boxes.shape[:-1], dtype=torch.bool)
    known = {"box": boxes, "whole": whole, "uncut": whole.flatten(2).all(dim=-1)}
    return known | {"margin": torch.full((len(boxes), boxes.shape[-2]), margin)}


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(3, 2, 12, 15)


@pytest.fixture
def maps(logits: Tensor) -> np.ndarray:
    return logits.double().softmax(dim=1)[:, 1].numpy()


def inside(box: list[list[int]], shape: tuple[int, ...] = (12, 15)) -> np.ndarray:
    mask = np.zeros(shape, bool)
    mask[tuple(slice(start, stop) for start, stop in box)] = True
    return mask


@pytest.mark.parametrize("width", [1, 4, 20])
@pytest.mark.parametrize("margin", [0, 1])
def test_strips_are_sums_of_lines(logits: Tensor, maps: np.ndarray, width: int, margin: int) -> None:
    residual = Strips(width).residual(Region(logits), targets(margin=margin), "pixels")
    relative = Strips(width).residual(Region(logits), targets(margin=margin), "relative")
    for row in range(3):
        for number, box in enumerate(BOXES[row, 0].tolist()):
            within = maps[row] * inside(box)
            for axis, (start, stop) in enumerate(box):
                first, last = start + margin, stop - margin
                starts = range(first, last, width) if box[0][1] else []
                widths = [min(width, last - one) for one in starts]
                expected = [
                    wide - within.take(range(one, one + wide), axis=axis).sum()
                    for one, wide in zip(starts, widths, strict=True)
                ]
                here = residual.f[row, 0, number, axis]
                assert here[: len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
                assert not bool((here[len(expected) :] > -math.inf).any())
                scaled = [one / wide for one, wide in zip(expected, widths, strict=True)]
                assert relative.f[row, 0, number, axis, : len(scaled)].tolist() == pytest.approx(scaled, abs=1e-4)


def test_strips_are_left_out_along_axes_that_are_not_whole(logits: Tensor) -> None:
    known = targets()
    known["whole"][0, 0, 0, 1] = False
    there = Strips(2).residual(Region(logits), known, "pixels").present
    assert there[0, 0, 0].any(dim=-1).tolist() == [True, False]
    assert there[0, 0, 1].any(dim=-1).tolist() == [True, True]


def test_outside_is_what_no_box_covers(logits: Tensor, maps: np.ndarray) -> None:
    plain, relative = (Outside().residual(Region(logits), targets(), unit) for unit in ("pixels", "relative"))
    for row in range(3):
        covered = np.zeros((12, 15), bool)
        for box in BOXES[row, 0].tolist():
            covered |= inside(box)
        expected = maps[row][~covered].sum()
        assert plain.f[row].item() == pytest.approx(expected, abs=1e-4)
        pixels = sum(inside(box).sum() for box in BOXES[row, 0].tolist()) or 12 * 15
        assert relative.f[row].item() == pytest.approx(expected / pixels, abs=1e-6)


@pytest.mark.parametrize(("low", "high"), [(None, 1.0), (0.3, 1.0), (None, 0.7), (0.2, 0.7), (None, 1.2)])
def test_box_size_is_of_what_is_in_no_other_box(
    logits: Tensor, maps: np.ndarray, low: float | None, high: float
) -> None:
    asked = BoxSize(low, high)
    plain, relative = (asked.residual(Region(logits), targets(), unit) for unit in ("pixels", "relative"))
    assert plain.two_sided == (low is not None)
    crowded = {(0, 0), (0, 1), (1, 0), (1, 1)}
    for row in range(3):
        boxes = [inside(box) for box in BOXES[row, 0].tolist()]
        pixels = sum(box.sum() for box in boxes)
        for number, box in enumerate(boxes):
            here = plain.f[row, 0, number]
            if not box.any() or (high < 1.0 and (row, number) in crowded):
                assert not bool((here > -math.inf).any())
                continue
            others = np.any([other for other in boxes if other is not box], axis=0)
            size = maps[row][box | ~others].sum()
            expected = [size - high * box.sum()]
            if low is not None:
                expected = [low * box.sum() - size, *expected]
            assert here.flatten().tolist() == pytest.approx(expected, abs=1e-3)
            scaled = [one / pixels for one in expected]
            assert relative.f[row, 0, number].flatten().tolist() == pytest.approx(scaled, abs=1e-5)


def test_a_box_that_was_cut_is_only_no_smaller_than_what_is_seen_of_it(logits: Tensor) -> None:
    known = targets()
    known["whole"][0, 0, 2, 0] = False
    present = {
        (low, high): BoxSize(low, high).residual(Region(logits), known, "pixels").present[0, 0, 2].any().item()
        for low, high in ((None, 1.0), (0.1, 1.0), (None, 0.9))
    }
    assert present == {(None, 1.0): True, (0.1, 1.0): False, (None, 0.9): False}


def test_overlapping_boxes_share_a_pixel() -> None:
    random = np.random.default_rng(0)
    ends = np.sort(random.integers(0, 7, (30, 2, 4, 3, 2)), axis=-1)
    found_ = overlapping(torch.from_numpy(ends))
    for image in range(30):
        for class_ in range(2):
            boxes = [inside(box, (7, 7, 7)) for box in ends[image, class_].tolist()]
            expected = [
                any((one & other).any() for n, other in enumerate(boxes) if n != number)
                for number, one in enumerate(boxes)
            ]
            assert found_[image, class_].tolist() == expected
    assert 0.05 < float(found_.float().mean()) < 0.95


@pytest.mark.parametrize("angles", [[30.0], [-45.0, 20.0]])
@pytest.mark.parametrize("width", [1, 3])
def test_slanted_strips_are_sums_over_shifted_pixels(
    logits: Tensor, maps: np.ndarray, angles: list[float], width: int
) -> None:
    """Line j of the pair (a, b) has the pixels x_a = j + round(tan x_b), x_b from the box's first."""
    plain, relative = (
        SlantedStrips(angles, width).residual(Region(logits), targets(), unit) for unit in ("pixels", "relative")
    )
    pairs = [(angle, a, b) for angle in angles for a, b in ((0, 1), (1, 0))]
    counted = 0
    for row in range(3):
        for number, box in enumerate(BOXES[row, 0].tolist()):
            for place, (angle, a, b) in enumerate(pairs):
                drift = [
                    math.floor(math.tan(math.radians(angle)) * step + 0.5) for step in range(box[b][1] - box[b][0])
                ]
                lines = []
                for j in range(-30, 45):
                    ends = [j + one for one in drift]
                    if ends and min(ends) >= box[a][0] and max(ends) < box[a][1]:
                        image = maps[row] if a == 0 else maps[row].T
                        lines.append(sum(image[one, box[b][0] + step] for step, one in enumerate(ends)))
                groups = [lines[first : first + width] for first in range(0, len(lines), width)]
                expected = [len(group) - sum(group) for group in groups]
                here = plain.f[row, 0, number, place]
                assert here[: len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
                assert not bool((here[len(expected) :] > -math.inf).any())
                scaled = [one / len(group) for one, group in zip(expected, groups, strict=True)]
                assert relative.f[row, 0, number, place, : len(scaled)].tolist() == pytest.approx(scaled, abs=1e-4)
                counted += len(expected)
    assert counted > 10


def test_slanted_strips_are_left_out_across_axes_that_are_not_whole() -> None:
    """In volumes, of the pairs across axis 1: the third and the fourth."""
    known = targets(torch.tensor([[1, 11], [1, 11], [1, 11]])[None, None, None])
    known["whole"][..., 1] = False
    there = SlantedStrips([10.0, -10.0], 2).residual(Region(torch.randn(1, 2, 12, 12, 12)), known, "pixels").present
    assert there[0, 0, 0].any(dim=-1).tolist() == 2 * [True, True, False, False, True, True]


def test_slanted_strips_need_an_angle() -> None:
    with pytest.raises(ValueError, match="slanted strips need two axes of space, or three"):
        SlantedStrips().ready(TaskFacts(("a",), 1))
    assert SlantedStrips([20]).angles == (20,)
    assert hash(SlantedStrips()) == hash(SlantedStrips())


def test_slanted_strips_see_what_straight_ones_do_not() -> None:
    """Two squares, corner to corner: they are in every row and column, and lines pass between them."""
    wrong = torch.zeros(1, 1, 20, 20, dtype=torch.bool)
    wrong[0, 0, :10, :10] = wrong[0, 0, 10:, 10:] = True
    known = targets(torch.tensor([[0, 20], [0, 20]])[None, None, None])
    assert float(Strips(1).residual(found(wrong), known, "pixels").violation.max()) <= 1e-3
    assert float(SlantedStrips([30.0], 1).residual(found(wrong), known, "pixels").violation.max()) <= 1e-3
    assert float(SlantedStrips([-30.0], 1).residual(found(wrong), known, "pixels").violation.max()) == 1.0


def test_a_loose_box_moves_with_a_loose_margin() -> None:
    known = targets(margin=2)
    motion = Motion.resampled(torch.tensor([[1.1, -1.0]] * 3), torch.zeros(3, 2), (12, 15))
    assert OnBoxes.moved(Strips(), known, motion)["margin"].tolist() == [[3, 2]] * 3


@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("margin", [0, 2, 3])
def test_strips_of_a_loose_box_go_through_all_of_it(border: bool, margin: int) -> None:
    """A C: the middle of its right side is empty, and a strip that were cut there would meet nothing."""
    mask = torch.zeros(1, 1, 24, 20, dtype=torch.bool)
    top = 0 if border else 4
    mask[0, 0, top : top + 14, 3:15] = True
    mask[0, 0, top + 2 : top + 12, 5:15] = False
    constraints = ready({"strips": {}, "outside": {}, "box_size": {}, "slanted_strips": {}}, 2, ["a"])
    batch = batch_of(mask, constraints, margin=margin)
    for name, one in constraints.items():
        residual = one.residual(found(mask), batch, "pixels")
        assert float(residual.violation.max()) <= 1e-3, name
        assert bool(residual.present.any())


def test_a_corner_is_no_connection() -> None:
    """Two squares that touch by a corner are two objects, each with its box: slanted strips would pass between them."""
    mask = torch.zeros(1, 1, 12, 12, dtype=torch.bool)
    mask[0, 0, :6, :6] = mask[0, 0, 6:, 6:] = True
    constraints = ready({"slanted_strips": {"angles": [45.0, -45.0], "width": 1}}, 2, ["a"])
    batch = batch_of(mask, constraints)
    assert batch["box"].shape[2] == ndimage.label(mask[0, 0].numpy())[1] == 2
    (slanted,) = constraints.values()
    assert float(slanted.residual(found(mask), batch, "pixels").violation.max()) <= 1e-3
