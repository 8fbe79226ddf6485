"""Notes in the grid of a prepared set, whose slices are of another in-plane size than the source's.

A box becomes the smallest one of whole pixels that contains the scaled one: its start is rounded down, its stop up.
"Nothing outside of the box" must stay true, and with rounding to the nearest pixel it would not: part of the object
would be outside. The price is that a line along a side may meet only a part of a pixel of the object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.annotations.annotation import BoxAnnotation, SizeAnnotation
from ringfence.weak.annotations.interval import AXES
from ringfence.weak.prepared.prepared_set import Case

Note = TypeVar("Note", BoxAnnotation, SizeAnnotation)


def place_boxes(
    notes: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> NDArray[np.int64]:
    """The boxes of a case's slices: ``[slices, classes, 2, 2]``, start and stop of rows and of columns.

    Start = stop = 0 where a slice has no box of a class. A box in 3-D is refused: not tight in each slice.

    Args:
        notes: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    boxes = np.zeros((case.shape[0], classes, 2, 2), dtype=np.int64)
    for note in _of(notes, case, classes):
        if note.slice is None:
            raise ValueError(
                f"{case.name} has a box in 3-D, of class {note.label}, which is not tight in every slice: give "
                "boxes for slices, or train on volumes"
            )
        boxes[note.slice, note.label - 1] = _scaled(note.low, note.high, case.shape[1:], size)
    return boxes


def place_volume_boxes(
    notes: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> NDArray[np.int64]:
    """The boxes of a case as a volume: ``[classes, 3, 2]``, start and stop of slices, rows and columns.

    The box in 3-D that was given, or the one around the boxes of all slices; start = stop = 0 where there is none.
    Boxes with a gap between them are refused: a plane there would not meet the object.

    Args:
        notes: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    boxes = np.zeros((classes, 3, 2), dtype=np.int64)
    notes = _of(notes, case, classes)
    for label in sorted({note.label for note in notes}):
        some = [_in_3d(note) for note in notes if note.label == label]
        low, high = zip(
            *(_joined(case, label, axis, [one[axis] for one in some]) for axis in range(3)), strict=True
        )
        boxes[label - 1] = _scaled(low, high, case.shape, (case.shape[0], *size))
    return boxes


def place_sizes(
    notes: Iterable[SizeAnnotation], case: Case, size: tuple[int, int], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The bounds of a case's slices, in the prepared set's pixels: low and high, each ``[slices, classes]``.

    Areas scale as height times width does. -inf and inf where no bound is given.

    Args:
        notes: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    low, high = _unbounded((case.shape[0], classes))
    notes = _of(notes, case, classes)
    in_slices = {note.label for note in notes if note.slice is not None}
    for note in notes:
        if note.slice is not None:
            low[note.slice, note.label - 1], high[note.slice, note.label - 1] = note.low, note.high
        elif note.label not in in_slices:
            raise ValueError(
                f"{case.name} has bounds on the size of class {note.label} in the whole volume only: give some for "
                "slices, or train on volumes"
            )
    return _in_pixels(low, case, size), _in_pixels(high, case, size)


def place_volume_sizes(
    notes: Iterable[SizeAnnotation], case: Case, size: tuple[int, int], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The bounds of a case as a volume, in the prepared set's voxels: low and high, each ``[classes]``.

    What was given for the whole volume, or else what follows from the slices: at least the sum of their lower
    bounds and, if every slice has an upper one, at most the sum of those.

    Args:
        notes: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    low, high = _unbounded((classes,))
    notes = _of(notes, case, classes)
    for label in sorted({note.label for note in notes}):
        some = [note for note in notes if note.label == label]
        whole = [note for note in some if note.slice is None]
        if whole:
            low[label - 1], high[label - 1] = whole[-1].low, whole[-1].high
            continue
        lows = [note.low for note in some if math.isfinite(note.low)]
        low[label - 1] = sum(lows) if lows else -np.inf
        high[label - 1] = sum(note.high for note in some) if len(some) == case.shape[0] else np.inf
    return _in_pixels(low, case, size), _in_pixels(high, case, size)


def _of(notes: Iterable[Note], case: Case, classes: int) -> list[Note]:
    some = [note for note in notes if note.case == case.name]
    for note in some:
        if not 1 <= note.label <= classes:
            raise ValueError(f"a note on {case.name} is about class {note.label}; labels are from 1 to {classes}")
    return some


def _scaled(low: Sequence[int], high: Sequence[int], old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """Rounded down and up in whole numbers, so that nothing is off by one for the sake of floating point."""
    return [
        [start * after // before, -(-stop * after // before)]
        for start, stop, before, after in zip(low, high, old, new, strict=True)
    ]


def _in_3d(note: BoxAnnotation) -> list[tuple[int, int]]:
    ends = list(zip(note.low, note.high, strict=True))
    return ends if note.slice is None else [(note.slice, note.slice + 1), *ends]


def _joined(case: Case, label: int, axis: int, ends: list[tuple[int, int]]) -> tuple[int, int]:
    """From the first start to the last stop, if the intervals leave nothing out."""
    ends = sorted(ends)
    start, stop = ends[0]
    for low, high in ends[1:]:
        if low > stop:
            raise ValueError(
                f"{case.name}: boxes of class {label} leave out {AXES[axis]} {stop} to {low - 1}, so that the box "
                "around them all would not be tight: annotate what is missing, or give one box in 3-D instead"
            )
        stop = max(stop, high)
    return start, stop


def _unbounded(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.full(shape, -np.inf), np.full(shape, np.inf)


def _in_pixels(bounds: NDArray[np.float64], case: Case, size: tuple[int, int]) -> NDArray[np.float32]:
    scaled: NDArray[np.float64] = bounds * (math.prod(size) / math.prod(case.shape[1:]))
    return scaled.astype(np.float32)
