"""Annotations in the grid of a prepared set, whose slices are of another in-plane size than the source's.

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
from ringfence.weak.annotations.joining import joined_slices
from ringfence.weak.annotations.ragged import Box, padded_boxes
from ringfence.weak.prepared.prepared_set import Case

Annotation = TypeVar("Annotation", BoxAnnotation, SizeAnnotation)


def place_boxes(
    annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> NDArray[np.int64]:
    """The boxes of a case's slices: ``[slices, classes, objects, 2, 2]``, start and stop of rows and of columns.

    Boxes of a slice and class are ordered by where they begin, and padded with empty ones (start = stop = 0) to the
    largest number, at least 1. A box in 3-D is refused: it is not tight in each slice.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    lists: list[list[Box]] = [[] for _ in range(case.shape[0] * classes)]
    for one in _of(annotations, case, classes):
        if one.slice is None:
            raise ValueError(
                f"{case.title} has a box in 3-D, of class {one.label}, which is not tight in every slice: give "
                "boxes for slices, or train on volumes"
            )
        scaled = _scaled(one.low, one.high, case.shape[1:], size)
        lists[one.slice * classes + one.label - 1].append(scaled)
    boxes = padded_boxes(lists, 2)
    return boxes.reshape(case.shape[0], classes, *boxes.shape[1:])


def place_volume_boxes(
    annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> NDArray[np.int64]:
    """The boxes of a case as a volume: ``[classes, objects, 3, 2]``, start and stop of slices, rows and columns.

    A box given in 3-D is one object. Boxes of a class in neighbouring slices whose rows and columns overlap or
    touch are of one object, whose box goes from the first start to the last stop along every axis; they leave no
    gap along any, so that every plane across the box meets the object. Order and padding are as in place_boxes.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    lists: list[list[Box]] = [[] for _ in range(classes)]
    flat: list[list[BoxAnnotation]] = [[] for _ in range(classes)]
    new = (case.shape[0], *size)
    for one in _of(annotations, case, classes):
        if one.slice is None:
            lists[one.label - 1].append(_scaled(one.low, one.high, case.shape, new))
        else:
            flat[one.label - 1].append(one)
    for boxes, some in zip(lists, flat, strict=True):
        boxes.extend(_scaled(low, high, case.shape, new) for low, high in joined_slices(some))
    return padded_boxes(lists, 3)


def place_sizes(
    annotations: Iterable[SizeAnnotation], case: Case, size: tuple[int, int], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The bounds of a case's slices, in the prepared set's pixels: low and high, each ``[slices, classes]``.

    Areas scale as height times width does. -inf and inf where no bound is given.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    low, high = _unbounded((case.shape[0], classes))
    some = _of(annotations, case, classes)
    in_slices = {one.label for one in some if one.slice is not None}
    for one in some:
        if one.slice is not None:
            low[one.slice, one.label - 1], high[one.slice, one.label - 1] = one.low, one.high
        elif one.label not in in_slices:
            raise ValueError(
                f"{case.title} has bounds on the size of class {one.label} in the whole volume only: give some for "
                "slices, or train on volumes"
            )
    return _in_pixels(low, case, size), _in_pixels(high, case, size)


def place_volume_sizes(
    annotations: Iterable[SizeAnnotation], case: Case, size: tuple[int, int], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The bounds of a case as a volume, in the prepared set's voxels: low and high, each ``[classes]``.

    What was given for the whole volume, or else what follows from the slices: at least the sum of their lower
    bounds and, if every slice has an upper one, at most the sum of those.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    low, high = _unbounded((classes,))
    every = _of(annotations, case, classes)
    for label in sorted({one.label for one in every}):
        some = [one for one in every if one.label == label]
        whole = [one for one in some if one.slice is None]
        if whole:
            low[label - 1], high[label - 1] = whole[-1].low, whole[-1].high
            continue
        lows = [one.low for one in some if math.isfinite(one.low)]
        low[label - 1] = sum(lows) if lows else -np.inf
        high[label - 1] = sum(one.high for one in some) if len(some) == case.shape[0] else np.inf
    return _in_pixels(low, case, size), _in_pixels(high, case, size)


def _of(annotations: Iterable[Annotation], case: Case, classes: int) -> list[Annotation]:
    some = [one for one in annotations if one.case == case.name]
    for one in some:
        if not 1 <= one.label <= classes:
            raise ValueError(
                f"an annotation of {case.title} is of class {one.label}; labels are from 1 to {classes}"
            )
    return some


def _scaled(low: Sequence[int], high: Sequence[int], old: Sequence[int], new: Sequence[int]) -> Box:
    """Rounded down and up in whole numbers, so that nothing is off by one for the sake of floating point."""
    return tuple(
        (start * after // before, -(-stop * after // before))
        for start, stop, before, after in zip(low, high, old, new, strict=True)
    )


def _unbounded(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.full(shape, -np.inf), np.full(shape, np.inf)


def _in_pixels(bounds: NDArray[np.float64], case: Case, size: tuple[int, int]) -> NDArray[np.float32]:
    scaled: NDArray[np.float64] = bounds * (math.prod(size) / math.prod(case.shape[1:]))
    return scaled.astype(np.float32)
