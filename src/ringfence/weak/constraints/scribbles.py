"""Scribbles: pixels whose class somebody has marked, the background's too."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.numbers import whole_number
from ringfence.options import option
from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region
from ringfence.weak.annotations import ScribblePoint, place_scribbles, place_volume_scribbles, read_scribbles
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
from ringfence.weak.constraints.motion import Motion

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Scribbles(Constraint):
    """f = Σ_{p in the scribble of class k} (1 - s_p^k) <= 0, for each class and the background.

    In relative units it is a fraction of the scribble's points. Where there is no scribble, nothing is asked.
    """

    kind: ClassVar[str] = "scribbles"
    tolerance: ClassVar[float] = 0.5
    """A softmax is never 1: up to half a pixel in all counts as none, less than one pixel that is missed."""

    file: str | None = option(None, "a file of points (CSV or JSON), in voxels of the source; default: none")
    points: int | None = option(
        None, "so many pixels of each class and of the background, drawn from the masks; default: not from masks"
    )
    annotated: Sequence[ScribblePoint] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if (self.file is None) == (self.points is None):
            raise ValueError(f"file or points: give one of the two, got file {self.file} and points {self.points}")
        if self.points is not None:
            whole_number("points", self.points)

    def ready(self, facts: TaskFacts) -> Self:
        """With the file read."""
        if facts.prepared is None:
            return self
        if self.points is not None and not any(case.masked for case in facts.prepared.of("train")):
            raise ValueError(f"points are those of masks, and no training case of {facts.prepared.path} has one")
        return self if self.file is None else replace(self, annotated=read_scribbles(self.file, facts.prepared))

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """``scribble``, int32 ``[N, points, 1 + axes]``: 1 + class, and the pixel; zeros where there is none."""
        if self.points is not None:
            return {"scribble": _drawn(case, self.points)}
        if case.case is None:
            raise ValueError("scribbles.file: there is no case to look up in a file; give points")
        place = place_volume_scribbles if case.volume else place_scribbles
        return {"scribble": torch.from_numpy(place(self._of_case[case.case.name], case.case, case.size))}

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Points go where their pixels do; one that is not seen any more is gone."""
        label, points = targets["scribble"].split([1, targets["scribble"].shape[-1] - 1], dim=-1)
        points, seen = motion.points(points)
        return {"scribble": torch.cat([label, points], dim=-1) * (seen.unsqueeze(-1) & (label > 0))}

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N, 1 + K]``, the background first."""
        scribble = targets["scribble"]
        found = region.at(scribble[..., 1:])
        certain = torch.cat([1.0 - found.sum(dim=1, keepdim=True), found], dim=1)
        classes = torch.arange(1, 1 + certain.shape[1], device=scribble.device)
        ours = scribble[:, None, :, 0] == classes[:, None]  # [N, 1 + K, points]
        count = ours.sum(dim=-1)
        missed = (ours * (1.0 - certain)).sum(dim=-1)
        scale = 1.0 if unit == "pixels" else count.clamp(min=1).to(missed)
        return at_most(missed, 0.0, mask=count > 0, scale=scale)

    @cached_property
    def _of_case(self) -> defaultdict[str, list[ScribblePoint]]:
        found: defaultdict[str, list[ScribblePoint]] = defaultdict(list)
        for one in self.annotated:
            found[one.case].append(one)
        return found

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of points."""
        return () if self.file is None else (Path(self.file),)


def _drawn(case: CaseSamples, count: int) -> Tensor:
    """Pixels of each class and of the background, the same whenever the case is read."""
    rows, axes = len(case.mask), case.mask.ndim - 2
    found = torch.zeros(rows, count * (1 + case.mask.shape[1]), 1 + axes, dtype=torch.int32)
    if not case.drawn:
        return found[:, :1]
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    classes = torch.cat([~case.mask.any(dim=1, keepdim=True), case.mask], dim=1)
    for row, masks in enumerate(classes):
        for label, mask in enumerate(masks):
            pixels = mask.nonzero()
            some = pixels[torch.randperm(len(pixels), generator=generator)[:count]].int()
            first = label * count
            found[row, first : first + len(some)] = F.pad(some, (1, 0), value=1 + label)
    return found
