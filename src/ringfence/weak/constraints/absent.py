"""Absent: nothing of a class is in an image that has no box of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import OnBoxes, areas
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import yardstick_of


@dataclass(frozen=True)
class Absent(OnBoxes):
    """f = Σ_p s_p <= 0 where a class has no box: of ``outside``, what concerns whole images.

    Apart from it (``outside.absent: false``), whether there is an object at all may be decided at odds other than
    where it ends: see ``log_barrier.most_odds``. In relative units it is a fraction of the image's pixels; for odds
    it is measured in the class's yardstick.
    """

    kind: ClassVar[str] = "absent"
    tolerance: ClassVar[float] = 1.0
    """As of ``outside``: up to a pixel in all counts as none."""

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``."""
        scale: Tensor | float = 1.0
        if unit != "pixels":
            scale = yardstick_of(targets) if unit == "odds" else float(math.prod(region.shape[2:]))
        none = areas(targets["box"], region).sum(dim=-1) == 0
        return at_most(region.size, 0.0, scale=scale, mask=none)
