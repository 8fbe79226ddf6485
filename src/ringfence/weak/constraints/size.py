"""Size: an object's size lies between bounds, given in a file or taken from masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from ringfence.numbers import not_negative
from ringfence.options import option
from ringfence.residuals import Residual, between
from ringfence.segmentation import Region
from ringfence.weak.annotations import SizeAnnotation, place_sizes, place_volume_sizes, read_sizes
from ringfence.weak.constraints.boxes import box_targets, moved_boxes
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
from ringfence.weak.constraints.motion import Motion

if TYPE_CHECKING:
    from typing_extensions import Self


class Bounds(NamedTuple):
    """A range for each sample and class; ``rf.between(value, bounds.low, bounds.high)``."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Size(Constraint):
    """low <= V <= high with V = Σ_p s_p, of all objects of a class together.

    In relative units it is measured in the middle of its bounds (in the one there is, if there is one; in the image
    where nothing may be).
    """

    kind: ClassVar[str] = "size"

    slack: float | None = option(None, "bounds are (1 ± this) × the size of the mask; default: not from masks")
    file: str | None = option(None, "a file of bounds (CSV or JSON), in voxels of the source; default: none")
    boxed: bool = field(default=True, repr=False)
    """Whether boxes tell that an object was cut. (False: images never move.)"""
    annotated: Sequence[SizeAnnotation] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if (self.slack is None) == (self.file is None):
            raise ValueError(f"slack or file: give one of the two, got slack {self.slack} and file {self.file}")
        if self.slack is not None and not_negative("slack", self.slack) > 1.0:
            raise ValueError(f"slack is a fraction from 0 to 1, got {self.slack}")

    def ready(self, facts: TaskFacts) -> Self:
        """With the file read."""
        if facts.prepared is None:
            return self
        if self.slack is not None and not any(case.masked for case in facts.prepared.of("train")):
            raise ValueError(f"slack is about masks, and no training case of {facts.prepared.path} has one")
        return self if self.file is None else replace(self, annotated=read_sizes(self.file, facts.prepared))

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """``size_low`` and ``size_high``, float32 ``[N, K]``: infinite where nothing is known."""
        low, high = self._bounds(case)
        targets = {"size_low": low, "size_high": high}
        if self.boxed:
            targets |= box_targets(case)
        return targets

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Sizes grow as the image does."""
        moved = {name: targets[name] * motion.content for name in ("size_low", "size_high")}
        return moved | (moved_boxes(targets, motion) if self.boxed else {})

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, K, 2]``; of an object that was cut, the size is not known."""
        low, high = targets["size_low"], targets["size_high"]
        scale: Tensor | float = 1.0
        if unit != "pixels":
            scale = torch.full_like(low, math.prod(region.shape[2:]))
            for size in (high, low, (low + high) / 2):  # the last that is a size
                scale = torch.where((size > 0) & (size < math.inf), size, scale)
        return between(region.size, low, high, mask=targets["uncut"] if self.boxed else None, scale=scale)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of bounds."""
        return () if self.file is None else (Path(self.file),)

    def _bounds(self, case: CaseSamples) -> Bounds:
        if self.slack is not None:
            bounds = size_bounds(case.boxed_mask if self.boxed else case.mask, self.slack)
            if case.drawn:
                return bounds
            return Bounds(torch.full_like(bounds.low, -torch.inf), torch.full_like(bounds.high, torch.inf))
        if case.case is None:
            raise ValueError("size.file: there is no case to look up in a file; give slack")
        place, classes = place_volume_sizes if case.volume else place_sizes, case.mask.shape[1]
        low, high = map(torch.from_numpy, place(self.annotated, case.case, case.size, classes))
        return Bounds(low[None], high[None]) if case.volume else Bounds(low, high)


def size_bounds(masks: Tensor, slack: float = 0.1) -> Bounds:
    """(1 - slack)·τ <= V <= (1 + slack)·τ with τ = Σ_p y_p, the size of each mask: float32 ``[batch, classes]``.

    Args:
        masks: bool ``[batch, classes, *space]``.
        slack: a fraction, 0 to 1; the paper's is 0.1.
    """
    if not_negative("slack", slack) > 1.0:
        raise ValueError(f"slack is a fraction from 0 to 1, got {slack}")
    size = checked_masks(masks).flatten(2).sum(dim=-1).float()
    return Bounds((1.0 - slack) * size, (1.0 + slack) * size)


def checked_masks(masks: Tensor) -> Tensor:
    """``masks`` if they are bool with a batch, a class and at least one axis of space."""
    if masks.dtype != torch.bool or masks.ndim < 3:
        raise ValueError(
            f"masks must be bool [batch, classes, *space], got {masks.dtype} of shape {list(masks.shape)}"
        )
    return masks
