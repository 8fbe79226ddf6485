"""Odds: the unit in which a barrier on boxes has no pixels in it, the same for every size of object.

Strips pull at each pixel of a box with Σ 1/(t z), where z is what a strip holds beyond what it must, and what is
outside of boxes is pushed away with t/a, where a is the unit that it is measured in. A network gives a pixel to the
class if pull · P(in the box) > push · P(outside of it): if the odds of being in the box are above t²/(a Σ 1/z).
With a = 1/Σ 1/z these odds are **t²**: at 0.1 the box fills, at 9 only what is surely in it stays, without corners.
This a is the yardstick of a class: that of its median box, with the z of an ellipse that fills it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, MutableMapping
from typing import Final

import torch
from torch import Tensor

from ringfence.weak.constraints.constraint import Constraint, Targets

FILL: Final = math.pi / 4
"""What an ellipse fills of its box."""
NEAR: Final = 0.05
"""What a strip is measured in, as a fraction of its z: at odds of 0.1 it still pulls less, the more it holds."""
YARDSTICK: Final = "yardstick"
"""The target's name: float32 ``[N, K]``."""


def strip_pulls(sides: Tensor, whole: Tensor, width: int) -> Tensor:
    """Σ 1/z over the strips that meet in a pixel, one along each axis that is whole: ``[..., objects]``.

    z = w (FILL · n - 1), where n is the number of pixels of a line (a plane) across the box.

    Args:
        sides: of boxes, in pixels, at least 1: ``[..., objects, axes]``.
        whole: whether there are strips along an axis, likewise.
        width: w; a box that is narrower has one strip.
    """
    across = sides.prod(dim=-1, keepdim=True) / sides
    slack = sides.clamp(max=width) * (FILL * across - 1.0)
    return (whole / slack.clamp(min=0.5)).sum(
        dim=-1
    )  # of an object a pixel wide, a strip holds no more than it must


def yardsticks(targets: Targets, constraints: Iterable[Constraint]) -> Tensor:
    """a = 1/Σ 1/z, the median over all boxes of a class: ``[K]``, NaN where nothing pulls.

    Not each box's own: what is outside would count a hundred times as much in a slice that has but a tip of an
    object, and the network would rather find nothing at all.
    """
    sides = (targets["box"][..., 1] - targets["box"][..., 0]).float()
    there = (sides > 0).all(dim=-1)
    pulls = torch.zeros_like(sides[..., 0])
    for one in constraints:
        pulls = pulls + one.pulls(sides.clamp(min=1.0), targets["whole"])
    own = torch.where(there & (pulls > 0), 1.0 / pulls, torch.nan)
    return own.transpose(0, 1).flatten(1).nanmedian(dim=1).values


def add_yardsticks(
    train: MutableMapping[str, Tensor], others: MutableMapping[str, Tensor], constraints: Iterable[Constraint]
) -> None:
    """Give every sample the yardsticks of the training set."""
    usual = yardsticks(train, tuple(constraints))
    usual = torch.where(usual.isnan(), usual.nanmedian(), usual).nan_to_num(nan=1.0)  # nothing pulls: in pixels
    for rows in (train, others):
        rows[YARDSTICK] = usual.expand(len(rows["box"]), -1).clone()


def yardstick_of(targets: Targets) -> Tensor:
    """The samples' yardsticks ``[N, K]``; refused where nobody measured them."""
    if YARDSTICK not in targets:
        raise ValueError("unit 'odds' is for boxes of a prepared set, whose yardsticks `box_task` adds to samples")
    return targets[YARDSTICK]
