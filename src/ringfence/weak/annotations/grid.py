"""Annotations in the grid of a prepared set, whose slices are of another in-plane size than the source's.

Where a case's slices are in prepared ones, its ``frame`` says: all over them, or within, at a common spacing.

A box becomes the smallest one of whole pixels that contains the scaled one: its start is rounded down, its stop up.
"Nothing outside of the box" must stay true, and with rounding to the nearest pixel it would not: part of the object
would be outside. The price is that a line along a side may meet only a part of a pixel of the object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.annotations.annotation import BoxAnnotation, SizeAnnotation
from ringfence.weak.annotations.joining import joined_slices
from ringfence.weak.annotations.ragged import Box, padded_boxes
from ringfence.weak.prepared.prepared_set import Case

Annotation = TypeVar("Annotation", BoxAnnotation, SizeAnnotation)
Promises: TypeAlias = dict[Box, tuple[bool, ...]]
"""Boxes, and along which axes each is whole."""


class Placed(NamedTuple):
    """Boxes in the grid, and what they promise.

    Attributes:
        boxes: int64 ``[..., objects, axes, 2]``, start and stop; empty ones (start = stop = 0) at the end.
        whole: bool ``[..., objects, axes]``: whether every line (plane) across the box, perpendicular to the axis,
            meets the object. True of empty ones.
    """

    boxes: NDArray[np.int64]
    whole: NDArray[np.bool_]


def place_boxes(annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int) -> Placed:
    """The boxes of a case's slices: ``[slices, classes, objects, 2, 2]``, start and stop of rows and of columns.

    Boxes of a slice and class are ordered by where they begin, and padded with empty ones (start = stop = 0) to the
    largest number, at least 1. A box in 3-D is in each of its slices, where nothing says that the object touches
    its sides: the object is within, and no line has to meet it.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    lists: list[Promises] = [{} for _ in range(case.shape[0] * classes)]
    for one in _of(annotations, case, classes):
        flat = one.slice is not None or one.high[0] - one.low[0] == 1
        scaled = _scaled(one.low[-2:], one.high[-2:], case, size)
        for number in range(one.low[0], one.high[0]) if one.slice is None else (one.slice,):
            _promise(lists[number * classes + one.label - 1], scaled, (flat and one.tight,) * 2)
    boxes, whole = _placed(lists, 2)
    each = case.shape[0], classes
    return Placed(boxes.reshape(*each, *boxes.shape[1:]), whole.reshape(*each, *whole.shape[1:]))


def exact_boxes(
    annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int]
) -> dict[tuple[int, int, Box], NDArray[np.float64]]:
    """The boxes of a case's slices before they are rounded: ``[2, 2]``, by slice, label and the rounded box.

    Args:
        annotations: of this case; others are left out, as are boxes in 3-D.
        case: the case.
        size: height and width in the prepared set.
    """
    frame = case.frame(size)
    first, scale = np.array(frame.start)[:, None], np.divide(frame.size, frame.native)[:, None]
    found = {}
    for one in annotations:
        if one.case == case.name and one.slice is not None:
            ends = first + scale * np.stack([one.low, one.high], axis=-1)
            found[one.slice, one.label, _scaled(one.low, one.high, case, size)] = ends
    return found


def place_volume_boxes(
    annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> Placed:
    """The boxes of a case as a volume: ``[classes, objects, 3, 2]``, start and stop of slices, rows and columns.

    A box in a slice is one slice deep: lines across its rows and columns meet the object, and nothing is promised
    along its depth. A box given in 3-D stays one, and every plane across it meets the object. Order and padding
    are as in place_boxes.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    lists: list[Promises] = [{} for _ in range(classes)]
    for one in _of(annotations, case, classes):
        if one.slice is None:
            low, high, deep = one.low, one.high, True
        else:
            low, high, deep = (one.slice, *one.low), (one.slice + 1, *one.high), False
        _promise(lists[one.label - 1], _scaled(low, high, case, size), (deep, one.tight, one.tight))
    return _placed(lists, 3)


def place_objects(
    annotations: Iterable[BoxAnnotation], case: Case, size: tuple[int, int], classes: int
) -> NDArray[np.int64]:
    """The box around each object of a case as a volume: ``[classes, objects, 3, 2]``.

    A box given in 3-D is one object. Boxes of a class in neighbouring slices whose rows and columns overlap or
    touch are of one object, whose box goes from the first start to the last stop along every axis; they leave no
    gap along any, so that every plane across the box meets the object. Order and padding are as in place_boxes.
    Boxes that nobody drew join nothing.

    Args:
        annotations: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
        classes: how many there are.
    """
    lists: list[list[Box]] = [[] for _ in range(classes)]
    flat: list[list[BoxAnnotation]] = [[] for _ in range(classes)]
    for one in _of(annotations, case, classes):
        if one.slice is None:
            lists[one.label - 1].append(_scaled(one.low, one.high, case, size))
        elif one.tight:
            flat[one.label - 1].append(one)
    for boxes, some in zip(lists, flat, strict=True):
        boxes.extend(_scaled(low, high, case, size) for low, high in joined_slices(some))
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


def _promise(promises: Promises, box: Box, whole: tuple[bool, ...]) -> None:
    """Note a box; of the same one twice, what either promises is true."""
    before = promises.get(box, (False,) * len(whole))
    promises[box] = tuple(one or other for one, other in zip(before, whole, strict=True))


def _placed(lists: Sequence[Promises], axes: int) -> Placed:
    boxes = padded_boxes(lists, axes)
    whole = np.ones(boxes.shape[:-1], np.bool_)
    for row, flags, promises in zip(boxes, whole, lists, strict=True):
        for place in range(len(promises)):
            flags[place] = promises[tuple((start, stop) for start, stop in row[place].tolist())]
    return Placed(boxes, whole)


def _of(annotations: Iterable[Annotation], case: Case, classes: int) -> list[Annotation]:
    some = [one for one in annotations if one.case == case.name]
    for one in some:
        if not 1 <= one.label <= classes:
            raise ValueError(
                f"an annotation of {case.title} is of class {one.label}; labels are from 1 to {classes}"
            )
    return some


def _scaled(low: Sequence[int], high: Sequence[int], case: Case, size: tuple[int, int]) -> Box:
    """Rounded down and up in whole numbers, so that nothing is off by one for the sake of floating point."""
    frame = case.frame(size)
    in_plane = tuple(
        (first + start * after // before, first - (-stop * after // before))
        for first, start, stop, before, after in zip(
            frame.start, low[-2:], high[-2:], frame.native, frame.size, strict=True
        )
    )
    return (*zip(low[:-2], high[:-2], strict=True), *in_plane)


def _unbounded(shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.full(shape, -np.inf), np.full(shape, np.inf)


def _in_pixels(bounds: NDArray[np.float64], case: Case, size: tuple[int, int]) -> NDArray[np.float32]:
    scaled: NDArray[np.float64] = bounds * (math.prod(case.frame(size).size) / math.prod(case.shape[1:]))
    return scaled.astype(np.float32)
