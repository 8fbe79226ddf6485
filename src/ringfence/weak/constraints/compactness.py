"""Compactness: a boundary is not much longer than that of a disc of the same size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ringfence.numbers import positive_number
from ringfence.options import option
from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import OnBoxes, areas, box_targets, uncut
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Targets, TaskFacts, Unit

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Compactness(OnBoxes):
    """f = L - 2 √(π ratio n (V + 1)) <= 0: L² is at most ``ratio`` times that of a disc, 4πV, of n objects n times.

    L is the length of the boundary, measured in four directions (Crofton), V the size and n the number of boxes: n
    objects, each with L_i² <= ratio·4πV_i, have (Σ L_i)² <= n·ratio·4π Σ V_i. A pixel is added to V, so that the
    slope stays finite when there is nothing. In volumes, S <= (36π ratio n)^(1/3) (V + 1)^(2/3), as balls have it.
    The boundary is that of the whole object: nothing is asked where one was cut, by a window or the image's border.

    L is in pixels (of a volume: faces); relative to a disc's (a ball's) of the same size as the boxes otherwise.
    """

    kind: ClassVar[str] = "compactness"

    ratio: float = option(
        1.5, "L² over that of a disc of the same size, at most; a disc has 1, an ellipse of 2:1 has 1.2, of 3:1 1.5"
    )

    def __post_init__(self) -> None:
        if positive_number("ratio", self.ratio) < 1.0:
            raise ValueError(f"ratio must be at least 1, which a disc has; got {self.ratio}")

    def ready(self, facts: TaskFacts) -> Self:
        """Refused on a line, where there is no boundary to measure."""
        if facts.axes not in (2, 3):
            raise ValueError("compactness is of areas or volumes: it needs two axes of space, or three")
        return self

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """``bordering``, bool ``[N, K]``: a box of the class ends where the image does; beside the boxes."""
        targets = box_targets(case)
        box, space = targets["box"], torch.tensor(case.image.shape[2:])
        ends = ((box[..., 0] == 0) | (box[..., 1] == space)) & (box[..., 1] > box[..., 0])
        return targets | {"bordering": ends.flatten(2).any(dim=-1)}

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``; there is none where the class has no box."""
        area = areas(targets["box"], region)
        objects = (area > 0).sum(dim=-1)
        bound = self._length(region.size, objects, region.axes)
        scale = self._length(area.sum(dim=-1), objects, region.axes).clamp(min=1.0) if unit == "relative" else 1.0
        known = uncut(targets) & (objects > 0) & ~targets["bordering"]
        return at_most(region.boundary, bound, mask=known, scale=scale)

    def _length(self, size: Tensor, objects: Tensor, axes: int) -> Tensor:
        """The longest boundary that is allowed around ``size`` pixels in so many objects."""
        many = self.ratio * objects.clamp(min=1).to(size.dtype)
        if axes == 2:
            return 2.0 * (math.pi * many * (size + 1.0)).sqrt()
        return (36.0 * math.pi * many).pow(1 / 3) * (size + 1.0).pow(2 / 3)
