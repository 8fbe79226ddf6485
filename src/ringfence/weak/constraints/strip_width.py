"""How wide strips are: the same for all classes, or for each its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.hints import hint, listed, one_line
from ringfence.numbers import whole_number
from ringfence.segmentation import Strips as Measured
from ringfence.weak.constraints.boxes import OnBoxes
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.odds import strip_pulls

if TYPE_CHECKING:
    from typing_extensions import Self


class OfWidth(OnBoxes):
    """A constraint about strips across boxes; a subclass is a dataclass with these two fields."""

    width: int | Mapping[str, int]
    """Pixels: of all classes, or by the class's name."""
    widths: tuple[int, ...]
    """The classes' own, in their order; none where all have the same."""

    def __post_init__(self) -> None:
        if not isinstance(self.width, Mapping):
            whole_number("width", self.width)
            return
        for name, width in self.width.items():
            whole_number(f"width.{one_line(str(name))}", width)

    def ready(self, facts: TaskFacts) -> Self:
        """With the classes' widths, where each has its own: all must."""
        if not isinstance(self.width, Mapping):
            return self
        for name in self.width:
            if name not in facts.classes:
                raise ValueError(
                    f"width: there is no class '{one_line(str(name))}'; {hint(str(name), facts.classes)}"
                )
        if missing := [name for name in facts.classes if name not in self.width]:
            raise ValueError(
                f"width: none is given for {listed(map(one_line, missing))}; one is needed for each class"
            )
        widths = tuple(self.width[name] for name in facts.classes)
        return replace(self, widths=widths)  # type: ignore[type-var]  # subclasses are dataclasses

    def measured(self, measure: Callable[[int], Measured]) -> Measured:
        """Strips ``[N, K, objects, directions, strips]``, each class's of its own width.

        Args:
            measure: from a width to the strips of all classes.
        """
        if not isinstance(self.width, Mapping):
            return measure(self.width)
        each = {width: measure(width) for width in sorted(set(self._each))}  # one width a pass over the logits
        most = max(strips.mask.shape[-1] for strips in each.values())
        parts = [
            [_filled(values[:, number : number + 1], most) for values in each[width]]
            for number, width in enumerate(self._each)
        ]
        return Measured(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))

    def straight_pulls(self, sides: Tensor, whole: Tensor) -> Tensor:
        """Σ 1/z of a strip along each axis: ``[N, K, objects]``."""
        if not isinstance(self.width, Mapping):
            return strip_pulls(sides, whole, self.width)
        each = [strip_pulls(sides[:, k], whole[:, k], width) for k, width in enumerate(self._each)]
        return torch.stack(each, dim=1)

    @property
    def _each(self) -> tuple[int, ...]:
        if not self.widths:
            raise ValueError("width is by class, and nobody said which classes there are: `ready` does")
        return self.widths


def _filled(values: Tensor, strips: int) -> Tensor:
    """With as many strips; those that are filled in are none (a mask of False)."""
    return F.pad(values, (0, strips - values.shape[-1]))
