"""Strips: every line across a tight box meets the object, parallel to the box's sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import torch
from torch import Tensor

from ringfence.numbers import true_or_false
from ringfence.options import option
from ringfence.residuals import Residual, at_least
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import NEAR, yardstick_of
from ringfence.weak.constraints.strip_width import OfWidth

TINY: Final = 1e-12
"""Of a strip's width: a class that is missed as surely as that cannot be found any more."""


@dataclass(frozen=True)
class Strips(OfWidth):
    """f = w - S <= 0, S = Σ_{p in strip} s_p, for every strip of w lines across a box: the paper's tightness prior.

    A softmax that is sure that a class is not there is flat, and w - S hardly pulls: a class may never be found.
    With ``steep``, strips that hold too little have f = w log(w / S) instead, whose pull does not vanish: it holds
    for the same S, and begins with the same slope.

    w is the same for all classes, or each has its own. In relative units a strip is measured in its width; for odds
    in a twentieth of what it usually holds.
    """

    kind: ClassVar[str] = "strips"

    width: int | Mapping[str, int] = option(
        5, "pixels; every strip of this width across a box holds at least as many. By class: '{liver: 8, cyst: 2}'"
    )
    steep: bool = option(False, "keep a strong gradient on strips in which the class is almost absent")
    widths: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        true_or_false("steep", self.steep)

    def pulls(self, sides: Tensor, whole: Tensor) -> Tensor:
        """One strip along each axis."""
        return self.straight_pulls(sides, whole)

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, objects, axes, strips]``; there are none along an axis where the box was cut along another."""
        strips = self.measured(lambda width: region.strips(targets["box"], width, targets["margin"]))
        there = strips.mask & targets["whole"].unsqueeze(-1)
        scale = strip_scale(targets, strips.widths, unit)
        sums = steepened(strips.sums, strips.widths) if self.steep else strips.sums
        return at_least(sums, strips.widths, mask=there, scale=scale)


def steepened(sums: Tensor, widths: Tensor) -> Tensor:
    """S, or w (1 + log(S / w)) where S is less than w; where there is no strip, w is 0."""
    held = (sums / widths.clamp(min=1.0)).clamp(min=TINY, max=1.0)
    return torch.where(sums < widths, widths * (1.0 + held.log()), sums)


def strip_scale(targets: Targets, widths: Tensor, unit: Unit) -> Tensor | float:
    """What strips ``[N, K, objects, directions, strips]`` are measured in."""
    if unit == "odds":  # two strips meet in a pixel, and a is half of what one holds
        return 2.0 * NEAR * yardstick_of(targets)[:, :, None, None, None]
    return widths if unit == "relative" else 1.0
