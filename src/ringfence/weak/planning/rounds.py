"""Whether the first network learns from labels, and whether a second one learns from what the first one finds."""

from __future__ import annotations

from typing import Final

from ringfence.hints import one_line
from ringfence.weak.planning.choice import Choice
from ringfence.weak.planning.fingerprint import Fingerprint

LOOKS: Final = "refinement.looks"
"""The setting that has the first network learn from labels."""
REFINE: Final = "refine"
"""The number of networks after the first."""
LEAST: Final = 8.0
"""Pixels along the shorter side of a class's median box, for labels from brightness: of a smaller class hardly half
have labels, and a network takes it for another one that has more."""


def round_choices(found: Fingerprint, volumes: bool) -> list[Choice]:
    """Of slices: labels from brightness, or a round of refinement, or neither.

    Thin or curved objects leave most of their boxes to what surrounds them, of which no constraint says that it is
    not the object: where all classes show, and none is tiny, brightness does. A second network learns if a class
    was looked at and does not show, and if boxes can tell whether it is as good as the first; where all show, edges
    tell more.
    """
    if volumes:
        return []
    if learns_from_looks(found):
        thin = min((one for one in found.classes if one.thin), key=lambda one: one.fill)
        return [
            Choice(
                LOOKS,
                True,
                f"{one_line(thin.name)} is seen to fill {thin.fill:.0%} of its boxes, and boxes do not say where: "
                "the network learns from what in them is unlike what is around them, beside the constraints",
            )
        ]
    hidden = [one for one in found.classes if one.hidden]
    if not hidden or not found.judged:
        return []
    rare = min(hidden, key=lambda one: one.visible)
    return [
        Choice(
            REFINE,
            1,
            f"{one_line(rare.name)} can be told from its surroundings in {rare.visible:.0%} of its boxes: a second "
            "network learns from what the first one finds, which takes as long again (--refine 0: the first alone)",
        )
    ]


def learns_from_looks(found: Fingerprint) -> bool:
    """Whether all classes show, none of them in tiny boxes, and some fill little of theirs."""
    return all(one.shows and one.side >= LEAST for one in found.classes) and any(one.thin for one in found.classes)
