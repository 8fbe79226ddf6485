"""Whether a second network learns from what the first one finds."""

from __future__ import annotations

from ringfence.weak.planning.choice import Choice, Device
from ringfence.weak.planning.fingerprint import Fingerprint
from ringfence.weak.planning.visibility import VISIBLE


def round_choices(found: Fingerprint, device: Device, volumes: bool) -> list[Choice]:
    """A round of refinement, of slices whose objects do not show: where they do, edges say where they end.

    But only if boxes for validation can tell whether the second network is as good as the first.
    """
    if volumes or device == "cpu" or not hidden(found) or not found.judged:
        return []
    return [
        Choice(
            "refine",
            1,
            f"{_rarely(found)}: a second network learns from what the first one finds, in as many steps",
        )
    ]


def round_remarks(found: Fingerprint) -> list[str]:
    """What a CPU leaves out, for it would take twice its minutes."""
    if not hidden(found) or not found.judged:
        return []
    return [
        f"{_rarely(found)}: a second training, on what this one finds, is likely to be better (--refine 1), "
        "and takes as long again"
    ]


def hidden(found: Fingerprint) -> bool:
    """Whether some class cannot be told from what is around it by its brightness."""
    return min(one.visible for one in found.classes) < VISIBLE


def _rarely(found: Fingerprint) -> str:
    shown = min(one.visible for one in found.classes)
    return f"objects can be told from their surroundings in {shown:.0%} of boxes"
