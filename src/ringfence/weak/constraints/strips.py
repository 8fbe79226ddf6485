"""Strips: every line across a tight box meets the object, parallel to the box's sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ringfence.numbers import whole_number
from ringfence.options import option
from ringfence.residuals import Residual, at_least
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import OnBoxes
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import NEAR, strip_pulls, yardstick_of


@dataclass(frozen=True)
class Strips(OnBoxes):
    """f = w - Σ_{p in strip} s_p <= 0 for every strip of w lines across a box: the paper's tightness prior.

    In relative units a strip is measured in its width; for odds in a twentieth of what it usually holds.
    """

    kind: ClassVar[str] = "strips"

    width: int = option(5, "pixels; every strip of this width across a box holds at least as many")

    def __post_init__(self) -> None:
        whole_number("width", self.width)

    def pulls(self, sides: Tensor, whole: Tensor) -> Tensor:
        """One strip along each axis."""
        return strip_pulls(sides, whole, self.width)

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, objects, axes, strips]``; there are none along an axis where the box was cut along another."""
        strips = region.strips(targets["box"], self.width, targets["margin"])
        there = strips.mask & targets["whole"].unsqueeze(-1)
        scale = strip_scale(targets, strips.widths, unit)
        return at_least(strips.sums, strips.widths, mask=there, scale=scale)


def strip_scale(targets: Targets, widths: Tensor, unit: Unit) -> Tensor | float:
    """What strips ``[N, K, objects, directions, strips]`` are measured in."""
    if unit == "odds":  # two strips meet in a pixel, and a is half of what one holds
        return 2.0 * NEAR * yardstick_of(targets)[:, :, None, None, None]
    return widths if unit == "relative" else 1.0
