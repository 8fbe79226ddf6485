"""Outside: nothing of a class lies outside of its boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import OnBoxes, areas, contents
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import yardstick_of


@dataclass(frozen=True)
class Outside(OnBoxes):
    """f = Σ_{p outside of all boxes} s_p <= 0: the paper's emptiness constraint.

    In relative units it is a fraction of the boxes' pixels; of the image's where there is no box. For odds it is
    measured in the class's yardstick.
    """

    kind: ClassVar[str] = "outside"
    tolerance: ClassVar[float] = 1.0
    """A softmax is never 0: up to a pixel in all counts as none."""

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``."""
        boxes = targets["box"]
        scale: Tensor | float = 1.0
        if unit != "pixels":
            scale = yardstick_of(targets) if unit == "odds" else contents(areas(boxes, region), region)
        return at_most(region.outside(boxes), 0.0, scale=scale)
