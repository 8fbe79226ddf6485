"""Inclusion: one class lies within another, as a lesion in its organ."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ringfence.hints import hint
from ringfence.options import option
from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region, contact
from ringfence.segmentation.boxes import covered
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
from ringfence.weak.constraints.motion import Motion

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Inclusion(Constraint):
    """f = Σ_{neighbours p, q} s_inner(p) (1 - s_inner(q) - s_outer(q)) <= 0: the inner class touches nothing else.

    A pixel has one class, so a lesion within an organ is one whose neighbours (by a face) are lesion or organ. What
    is beyond the image as it was taken is no neighbour: neither the border, nor what a shifted image is filled up
    with. In pixels, f counts the faces between the inner class and anything else; in relative units it is a
    fraction of the image's mean side.
    """

    kind: ClassVar[str] = "inclusion"
    tolerance: ClassVar[float] = 1.0
    """A softmax is never 0: up to a face in all counts as none."""

    inner: str = option("", "the class that lies within the other")
    outer: str = option("", "the class around it")
    numbers: tuple[int, int] = field(default=(0, 0), repr=False)

    def __post_init__(self) -> None:
        if not self.inner or not self.outer or self.inner == self.outer:
            raise ValueError(f"inner and outer are two classes, got '{self.inner}' and '{self.outer}'")

    def ready(self, facts: TaskFacts) -> Self:
        """With the classes' places among all classes."""
        return replace(self, numbers=(class_number(self.inner, facts), class_number(self.outer, facts)))

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """``extent``, int64 ``[N, 1, axes, 2]``: first pixel and one past the last of the image as it was taken."""
        space = torch.tensor(case.image.shape[2:])
        extent = torch.stack([torch.zeros_like(space), space], dim=-1)
        return {"extent": extent.repeat(len(case.image), 1, 1, 1)}

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """The image as it was taken goes where its content does."""
        extent = targets["extent"]
        return {"extent": motion.boxes(extent, torch.ones_like(extent[..., 0], dtype=torch.bool))[0]}

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N]``."""
        inner, outer = (region.probabilities[:, number] for number in self.numbers)
        taken = covered(targets["extent"].unsqueeze(1), inner.shape[1:])[:, 0]
        between = contact(inner, (1.0 - inner - outer).clamp(min=0.0) * taken, region.axes)
        return at_most(between, 0.0, scale=1.0 if unit == "pixels" else mean_side(region))


def class_number(name: str, facts: TaskFacts) -> int:
    """Which of the classes has this name, from 0."""
    if name not in facts.classes:
        raise ValueError(f"there is no class '{name}'; {hint(str(name), facts.classes)}")
    return facts.classes.index(name)


def mean_side(region: Region) -> float:
    """The geometric mean of the image's sides, in pixels."""
    return float(math.prod(region.shape[2:]) ** (1.0 / region.axes))
