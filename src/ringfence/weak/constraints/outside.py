"""Outside: nothing of a class lies outside of its boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ringfence.options import option
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

    Args:
        absent: whether it holds where a class has no box, too; false where ``absent`` says what holds there.
    """

    kind: ClassVar[str] = "outside"
    tolerance: ClassVar[float] = 1.0
    """A softmax is never 0: up to a pixel in all counts as none."""

    absent: bool = option(True, "also in images without a box of the class; false: left to the constraint absent")

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``."""
        boxes = targets["box"]
        area = areas(boxes, region)
        scale: Tensor | float = 1.0
        if unit != "pixels":
            scale = yardstick_of(targets) if unit == "odds" else contents(area, region)
        return at_most(region.outside(boxes), 0.0, scale=scale, mask=None if self.absent else area.sum(dim=-1) > 0)
