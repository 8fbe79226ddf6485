"""Box size: an object is no larger than its box, or fills a given fraction of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ringfence.numbers import fraction, positive_number
from ringfence.options import option
from ringfence.residuals import Residual, at_most, between
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import OnBoxes, areas, as_drawn, contents, slice_contents
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import yardstick_of


@dataclass(frozen=True)
class BoxSize(OnBoxes):
    """low·|b| <= V_b <= high·|b| for each box b, with V_b the mass that is in no other box: V if there is only one.

    In volumes V_b is that of the box's own slices: of a box one slice deep it is what it would be in 2-D. In
    relative units it is a fraction of the boxes' pixels (of those in its slices). For odds it is measured in the
    class's yardstick; all boxes of a sample push together as what is outside does.
    """

    kind: ClassVar[str] = "box_size"

    low: float | None = option(None, "the object is at least this fraction of its box; default: no lower bound")
    high: float = option(1.0, "the object is at most this fraction of its box")

    def __post_init__(self) -> None:
        positive_number("high", self.high)
        if self.low is not None and fraction("low", self.low) > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, objects]``, with a last dimension of 2 where there is a lower bound."""
        boxes = targets["box"]
        area = areas(boxes, region)
        some = area > 0
        if self.low is not None or self.high < 1.0:  # what is left of a cut box may hold another fraction
            some = some & as_drawn(targets)
        if self.high < 1.0 and boxes.shape[2] > 1:  # part of another object may be in this box
            some = some & ~overlapping(boxes)
        scale: Tensor | float = 1.0
        if unit == "relative":
            deep = region.axes == 3
            scale = slice_contents(boxes, area, region) if deep else contents(area, region).unsqueeze(-1)
        elif unit == "odds":
            several = (area > 0).sum(dim=-1, keepdim=True).clamp(min=1)
            scale = yardstick_of(targets).unsqueeze(-1) * several
        sizes = region.sizes(boxes, slices=region.axes == 3)
        if self.low is None:
            return at_most(sizes, self.high * area, mask=some, scale=scale)
        return between(sizes, self.low * area, self.high * area, mask=some, scale=scale)


def overlapping(boxes: Tensor) -> Tensor:
    """Whether a box has a pixel in common with another of its class: bool ``[N, K, objects]``."""
    start, stop = boxes[..., 0], boxes[..., 1]
    low = torch.maximum(start.unsqueeze(2), start.unsqueeze(3))
    high = torch.minimum(stop.unsqueeze(2), stop.unsqueeze(3))
    common = (high > low).all(dim=-1)
    itself = torch.eye(boxes.shape[2], dtype=torch.bool, device=boxes.device)
    return (common & ~itself).any(dim=-1)
