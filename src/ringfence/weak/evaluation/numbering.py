"""Whether masks and truth call their classes by the same numbers: 255, which is white, is another label than 1."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from ringfence.hints import listed
from ringfence.weak.evaluation.scores import Scored

WHITE: Final = 255
"""What drawing programs fill a mask with: a label like any other here."""
MEANT: Final = "If white stands for the class, write its label instead"


def check_in_common(
    cases: Sequence[Scored], known: Iterable[int], predicted: str | Path, truth: str | Path
) -> None:
    """Refuse labels of which none is in both; over all cases, as a model may well miss the class of a single one.

    A model that finds nothing has none, and is as bad as its scores say.

    Args:
        cases: all that are scored.
        known: labels that the caller knows: whoever names both sides' means classes, not one in two numbers.
        predicted: where the masks are.
        truth: where the truth is.
    """
    ours, theirs = _sides(cases)
    if not ours or not theirs or ours & theirs or ours | theirs <= set(known):
        return
    white = f"{MEANT}. " if (ours == {WHITE}) != (theirs == {WHITE}) else ""
    raise ValueError(
        f"{truth} has {_called(theirs)}, {predicted} has {_called(ours)}: none is in both, and Dice would be 0. "
        f"{white}If all of them are classes, say so with --labels {' '.join(map(str, sorted(ours | theirs)))}"
    )


def missed(cases: Sequence[Scored], labels: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Labels that only truths have, and the cases where they have them and the masks have something else."""
    ours, theirs = _sides(cases)
    found = {
        label: tuple(
            case.name
            for case in cases
            if any(one.label == label for one in case.scores) and any(one.predicted for one in case.scores)
        )
        for label in sorted((theirs - ours) & set(labels))
    }
    return {label: names for label, names in found.items() if names}


def _sides(cases: Iterable[Scored]) -> tuple[set[int], set[int]]:
    """The labels that are in any mask, and those in any truth."""
    scores = [score for case in cases for score in case.scores]
    return {one.label for one in scores if one.predicted}, {one.label for one in scores if one.true}


def _called(labels: Collection[int]) -> str:
    return f"label{'s' * (len(labels) > 1)} {listed(map(str, sorted(labels)))}"
