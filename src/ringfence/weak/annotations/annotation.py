"""What an annotator says of a class in a slice or a volume: a box, bounds on a size, a point of a scribble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BoxAnnotation:
    """One box as the annotator gave it, in the source volume's voxels.

    Attributes:
        case: its name.
        slice: its number, from 0; None for a box in three dimensions.
        label: of the class, from 1.
        low: first row and column; first slice, row and column if ``slice`` is None.
        high: one past the last, likewise.
        tight: whether the object touches every side; of one that nobody drew, it is only known to be within.
    """

    case: str
    slice: int | None
    label: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    tight: bool = True


@dataclass(frozen=True)
class SizeAnnotation:
    """Bounds on a size as the annotator gave them, in the source volume's voxels.

    Attributes:
        case: its name.
        slice: its number, from 0; None if the bounds are on the whole volume.
        label: of the class, from 1.
        low: the least it may be; -inf if not given.
        high: the most it may be; inf if not given.
    """

    case: str
    slice: int | None
    label: int
    low: float
    high: float


@dataclass(frozen=True)
class ScribblePoint:
    """One voxel of a scribble, in the source volume's voxels.

    Attributes:
        case: its name.
        slice: its number, from 0.
        label: of the class, from 1; 0 is the background.
        row: from 0.
        column: from 0.
    """

    case: str
    slice: int
    label: int
    row: int
    column: int


def annotations_from_boxes(case: str, boxes: NDArray[np.int64]) -> list[BoxAnnotation]:
    """Boxes of one case as annotations; empty ones (start = stop) are left out.

    Args:
        case: its name.
        boxes: in the source's voxels, ``[slices, classes, objects, 2, 2]`` or, in three dimensions,
            ``[classes, objects, 3, 2]``.
    """
    if boxes.ndim == 5 and boxes.shape[3:] == (2, 2):
        return [one for number, some in enumerate(boxes) for one in _annotations(case, number, some)]
    if boxes.ndim == 4 and boxes.shape[2:] == (3, 2):
        return list(_annotations(case, None, boxes))
    raise ValueError(
        f"boxes of shape {list(boxes.shape)}: [slices, classes, objects, 2, 2] or [classes, objects, 3, 2] needed"
    )


def _annotations(case: str, number: int | None, boxes: NDArray[Any]) -> Iterator[BoxAnnotation]:
    for label, objects in enumerate(boxes.tolist(), start=1):
        for ends in objects:
            if all(start < stop for start, stop in ends):
                low, high = tuple(start for start, _ in ends), tuple(stop for _, stop in ends)
                yield BoxAnnotation(case, number, label, low, high)
