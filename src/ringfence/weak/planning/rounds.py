"""Whether a second network learns from what the first one finds."""

from __future__ import annotations

from typing import Final

from ringfence.hints import one_line
from ringfence.weak.planning.choice import Choice
from ringfence.weak.planning.fingerprint import Fingerprint

REFINE: Final = "refine"
"""The setting."""


def round_choices(found: Fingerprint, volumes: bool) -> list[Choice]:
    """A round of refinement, of slices in which a class was looked at and does not show: where all do, edges tell.

    But only if boxes can tell whether the second network is as good as the first.
    """
    hidden = [one for one in found.classes if one.hidden]
    if volumes or not hidden or not found.judged:
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
