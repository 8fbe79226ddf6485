"""Edges: the boundary of a class runs where the image changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor
from torch.nn import functional

from ringfence.numbers import positive_number, true_or_false
from ringfence.options import option
from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region
from ringfence.segmentation.neighbours import directions, pairs, weight_of
from ringfence.weak.constraints.boxes import OnBoxes
from ringfence.weak.constraints.constraint import Targets, Unit
from ringfence.weak.constraints.odds import yardstick_of

APART: Final = 2
"""Pixels between neighbours: an edge is a pixel or two wide."""
CORNER: Final = 0.01
"""(Area of a corner / its boundary) / (side · odds): an ellipse leaves 0.054 n² of a box n wide to each corner,
whose two sides are 0.6 n long, and strips pull there with 1/odds of what pushes outside."""
NOISE: Final = 1.5
"""Times the mean difference of neighbours in the image: what differs by as much still looks alike."""
PALE: Final = 0.5
"""Below this sureness a class is not found yet."""


@dataclass(frozen=True)
class Edges(OnBoxes):
    """f = Σ_{p,q} ω_pq abs(s_p - s_q) <= 0: the length of the boundary between pixels that look alike.

    ω = exp(-½ Σ_c (Δ_c / 1.5 m_c)²) for neighbours that differ by Δ in a channel whose neighbours differ by m on
    average, the image being blurred a little. It is 1 in plain surroundings and close to 0 across an edge. Boxes
    say nothing of their corners; this does, wherever the object can be told from what is around it.

    A region half as likely has half the boundary, so that strong edges make regions fade. Without ``fading``, f is
    divided by a = Σ s² / Σ s, how sure the class is in the image, and if all of it fades alike, nothing is gained.
    What is not found yet must not be held back: below a = ½ it is 4 a times the sum (4 a being but a number), which
    below ¼ is less than the sum itself; and where the class has no box it is 0.

    In relative units it is a fraction of the boxes' sides. For odds, cutting off a corner of a box is worth
    ``strength`` times what strips pull at its pixels with when the odds are 9.
    """

    kind: ClassVar[str] = "edges"
    tolerance: ClassVar[float] = 1e9
    """There is always some of it: it is wanted to be short, and never counts as violated."""

    strength: float = option(5.0, "how much it weighs against strips in the corners of boxes, for odds")
    fading: bool = option(True, "whether a region may shorten its boundary by becoming less likely")

    def __post_init__(self) -> None:
        positive_number("strength", self.strength)
        true_or_false("fading", self.fading)

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``."""
        p = region.probabilities
        total = p.new_zeros(p.shape[:2])
        with torch.no_grad():
            image = blurred(targets["image"].to(p.dtype), region.axes)
        for step in directions(region.axes):
            if region.axes == 3 and step[0]:  # slices may be far apart
                continue
            far = tuple(APART * one for one in step)
            with torch.no_grad():
                alike = likeness(*pairs(image, far), region.axes)
            here, there = pairs(p, far)
            total = total + weight_of(step[-2:]) / APART * (alike * (here - there).abs()).flatten(2).sum(dim=-1)
        if not self.fading:
            total = total * _per_sureness(p, targets["box"])
        return at_most(total, 0.0, scale=self._scale(targets, unit))

    def _scale(self, targets: Targets, unit: Unit) -> Tensor | float:
        sides = (targets["box"][..., 1] - targets["box"][..., 0])[..., -2:].float().mean(dim=-1)
        some = sides > 0
        side = sides.sum(dim=-1) / some.sum(dim=-1).clamp(min=1)
        side = torch.where(side > 0, side, side.amax().clamp(min=1.0))
        if unit == "pixels":
            return 1.0
        if unit == "relative":
            return side
        return yardstick_of(targets) / (self.strength * CORNER * side)


def _per_sureness(p: Tensor, boxes: Tensor) -> Tensor:
    """1 / a, or 4 a below ½: ``[N, K]``, 0 without a box."""
    flat = p.flatten(2)
    sure = flat.square().sum(dim=-1) / flat.sum(dim=-1).clamp(min=torch.finfo(p.dtype).eps)
    found = (sure.detach() / PALE).clamp(max=1.0)
    there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1).any(dim=-1)
    return torch.where(there, found / sure.clamp(min=PALE), 0.0)


def blurred(image: Tensor, axes: int) -> Tensor:
    """An image ``[N, C, *space]`` averaged over 3×3 pixels of its slices."""
    size = [1, 3, 3][-axes:]
    pool = functional.avg_pool2d if axes == 2 else functional.avg_pool3d
    return pool(image, size, stride=1, padding=[one // 2 for one in size], count_include_pad=False)


def likeness(here: Tensor, there: Tensor, axes: int) -> Tensor:
    """ω ``[N, 1, *space]`` of pixels ``[N, C, *space]`` and their neighbours."""
    apart = here - there
    usual = apart.abs().flatten(2).mean(dim=-1).clamp(min=torch.finfo(apart.dtype).tiny)
    return (
        -0.5 * (apart / (NOISE * usual.view(*usual.shape, *[1] * axes))).square().sum(dim=1, keepdim=True)
    ).exp()
