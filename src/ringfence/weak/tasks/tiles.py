"""Tiles of a volume: they overlap, and each voxel is judged in the tile whose border is farthest from it.

A network sees little of what is around a voxel at the border of a tile. `predict` averages patches that overlap by
half; validation, which looks at every case after every epoch, has fewer tiles, and judges each voxel once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

OVERLAP: Final = 0.25
"""Of neighbouring tiles, at least, as a fraction of their size."""


def tile_starts(length: int, size: int) -> list[int]:
    """Where tiles begin along an axis: evenly spaced, the last one ending where the volume does.

    Args:
        length: of the volume.
        size: of a tile; a shorter volume has one, which goes beyond its end.
    """
    if length <= size:
        return [0]
    farthest = max(1, int(size * (1.0 - OVERLAP)))  # a tile of one voxel cannot overlap
    gaps = math.ceil((length - size) / farthest)
    return [(length - size) * number // gaps for number in range(gaps + 1)]


def judged_part(length: int, size: int, start: int) -> slice:
    """What is judged of the tile that begins at ``start``, counted from there: up to the middle of each overlap."""
    starts = tile_starts(length, size)
    number = starts.index(start)
    first = (starts[number - 1] + size - start) // 2 if number > 0 else 0
    last = (start + size + starts[number + 1]) // 2 - start if number + 1 < len(starts) else min(size, length)
    return slice(first, last)


def judged_window(space: Sequence[int], size: Sequence[int], start: Sequence[int]) -> tuple[slice, ...]:
    """``judged_part`` along each axis of a volume."""
    return tuple(map(judged_part, space, size, start))
