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
from ringfence.weak.constraints.boxes import OnBoxes, areas, box_targets
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Targets, TaskFacts, Unit
from ringfence.weak.constraints.motion import Motion

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Compactness(OnBoxes):
    """f = L - 2 √(π ratio e n (V + 1)) <= 0: L² is at most ``ratio`` times 4πV, a disc's, and of n objects n times.

    L is the length of the boundary, measured in four directions (Crofton), V the size and n the number of objects:
    n of them, each with L_i² <= ratio·4πV_i, have (Σ L_i)² <= n·ratio·4π Σ V_i. A pixel is added to V, so that the
    slope stays finite when there is nothing. In volumes S <= (36π ratio e n)^(1/3) (V + 1)^(2/3), as balls have it.
    The boundary is that of the whole object: nothing is asked where one was cut, by a window or the image's border.

    e >= 1 is for voxels that are not cubes: the ratio of an ellipsoid in voxels that is a ball in millimetres. The
    spacing comes with the case; slices of unknown spacing are taken to have had square pixels before they were
    resized, and volumes are refused.

    L is in pixels (of a volume: faces); relative to a disc's (a ball's) of the same size as the boxes otherwise.
    """

    kind: ClassVar[str] = "compactness"

    ratio: float = option(
        2.0, "L² over that of a disc of the same size, at most; a disc has 1 to 1.2, an ellipse of 3:1 up to 1.6"
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
        """Beside the boxes, ``objects``, ``bordering`` and ``ball``.

        ``objects``, int64 ``[N, K]``: how many there are, each of which may have a box in every slice of a volume.
        ``bordering``, bool ``[N, K]``: a box of the class ends where the image does. ``ball``, float32
        ``[N, axes]``: half-axes in pixels of something that is round in millimetres.
        """
        targets = box_targets(case)
        box, space = targets["box"], torch.tensor(case.image.shape[2:])
        ends = ((box[..., 0] == 0) | (box[..., 1] == space)) & (box[..., 1] > box[..., 0])
        ball = torch.tensor(_ball(case), dtype=torch.float32).repeat(len(case.image), 1)
        each = case.object_boxes
        objects = (each[..., 1] > each[..., 0]).all(dim=-1).sum(dim=-1)
        return targets | {"objects": objects, "bordering": ends.flatten(2).any(dim=-1), "ball": ball}

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Balls are stretched as the image is."""
        return super().moved(targets, motion) | {"ball": targets["ball"] * motion.scale.abs()}

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K]``; there is none where the class has no box."""
        area = areas(targets["box"], region)
        there = (area > 0).any(dim=-1)
        many = self.ratio * ellipse_ratio(targets["ball"])[:, None] * targets["objects"].clamp(min=1)
        bound = longest(region.size, many, region.axes)
        scale = 1.0 if unit == "pixels" else longest(area.sum(dim=-1), many, region.axes)
        known = targets["uncut"] & there & ~targets["bordering"]
        return at_most(region.boundary, bound, mask=known, scale=scale)


def longest(size: Tensor, ratio: Tensor, axes: int) -> Tensor:
    """The longest boundary of ``size`` pixels whose square is ``ratio`` times that of a disc (cube: of a ball)."""
    if axes == 2:
        return 2.0 * (math.pi * ratio * (size + 1.0)).sqrt()
    return (36.0 * math.pi * ratio).pow(1 / 3) * (size + 1.0).pow(2 / 3)


def ellipse_ratio(half_axes: Tensor) -> Tensor:
    """L²/4πA of ellipses, S³/36πV² of ellipsoids, by their half-axes ``[..., 2 or 3]``: 1 for a disc or a ball.

    Ramanujan's and Thomsen's approximations, to 0.1 % up to 5:1 and to 1.1 %.
    """
    if half_axes.shape[-1] == 2:
        a, b = half_axes.unbind(dim=-1)
        length = math.pi * (3.0 * (a + b) - ((3.0 * a + b) * (a + 3.0 * b)).sqrt())
        return length.square() / (4.0 * math.pi**2 * a * b)
    a, b, c = half_axes.pow(1.6075).unbind(dim=-1)
    area = 4.0 * math.pi * ((a * b + a * c + b * c) / 3.0).pow(1 / 1.6075)
    return area.pow(3) / (36.0 * math.pi * (4.0 / 3.0 * math.pi * half_axes.prod(dim=-1)).square())


def _ball(case: CaseSamples) -> list[float]:
    """Half-axes in pixels, up to a factor, of something round."""
    if case.case is None:
        return [1.0] * (case.image.ndim - 2)
    spacing = case.case.spacing
    if spacing is None and case.volume:
        raise ValueError(
            f"in volumes it needs the spacing of voxels, and {case.name}'s header does not say it: train on "
            "slices, or correct the headers and prepare the set again"
        )
    depth, height, width = spacing or (1.0, 1.0, 1.0)
    frame = case.case.frame(case.size)
    in_plane = [
        now / (before * step) for now, before, step in zip(frame.size, frame.native, (height, width), strict=True)
    ]
    half = [1.0 / depth, *in_plane] if case.volume else in_plane
    return [one / max(half) for one in half]
