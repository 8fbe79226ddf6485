"""Which boxes lie in others, and which pixels in any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.int64]
WITHIN: Final = 0.95
"""The fraction of a box that lies in another for it to count as being within it."""


def lies_in(inner: Boxes, outer: Boxes) -> NDArray[np.bool_]:
    """Whether boxes ``[..., 2, 2]`` lie in others, each in the one that broadcasting puts beside it."""
    low, high = np.maximum(inner[..., 0], outer[..., 0]), np.minimum(inner[..., 1], outer[..., 1])
    lies: NDArray[np.bool_] = (high - low).clip(min=0).prod(axis=-1) >= WITHIN * area_of(inner)
    return lies


def area_of(boxes: Boxes) -> NDArray[np.int64]:
    """Pixels of each box ``[..., 2, 2]``."""
    area: NDArray[np.int64] = (boxes[..., 1] - boxes[..., 0]).prod(axis=-1)
    return area


def in_any(boxes: Boxes, size: Sequence[int], by: int = 0) -> NDArray[np.bool_]:
    """Which pixels of a slice are in some box ``[n, 2, 2]``, or within so many pixels of it."""
    found = np.zeros(size, dtype=bool)
    for (top, bottom), (left, right) in boxes:
        found[max(top - by, 0) : bottom + by, max(left - by, 0) : right + by] = True
    return found
