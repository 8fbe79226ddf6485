"""Voxels of bytes: as many as were promised, in this machine's order."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.volumes.content import Readable, fill

HANDLED: Final = 3
"""Times the voxels' bytes: what it takes to read, rank and scale a volume, together."""
_ORDER: Final = "<" if sys.byteorder == "little" else ">"


def read_array(source: Readable, count: int, kind: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """The next ``count`` numbers, and how many bytes there were for them: one more than needed if others follow."""
    stored: NDArray[np.uint8] = np.empty(count * kind.itemsize, np.uint8)
    found = fill(stored.data, source)
    numbers: NDArray[Any] = stored.view(kind)
    if kind.byteorder in ("=", "|", _ORDER):
        return numbers, found
    swapped: NDArray[Any] = numbers.byteswap(inplace=True).view(kind.newbyteorder("="))  # in the same memory
    return swapped, found
