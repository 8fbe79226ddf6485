"""Which boxes of slices are of one object: those that meet across neighbouring slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from ringfence.extras import require
from ringfence.weak.annotations.annotation import BoxAnnotation

Corners: TypeAlias = tuple[list[int], list[int]]
"""First slice, row and column; one past the last of each."""


def joined_slices(boxes: Sequence[BoxAnnotation]) -> Iterator[Corners]:
    """The 3-D box around each object, from its boxes in slices.

    Two boxes belong together if their slices are neighbours and both their rows and their columns overlap or touch.
    So the boxes of an object leave no gap along any axis. Boxes of one slice are joined only through another slice:
    a branch that comes back is one object.

    Args:
        boxes: of one class of a case, each in a slice.
    """
    if not boxes:
        return
    graphs = require("scipy.sparse.csgraph", "boxes of volumes", "train")
    low = np.array([(one.slice, *one.low) for one in boxes])
    high = np.array([(one.slice, *one.high) for one in boxes])
    high[:, 0] += 1
    beside = np.abs(low[:, None, 0] - low[None, :, 0]) == 1
    meet = ((low[:, None, 1:] <= high[None, :, 1:]) & (low[None, :, 1:] <= high[:, None, 1:])).all(axis=-1)
    count, groups = graphs.connected_components(beside & meet, directed=False)
    for group in range(count):
        yield low[groups == group].min(axis=0).tolist(), high[groups == group].max(axis=0).tolist()
