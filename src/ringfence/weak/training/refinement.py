"""What can be set about refinement. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ringfence.numbers import fraction, not_negative, true_or_false
from ringfence.options import check_words, inside, option


@dataclass(frozen=True)
class RefinementSettings:
    """What rounds of refinement (`--refine`) learn from, and the first model, if it has labels."""

    looks: bool = option(
        False,
        "also train the first model on labels made from brightness: what in a slice's boxes is unlike what is "
        "around them",
    )
    unsure: float = option(
        0.2, "of the pixels in each box, the share that has no label: those that the teacher is least sure of"
    )
    teachers: Literal["all", "last"] = option(
        "all", "whose mean answer gives the labels: the models of all rounds so far, or of the last one"
    )
    constraints: float = option(
        0.1,
        "how much constraints count beside labels, at the end of their schedule: at 1, one that is violated pulls "
        "at a pixel as much as a wrong label does; 0: labels alone",
    )

    def __post_init__(self) -> None:
        with inside("refinement."):
            check_words(self)
            true_or_false("looks", self.looks)
            fraction("unsure", self.unsure)
            not_negative("constraints", self.constraints)
