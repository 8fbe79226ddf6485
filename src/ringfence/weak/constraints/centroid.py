"""Centroid: an object's centre lies within a few pixels of where it is known to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ringfence.numbers import not_negative, positive_number
from ringfence.options import option
from ringfence.residuals import Residual, between
from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import box_targets, moved_boxes
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.constraints.size import Bounds, checked_masks

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Centroid(Constraint):
    """τ - slack <= C <= τ + slack along each axis, with C = Σ_p s_p c_p / Σ_p s_p and τ the mask's.

    In relative units it is measured in ten times its slack, so that its room is ±0.1.
    """

    kind: ClassVar[str] = "centroid"

    slack: float = option(20.0, "pixels along each axis")
    boxed: bool = field(default=True, repr=False)
    """Whether boxes tell that an object was cut. (False: images never move.)"""

    def __post_init__(self) -> None:
        positive_number("slack", self.slack)

    def ready(self, facts: TaskFacts) -> Self:
        """Refused where no training case has a mask."""
        if facts.prepared is not None and not any(case.masked for case in facts.prepared.of("train")):
            raise ValueError(f"centroids are those of masks, and no training case of {facts.prepared.path} has one")
        return self

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """``centroid_low`` and ``centroid_high``, float32 ``[N, K, axes]``: infinite where nothing is known."""
        mask = case.boxed_mask if self.boxed else case.mask
        low, high = centroid_bounds(mask, self.slack)  # infinite of an empty mask, also of one never drawn
        return {"centroid_low": low, "centroid_high": high} | (box_targets(case) if self.boxed else {})

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Bounds go where the object does."""
        bounds = torch.stack([targets["centroid_low"], targets["centroid_high"]], dim=-1)
        # a pixel's middle is half a pixel from its edge
        low, high = (motion.intervals(bounds + 0.5) - 0.5).unbind(dim=-1)
        return {"centroid_low": low, "centroid_high": high} | (moved_boxes(targets, motion) if self.boxed else {})

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, axes, 2]``; of an object that was cut, the centroid is not known."""
        scale = 1.0 if unit == "pixels" else 10.0 * self.slack
        known = targets["uncut"].unsqueeze(-1) if self.boxed else None
        return between(region.centroid, targets["centroid_low"], targets["centroid_high"], mask=known, scale=scale)


def centroid_bounds(masks: Tensor, slack: float) -> Bounds:
    """τ - slack <= C <= τ + slack with τ = Σ_p y_p c_p / Σ_p y_p, in pixels: float32 ``[batch, classes, axes]``.

    An empty mask has no centroid, and so no bounds: they are infinite.

    Args:
        masks: bool ``[batch, classes, *space]``.
        slack: pixels; the paper's is 20 at 256×256.
    """
    slack = not_negative("slack", slack)
    masks = checked_masks(masks)
    size = masks.flatten(2).sum(dim=-1)
    places = []
    for axis in range(2, masks.ndim):
        others = tuple(other for other in range(2, masks.ndim) if other != axis)
        along = masks.sum(dim=others) if others else masks
        place = torch.arange(masks.shape[axis], dtype=torch.float64, device=masks.device)
        places.append((along * place).sum(dim=-1) / size)  # 0/0, NaN, where there is nothing
    centroid = torch.stack(places, dim=-1).float()
    return Bounds(
        (centroid - slack).nan_to_num(nan=-torch.inf, neginf=-torch.inf),
        (centroid + slack).nan_to_num(nan=torch.inf, posinf=torch.inf),
    )
