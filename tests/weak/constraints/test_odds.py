"""In the unit of odds, t² are the odds of being in the box at which a pixel becomes foreground: at every size."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringfence as rf
from ringfence.segmentation import Region
from ringfence.weak.constraints.absent import Absent
from ringfence.weak.constraints.box_size import BoxSize
from ringfence.weak.constraints.constraint import Constraint, Unit
from ringfence.weak.constraints.odds import FILL, YARDSTICK, add_yardsticks, strip_pulls, yardstick_of
from ringfence.weak.constraints.outside import Outside
from ringfence.weak.constraints.slanted_strips import SlantedStrips
from ringfence.weak.constraints.strips import Strips
from ringfence.weak.training.methods import LogBarrier, Setup


def samples(boxes: list[list[list[int]]], whole: bool = True) -> dict[str, torch.Tensor]:
    """One class, an object a sample; ``[]`` is a sample without one."""
    axes = len(next(one for one in boxes if one))
    box = torch.tensor([one or [[0, 0]] * axes for one in boxes])[:, None, None]
    return {
        "box": box,
        "whole": torch.full(box.shape[:-1], whole),
        "margin": torch.zeros(len(box), axes, dtype=torch.int64),
    }


@settings(deadline=None)
@given(
    lines=st.integers(2, 6),
    width=st.integers(1, 4),
    columns=st.integers(2, 6),
    odds=st.floats(0.1, 9.0),
)
def test_pull_and_push_balance_at_the_odds(lines: int, width: int, columns: int, odds: float) -> None:
    """A box that is filled as an ellipse fills it, evenly: d loss / d s inside and outside, by autograd."""
    height, breadth = lines * width, columns * width
    if FILL * min(height, breadth) < 1.6:
        return  # strips that hold no more than they must
    targets = samples([[[2, 2 + height], [1, 1 + breadth]]])
    constraints: dict[str, Constraint] = {"strips": Strips(width), "outside": Outside()}
    add_yardsticks(targets, samples([[[0, 1], [0, 1]]]), constraints.values())
    s = torch.full((1, 1, height + 5, breadth + 4), 1e-3, dtype=torch.float64)
    s[..., 2 : 2 + height, 1 : 1 + breadth] = FILL
    s.requires_grad_(True)
    logits = torch.cat([torch.zeros_like(s), (s / (1 - s)).log()], dim=1)
    region = Region(logits)
    fence = rf.LogBarrier(math.sqrt(odds), 1.0)
    loss = fence(**{name: one.residual(region, targets, "odds") for name, one in constraints.items()})
    (slope,) = torch.autograd.grad(loss, s)
    inside, outside = slope[0, 0, 2 : 2 + height, 1 : 1 + breadth], slope[0, 0, 0]
    assert torch.allclose(outside, outside[0].expand_as(outside))
    assert torch.allclose(outside[0] / -inside, torch.tensor(odds, dtype=torch.float64), rtol=1e-4)


@pytest.mark.parametrize("odds", [0.1, 0.5, 0.8, 9.0])
def test_whether_there_is_an_object_is_decided_at_the_odds_that_are_allowed(odds: float) -> None:
    """An image with a box, filled as an ellipse fills it, and one without: d loss / d s in both, by autograd."""
    targets = samples([[[2, 14], [1, 11]], []])
    constraints: dict[str, Constraint] = {"strips": Strips(2), "outside": Outside(absent=False), "absent": Absent()}
    add_yardsticks(targets, dict(targets), constraints.values())
    s = torch.full((2, 1, 16, 12), 1e-3, dtype=torch.float64)
    s[0, 0, 2:14, 1:11] = FILL
    s.requires_grad_(True)
    region = Region(torch.cat([torch.zeros_like(s), (s / (1 - s)).log()], dim=1))
    fence = LogBarrier(t=math.sqrt(odds), mu=1.0, most_odds={"absent": 0.5}).make(Setup(2, 2, tuple(constraints)))
    loss = fence(**{name: one.residual(region, targets, "odds") for name, one in constraints.items()})
    (slope,) = torch.autograd.grad(loss, s)
    pull, push, empty = -slope[0, 0, 5, 5], slope[0, 0, 0, 0], slope[1, 0]
    assert (push / pull).item() == pytest.approx(odds, rel=1e-4)
    torch.testing.assert_close(empty / pull, torch.full_like(empty, min(odds, 0.5)), rtol=1e-4, atol=0.0)


def test_of_what_is_outside_absent_has_the_images_without_a_box() -> None:
    """Together they are what ``outside`` is alone, in every unit."""
    targets = samples([[[2, 6], [1, 7]], [], [[0, 0], [3, 3]]])
    targets[YARDSTICK] = torch.tensor([[3.0]] * 3, dtype=torch.float64)
    logits = torch.randn(3, 2, 12, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for unit in get_args(Unit):
        whole, some, none = (
            one.residual(Region(logits), targets, unit) for one in (Outside(), Outside(absent=False), Absent())
        )
        assert some.present.flatten().tolist() == [True, False, False]
        assert none.present.flatten().tolist() == [False, True, True]
        torch.testing.assert_close(some.filled(0.0) + none.filled(0.0), whole.f)


def test_yardsticks_of_boxes_by_hand() -> None:
    """An ellipse in 10 × 20, strips of 2: z = 2 (π/4 · 20 - 1) across rows, 2 (π/4 · 10 - 1) across columns."""
    sides, whole = torch.tensor([[10.0, 20.0]]), torch.ones(1, 2, dtype=torch.bool)
    across_rows, across_columns = 2 * (math.pi * 5 - 1), 2 * (math.pi * 2.5 - 1)
    assert strip_pulls(sides, whole, 2).item() == pytest.approx(1 / across_rows + 1 / across_columns)
    whole[0, 0] = False
    assert strip_pulls(sides, whole, 2).item() == pytest.approx(1 / across_columns)
    assert Strips(2).pulls(sides, whole) == strip_pulls(sides, whole, 2)
    assert SlantedStrips([-30.0, 30.0], 2).pulls(sides, whole).item() == pytest.approx(2 / across_columns)


def test_flat_boxes_of_volumes_have_the_yardstick_of_their_slices() -> None:
    plane = samples([[[0, 10], [0, 20]]])
    volume = samples([[[3, 4], [0, 10], [0, 20]]])
    volume["whole"][..., 0] = False
    made: list[Constraint] = [Strips(2)]
    add_yardsticks(plane, dict(plane), made)
    add_yardsticks(volume, dict(volume), made)
    assert torch.equal(plane[YARDSTICK], volume[YARDSTICK])


def test_all_samples_have_the_yardstick_of_the_median_box() -> None:
    """The tip of an object, two pixels wide, does not count a hundred times as much as the others."""
    boxes: list[list[list[int]]] = [[[0, 2], [0, 2]], [[0, 12], [0, 12]], [], [[0, 16], [0, 16]]]
    train, others = samples(boxes), samples([[], [[0, 8], [0, 8]]])
    add_yardsticks(train, others, [Strips(2)])
    usual = 1 / strip_pulls(torch.tensor([12.0, 12.0]), torch.ones(2, dtype=torch.bool), 2).item()
    assert train[YARDSTICK][:, 0].tolist() == pytest.approx([usual] * 4)
    assert others[YARDSTICK][:, 0].tolist() == pytest.approx([usual] * 2)


def test_without_strips_a_yardstick_is_a_pixel() -> None:
    train = samples([[[0, 8], [0, 8]]], whole=False)
    add_yardsticks(train, dict(train), [Strips(2), Outside()])
    assert train[YARDSTICK].item() == 1.0
    with pytest.raises(ValueError, match="unit 'odds' is for boxes"):
        yardstick_of(samples([[[0, 8], [0, 8]]]))


def test_box_sizes_push_together_as_what_is_outside_does() -> None:
    """However many boxes a sample has: d/ds of the residuals' sum is 1/a at a pixel that is in no box."""
    targets = samples([[[0, 4], [0, 5]], [[0, 8], [0, 10]]])
    targets["box"] = torch.cat([targets["box"], torch.zeros_like(targets["box"])], dim=2)
    targets["box"][1, 0, 1] = torch.tensor([[9, 12], [0, 12]])
    targets[YARDSTICK] = torch.tensor([[3.0], [3.0]], dtype=torch.float64)
    region = Region(torch.zeros(2, 2, 12, 12, dtype=torch.float64))  # s = 1/2 everywhere: 72 pixels
    found = BoxSize().residual(region, targets, "odds").f
    assert found[0, 0, 0].item() == pytest.approx((72 - 20) / 3)
    assert found[1, 0].tolist() == pytest.approx([(72 - 18 - 80) / 6, (72 - 40 - 36) / 6])
