"""The barrier and its constraints in terms without pixels: strips, odds, edges, and what is found at the end."""

from __future__ import annotations

import math
from typing import Final

from ringfence.hints import one_line
from ringfence.weak.planning.choice import Choice
from ringfence.weak.planning.fingerprint import Fingerprint

ODDS: Final = (0.1, 9.0)
"""Of being in the box, at which a pixel becomes foreground: in the first epoch, and in the last."""
PRESENCE: Final = 1.0
"""The most odds of being there at all, at which an object is found."""
STRENGTH: Final = 5.0
"""Of edges, against what strips pull at the corners of boxes with."""
EARLY: Final = 0.7
"""Of the epochs: the odds of edges are then those of the last one, where objects show."""
LINES: Final = 12
"""As many strips go across an object."""


def barrier_choices(found: Fingerprint, volumes: bool) -> list[Choice]:
    """Strips, what is found and where, edges, and the odds from the first epoch to the last."""
    first, last = ODDS
    return [
        _strips(found),
        *_steep(found),
        *([] if volumes else _finding()),
        *_edges(found, volumes),
        Choice(
            "log_barrier.unit", "odds", "t² are the odds of being in the box at which a pixel becomes foreground"
        ),
        Choice("log_barrier.weights", {}, "what is outside is measured by the class's median box"),
        Choice("log_barrier.t", round(math.sqrt(first), 4), f"odds of {first:g} at first: boxes fill"),
        Choice("log_barrier.mu", None, "to final_t"),
        Choice("log_barrier.final_t", round(math.sqrt(last), 4), f"odds of {last:g} at last: corners are left out"),
        Choice("full_supervision.dice", 1.0, "where masks are used: cross-entropy and Dice loss"),
    ]


def _strips(found: Fingerprint) -> Choice:
    """One width if it would be the same for all classes: strips of each width take a pass of their own."""
    widths = _widths(found)
    sides = ", ".join(f"{one_line(one.name)}, {one.side:.0f} pixels" for one in found.classes)
    if len(set(widths.values())) > 1:
        return Choice("constraints.strips.width", widths, f"a {LINES}th of each class's own side: {sides}")
    return Choice(
        "constraints.strips.width", min(widths.values()), f"a {LINES}th of the shorter median side: {sides}"
    )


def _steep(found: Fingerprint) -> list[Choice]:
    """Where a class is inside of another one: sure of that, a network might never find it."""
    if not found.nested:
        return []
    inner, outer, _ = max(found.nested, key=lambda one: one[2])
    return [
        Choice(
            "constraints.strips.steep",
            True,
            f"{one_line(inner)} lies within the boxes of {one_line(outer)}: where the network is sure of "
            f"{one_line(outer)}, strips keep a strong gradient towards {one_line(inner)}",
        )
    ]


def _widths(found: Fingerprint) -> dict[str, int]:
    """Of strips, by class."""
    return {one.name: max(1, round(one.side / LINES)) for one in found.classes}


def _finding() -> list[Choice]:
    """Whether there is an object at all, and where it ends: in slices, for a patch is but a part of a volume."""
    return [
        Choice("constraints.outside.absent", False, "slices without a box of a class are left to absent"),
        Choice("constraints.absent", {}, "nothing of a class is in slices without a box of it, at odds of its own"),
        Choice(
            "log_barrier.most_odds",
            {"absent": PRESENCE},
            "even odds of being there are enough for an object to be found: those of new cases seldom look as sure "
            "as those that were learnt",
        ),
        Choice(
            "training.calibrate", True, "at the end, odds of 1/2 are enough for a pixel, unless boxes say otherwise"
        ),
    ]


def _edges(found: Fingerprint, volumes: bool) -> list[Choice]:
    """Corners, of which boxes say nothing."""
    corners = Choice(
        "constraints.edges.strength",
        STRENGTH,
        "boxes say nothing of their corners: a boundary between pixels that look alike costs something",
    )
    if volumes or not all(one.shows for one in found.classes):
        return [corners]
    shown = min(one.visible for one in found.classes)
    often = "all" if shown == 1.0 else f"{shown:.0%} or more of the"
    return [
        corners,
        Choice("constraints.edges.fading", False, "or regions would rather be less likely than leave corners out"),
        Choice(
            "log_barrier.early",
            {"edges": EARLY},
            f"objects can be told from their surroundings in {often} boxes of every class: edges have their last "
            f"odds after {EARLY:.0%} of the epochs, while the network still learns",
        ),
    ]
