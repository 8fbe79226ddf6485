"""Whether the spacing of all cases is known."""

from __future__ import annotations

from ringfence.hints import listed
from ringfence.weak.prepared.prepared_set import PreparedSet


def missing_spacing(prepared: PreparedSet) -> list[str]:
    """A line that names the cases without a known spacing, where others have one; none if all are alike."""
    without = [case.name for case in prepared.cases if case.spacing is None]
    if not without or len(without) == len(prepared.cases):
        return []
    return [
        f"The spacing of {listed(without)} is not known, that of {len(prepared.cases) - len(without)} other cases "
        "is: what is measured in millimetres leaves them out, and slices were resized to one size, not to one "
        "spacing. Export them again, with the spacing in their headers."
    ]
