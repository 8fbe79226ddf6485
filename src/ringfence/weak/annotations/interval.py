"""From where to where a box goes along one axis, in whole voxels."""

from __future__ import annotations

import math
from typing import Final

from ringfence.weak.prepared.prepared_set import Case

AXES: Final = ("slices", "rows", "columns")
NOISE: Final = 1e-3
"""Voxels: what tools export in single precision ends at 302.00001, and would otherwise reach into one more."""


def extent(low: float, high: float, names: tuple[str, str], axis: int, case: Case) -> tuple[int, int]:
    """First voxel and one past the last, of all those that [low, high) touches.

    Args:
        low: where the box begins; voxel p is from p to p + 1.
        high: where it ends.
        names: of both, for messages.
        axis: 0 slices, 1 rows, 2 columns of the volume.
        case: where the box must lie.
    """
    given, length = f"{names[0]} {low:.10g} and {names[1]} {high:.10g}", case.shape[axis]
    if low > high:
        raise ValueError(f"{given}: the lower end is above the upper one; swap them")
    start, stop = math.floor(low + NOISE), math.ceil(high - NOISE)
    if stop <= start:
        raise ValueError(
            f"{given}: nothing is between them. {names[1]} is one past the last: if yours is the last one itself, "
            "add 1 to all of them"
        )
    if start < 0 or stop > length:
        where = "entirely beyond" if start >= length or stop <= 0 else "not within"
        raise ValueError(
            f"{given}: {where} the {length} {AXES[axis]} of {case.title}, 0 to {length}; boxes are in voxels of "
            "the source, before it is resized"
        )
    return start, stop
