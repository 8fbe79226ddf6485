"""Slanted strips: any line from one side of a tight box to the opposite side meets a connected object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ringfence.numbers import is_number
from ringfence.options import option
from ringfence.residuals import Residual, at_least
from ringfence.segmentation import Region, pairs_of
from ringfence.segmentation import Strips as Measured
from ringfence.weak.constraints.constraint import Targets, TaskFacts, Unit
from ringfence.weak.constraints.strip_width import OfWidth
from ringfence.weak.constraints.strips import strip_scale

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class SlantedStrips(OfWidth):
    """f = w - Σ_{p in strip} s_p <= 0 for every strip of w parallel lines that go from a side to the one opposite.

    A tight box touches its object on every side; so a line from left to right has a part of the object above it
    and a part below, and a connected object crosses it. (Connected by faces: a diagonal step could slip through.)
    Lines that would leave the box by another side are left out. In volumes, lines are planes tilted about an axis.

    In relative units, and for odds, it is measured as ``strips`` are.
    """

    kind: ClassVar[str] = "slanted_strips"

    angles: Sequence[float] = option([-30.0, 30.0], "degrees away from the box's sides, up to 45 either way, not 0")
    width: int | Mapping[str, int] = option(
        5, "lines; every strip of this many holds at least as many pixels. By class: '{liver: 8, cyst: 2}'"
    )
    widths: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        angles = tuple(self.angles) if isinstance(self.angles, Sequence) else ()
        if not angles or not all(is_number(angle) and 0.0 < abs(angle) <= 45.0 for angle in angles):
            raise ValueError(f"angles are degrees from -45 to 45, without 0 (that is strips), got {self.angles}")
        object.__setattr__(self, "angles", angles)

    def ready(self, facts: TaskFacts) -> Self:
        """Refused where there is one axis, and no angle."""
        if facts.axes < 2:
            raise ValueError("slanted strips need two axes of space, or three")
        return super().ready(facts)

    def pulls(self, sides: Tensor, whole: Tensor) -> Tensor:
        """For each angle, about what strips along the axes pull with."""
        return len(self.angles) * (sides.shape[-1] - 1) * self.straight_pulls(sides, whole)

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, objects, angles·pairs of axes, strips]``."""
        boxes, margin = targets["box"], targets["margin"]

        def at_all_angles(width: int) -> Measured:
            each = [region.slanted_strips(boxes, angle, width, margin) for angle in self.angles]
            return Measured(*(torch.cat(parts, dim=-2) for parts in zip(*each, strict=True)))

        sums, widths, mask = self.measured(at_all_angles)
        crossed = [first for first, _ in pairs_of(region.axes)] * len(self.angles)
        whole = torch.stack([targets["whole"][..., axis] for axis in crossed], dim=-1)
        scale = strip_scale(targets, widths, unit)
        return at_least(sums, widths, mask=mask & whole.unsqueeze(-1), scale=scale)
