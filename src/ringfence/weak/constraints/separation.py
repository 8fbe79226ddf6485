"""Separation: two classes do not touch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from ringfence.options import option
from ringfence.residuals import Residual, at_most
from ringfence.segmentation import Region, contact
from ringfence.weak.constraints.constraint import Constraint, Targets, TaskFacts, Unit
from ringfence.weak.constraints.inclusion import class_number, mean_side

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Separation(Constraint):
    """f = Σ_{neighbours p, q} s_first(p) s_second(q) <= 0: no pixel of one class touches the other.

    In pixels, f counts such faces; in relative units it is a fraction of the image's mean side.
    """

    kind: ClassVar[str] = "separation"
    tolerance: ClassVar[float] = 1.0
    """A softmax is never 0: up to a face in all counts as none."""

    first: str = option("", "a class")
    second: str = option("", "the class that it does not touch")
    numbers: tuple[int, int] = field(default=(0, 0), repr=False)

    def __post_init__(self) -> None:
        if not self.first or not self.second or self.first == self.second:
            raise ValueError(f"first and second are two classes, got '{self.first}' and '{self.second}'")

    def ready(self, facts: TaskFacts) -> Self:
        """With the classes' places among all classes."""
        return replace(self, numbers=(class_number(self.first, facts), class_number(self.second, facts)))

    def residual(self, region: Region, targets: Targets, unit: Unit) -> Residual:
        """``[N]``."""
        first, second = (region.probabilities[:, number] for number in self.numbers)
        scale = 1.0 if unit == "pixels" else mean_side(region)
        return at_most(contact(first, second, region.axes), 0.0, scale=scale)
