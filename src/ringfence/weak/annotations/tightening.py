"""Boxes that are drawn too wide, made smaller."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ringfence.weak.annotations.annotation import BoxAnnotation


def tightened(boxes: Iterable[BoxAnnotation], fraction: float) -> list[BoxAnnotation]:
    """Boxes whose rows and columns are fewer by this fraction of their number at either end, in whole voxels.

    Up to half a voxel is left alone, as are slices: a box is in them, or is not. Something is left of every box. A
    box that nobody drew, within which an object is without touching its sides, stays as it is.

    Args:
        boxes: in the source volume's voxels.
        fraction: from 0 to below a half.
    """
    return [_tightened(one, fraction) if one.tight else one for one in boxes]


def _tightened(box: BoxAnnotation, fraction: float) -> BoxAnnotation:
    low, high = list(box.low), list(box.high)
    for axis in (-2, -1):
        side = high[axis] - low[axis]
        off = min(math.ceil(fraction * side - 0.5), (side - 1) // 2)
        low[axis], high[axis] = low[axis] + off, high[axis] - off
    return replace(box, low=tuple(low), high=tuple(high))
