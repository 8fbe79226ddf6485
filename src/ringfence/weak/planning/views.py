"""How images are looked at: mirrored, turned, and together with the slices next to them."""

from __future__ import annotations

import math
from typing import Final

from ringfence.weak.planning.choice import Choice
from ringfence.weak.planning.fingerprint import Fingerprint

TURN: Final = 30.0
"""Degrees: better than none and than twice as many on folds of large slices (results/plan/folds-256-turn.md)."""
ALIKE: Final = 0.5
"""Of boxes in neighbouring slices, intersection over union: from there on, slices tell of each other."""
SHARE: Final = 0.25
"""Of each neighbouring slice, in what is found in a slice."""


def view_choices(found: Fingerprint, volumes: bool) -> list[Choice]:
    """Flips; and of slices, turns and neighbours."""
    return [_flips(found), *([] if volumes else [*_turn(found), *_neighbours(found)])]


def _flips(found: Fingerprint) -> Choice:
    """Left-right, unless a mirrored image would have a class where it never is."""
    if found.sided is None:
        return Choice(
            "augment.flip",
            ["left-right"],
            "no class is always on one side, so that mirrored images look like real ones",
        )
    return Choice(
        "augment.flip",
        [],
        f"{found.sided}: in mirrored images it would be on the other side, where something else may look like it",
    )


def _turn(found: Fingerprint) -> list[Choice]:
    """As far as the ends of a long image stay in sight."""
    turn = math.floor(min(TURN, math.degrees(math.asin(min(found.size) / max(found.size)))))
    if turn == 0:
        return []
    return [
        Choice(
            "augment.turn",
            float(turn),
            "boxes are along the axes, and objects need not be: a network that sees images turned by up to so many "
            "degrees cannot tell where the corners of a box are, and leaves them out",
        )
    ]


def _neighbours(found: Fingerprint) -> list[Choice]:
    """Where objects go on from slice to slice."""
    alike = min(one.alike for one in found.classes)
    if alike < ALIKE:
        return []
    return [
        Choice(
            "training.neighbours",
            SHARE,
            f"a box and the next slice's overlap by {alike:.0%} on average: what is found in a slice is a mean, of "
            "which each of its neighbours is a quarter",
        )
    ]
