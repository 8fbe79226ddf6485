"""How boxes from a file were drawn: too wide, now and then or all of them."""

from __future__ import annotations

import statistics
from typing import Final

from ringfence.weak.planning.choice import Choice
from ringfence.weak.planning.fingerprint import Fingerprint

ERROR: Final = 0.05
"""Of a box's side, by which people draw it too wide, on either end."""
LOOSE: Final = (0.03, 0.15)
"""Of a box's side, by which boxes seem too wide at either end: below the first they are not, above the second it is
not the boxes."""


def hand_choices(found: Fingerprint) -> list[Choice]:
    """What may be wrong about boxes from a file."""
    side = min(one.side for one in found.classes)
    return [
        *_tighter(found),
        Choice(
            "data.margin",
            round(ERROR * side),
            f"drawn by hand: sides may be {ERROR:.0%} of {side:.0f} pixels too far out, and lines so close to "
            "them need not meet the object",
        ),
    ]


def hand_remarks(found: Fingerprint) -> list[str]:
    """Where nobody sees how boxes were drawn."""
    if _seen(found) or not found.tight:
        return []
    return [
        "objects hardly show, so that nobody sees whether boxes are drawn too wide. If yours are, say by how much: "
        f"--data.tighten {ERROR:g} takes {ERROR:.0%} of their sides off at either end"
    ]


def _seen(found: Fingerprint) -> list[float]:
    """How much too wide boxes of each class are, where enough of its objects show."""
    return [one.loose for one in found.classes if one.loose is not None and one.shows]


def _tighter(found: Fingerprint) -> list[Choice]:
    """Of boxes that are drawn too wide, where that is seen: one hand draws all classes."""
    seen = _seen(found)
    loose = statistics.median(seen) if seen else 0.0
    least, most = LOOSE
    side = max(one.side for one in found.classes)
    if not least <= loose <= most or loose * side <= 0.5:  # less than a pixel's half
        return []
    return [
        Choice(
            "data.tighten",
            round(loose, 3),
            f"objects are seen to begin {loose:.1%} of a box's side within it, on average: boxes are made smaller "
            "by so much at either end",
        )
    ]
