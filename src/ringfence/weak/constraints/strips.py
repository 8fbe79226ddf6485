"""Strips: every line across a tight box meets the object, parallel to the box's sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from ringfence.options import option
from ringfence.residuals import Residual, at_least
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import NEAR, yardstick_of
from ringfence.weak.constraints.strip_width import OfWidth


@dataclass(frozen=True)
class Strips(OfWidth):
    """f = w - Σ_{p in strip} s_p <= 0 for every strip of w lines across a box: the paper's tightness prior.

    w is the same for all classes, or each has its own. In relative units a strip is measured in its width; for odds
    in a twentieth of what it usually holds.
    """

    kind: ClassVar[str] = "strips"

    width: int | Mapping[str, int] = option(
        5, "pixels; every strip of this width across a box holds at least as many. By class: '{liver: 8, cyst: 2}'"
    )
    widths: tuple[int, ...] = field(default=(), repr=False)

    def pulls(self, sides: Tensor, whole: Tensor) -> Tensor:
        """One strip along each axis."""
        return self.straight_pulls(sides, whole)

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, objects, axes, strips]``; there are none along an axis where the box was cut along another."""
        strips = self.measured(lambda width: region.strips(targets["box"], width, targets["margin"]))
        there = strips.mask & targets["whole"].unsqueeze(-1)
        scale = strip_scale(targets, strips.widths, unit)
        return at_least(strips.sums, strips.widths, mask=there, scale=scale)


def strip_scale(targets: Targets, widths: Tensor, unit: Unit) -> Tensor | float:
    """What strips ``[N, K, objects, directions, strips]`` are measured in."""
    if unit == "odds":  # two strips meet in a pixel, and a is half of what one holds
        return 2.0 * NEAR * yardstick_of(targets)[:, :, None, None, None]
    return widths if unit == "relative" else 1.0
