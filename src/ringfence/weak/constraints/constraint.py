"""What a kind of constraint is: its settings, what it needs of a case, how that moves, and its residual."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from torch import Tensor

from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.constraints.motion import Motion

if TYPE_CHECKING:
    from typing_extensions import Self

    from ringfence.weak.constraints.case import CaseSamples
    from ringfence.weak.prepared.prepared_set import PreparedSet

Unit: TypeAlias = Literal["pixels", "relative", "odds"]
"""What residuals are measured in: pixels; a fraction of something that each kind of constraint names; or, of boxes,
so that t² are odds (see ``odds``; other kinds are as in relative units)."""

Targets: TypeAlias = Mapping[str, Tensor]
"""What is known of samples, by name: a row for each sample."""


@dataclass(frozen=True)
class TaskFacts:
    """What a constraint may ask about the set it is used on.

    Attributes:
        classes: names of the foreground classes.
        axes: how many axes space has.
        prepared: the prepared set, where there is one.
    """

    classes: tuple[str, ...]
    axes: int
    prepared: PreparedSet | None = None


class Constraint(ABC):
    """f(region, targets) <= 0: what is asked of the region that a network finds in an image.

    A subclass says what it is, in one file. Its settings are the arguments of its constructor (a frozen dataclass
    is the short way). Only ``residual`` must be written; the others are for constraints that need something of each
    case. A class of your own is used by its ``class_path``: see examples/own_constraint.py.
    """

    kind: ClassVar[str] = ""
    """The name it is asked for by: that of its file. A class of your own needs none."""
    tolerance: ClassVar[float] = 0.0
    """By how many pixels it may be exceeded and still count as satisfied."""

    def ready(self, facts: TaskFacts) -> Self:
        """This constraint for a set: where a name of a class is checked, or a file of annotations read."""
        return self

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """What it needs of a case: tensors by name, a row for each of the case's samples."""
        return {}

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Its targets after the images have moved; what does not move is left out."""
        return {}

    def pulls(self, sides: Tensor, whole: Tensor) -> Tensor | float:
        """Σ 1/z of strips that pull at a pixel of a box ``[..., objects]``, see ``odds``; of other kinds 0."""
        return 0.0

    @abstractmethod
    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """f, with ``f <= 0`` satisfied, a row for each sample: made by ``rf.at_most`` and its like.

        Args:
            region: the network's answer; ``region.size`` and much else is ready to be measured.
            targets: those of the batch, of all constraints.
            unit: what to measure in. Satisfaction is counted in pixels.
        """

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that it reads: a run that goes on must find them unchanged."""
        return ()
