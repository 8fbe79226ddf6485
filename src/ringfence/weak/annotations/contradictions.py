"""Labels that contradict each other: no mask could satisfy both. A line each, with case and slice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringfence.hints import one_line
from ringfence.weak.annotations.annotation import BoxAnnotation, ScribblePoint, SizeAnnotation
from ringfence.weak.annotations.parsing import place_name
from ringfence.weak.annotations.scribbles import class_name
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tables.problems import Problems

Labels: TypeAlias = tuple[Sequence[BoxAnnotation] | None, Sequence[SizeAnnotation], Sequence[ScribblePoint]]
"""Boxes (None where they are taken from masks), bounds on sizes, scribbles."""
Label = TypeVar("Label", SizeAnnotation, ScribblePoint)
Key: TypeAlias = tuple[str, int, int]
"""Case, slice and class."""


def check_agreement(labels: Labels, prepared: PreparedSet) -> None:
    """Refuse labels that contradict each other, with up to ten lines that say where."""
    problems = Problems(f"labels of {prepared.path} contradict each other; correct one of the two")
    for line in contradictions(labels, prepared):
        problems.note(line)
        if problems.enough:
            break
    problems.check()


def contradictions(labels: Labels, prepared: PreparedSet) -> Iterator[str]:
    """A line for each place where labels contradict each other: boxes, sizes, scribbles, and masks where they are.

    Args:
        labels: all of them; boxes as they are trained with, those of slices that were left out among them.
        prepared: the set that they are for.
    """
    boxes, sizes, scribbles = labels
    if boxes is not None:
        room = _Room(boxes)
        yield from _sizes_and_boxes(sizes, room, prepared)
        yield from _scribbles_and_boxes(scribbles, room, prepared)
    yield from _slices_and_volumes(sizes, prepared)
    bounds, marks = _by_case(sizes), _by_case(scribbles if boxes is None else ())
    for case in prepared.cases:
        ours, points = bounds[case.name], marks[case.name]
        if case.masked and (ours or points):
            mask = prepared.load(case)[1]
            if mask is not None:
                mask = case.frame(prepared.size).cut(mask)
                yield from _sizes_and_mask(ours, mask, case, prepared)
                yield from _scribbles_and_mask(points, mask, case, prepared)


class _Room:
    """Where boxes leave room for a class.

    Args:
        boxes: all of them.
    """

    def __init__(self, boxes: Iterable[BoxAnnotation]) -> None:
        self.cases = {one.case for one in boxes}
        self._of: defaultdict[tuple[str, int], list[BoxAnnotation]] = defaultdict(list)
        for one in boxes:
            self._of[one.case, one.label].append(one)

    def volume(self, case: str, label: int) -> int:
        """Voxels in all boxes of a class."""
        return sum(_content(one) for one in self._of[case, label])

    def within(self, case: str, number: int, label: int) -> list[BoxAnnotation]:
        """The boxes of a class in a slice, each as one of that slice; one in 3-D is not tight there."""
        found = []
        for one in self._of[case, label]:
            if one.slice == number:
                found.append(one)
            elif one.slice is None and one.low[0] <= number < one.high[0]:
                found.append(BoxAnnotation(case, number, label, one.low[1:], one.high[1:], tight=False))
        return found


def _sizes_and_boxes(sizes: Iterable[SizeAnnotation], room: _Room, prepared: PreparedSet) -> Iterator[str]:
    for one in sizes:
        if one.case not in room.cases:
            continue
        name, place = _name(one, prepared), _place(one.case, one.slice)
        boxes = [] if one.slice is None else room.within(one.case, one.slice, one.label)
        most = room.volume(one.case, one.label) if one.slice is None else sum(map(_content, boxes))
        if max(one.low, 0) > most:
            holds = f"its boxes hold {most}" if most else "there is no box of it"
            yield f"{place}: at least {one.low:.10g} voxels of {name} are asked for, and {holds}"
        # each line across a tight box meets the object
        least = max((max(_sides(box)) for box in boxes if box.tight), default=0)
        if one.high < least:
            yield (
                f"{place}: at most {one.high:.10g} voxels of {name} are asked for, and an object that touches all "
                f"sides of its box has at least {least}"
            )


def _scribbles_and_boxes(points: Iterable[ScribblePoint], room: _Room, prepared: PreparedSet) -> Iterator[str]:
    for key, some in _by_place(points).items():
        if key[0] not in room.cases or key[2] == 0:
            continue
        boxes = room.within(*key)
        if outside := [one for one in some if not any(_holds(box, one) for box in boxes)]:
            where = "outside of all its boxes there" if boxes else "where no box says that it is"
            yield _outside(outside, where, prepared)


def _slices_and_volumes(sizes: Iterable[SizeAnnotation], prepared: PreparedSet) -> Iterator[str]:
    """What slices hold at least, against what the volume holds at most."""
    low: defaultdict[tuple[str, int], float] = defaultdict(float)
    for one in sizes:
        if one.slice is not None:
            low[one.case, one.label] += max(one.low, 0.0)
    for one in sizes:
        if one.slice is None and low[one.case, one.label] > one.high:
            yield (
                f"{_place(one.case, None)}: at most {one.high:.10g} voxels of {_name(one, prepared)} are asked for "
                f"in the volume, and at least {low[one.case, one.label]:.10g} in its slices"
            )


def _sizes_and_mask(
    sizes: Iterable[SizeAnnotation], mask: NDArray[np.uint8], case: Case, prepared: PreparedSet
) -> Iterator[str]:
    frame = case.frame(prepared.size)
    scale = math.prod(frame.native) / math.prod(frame.size)
    for one in sizes:
        counts = (mask == one.label).sum(axis=(1, 2))
        counts = counts if one.slice is None else counts[one.slice : one.slice + 1]
        # half a pixel around each slice's object may have been lost or won, when it was resized
        leeway = scale * float((2.0 * np.sqrt(counts) + 2.0).sum()) if frame.resized else 0.0
        found = scale * int(counts.sum())
        for wrong, side, bound in (
            (found + leeway < one.low, "at least", one.low),
            (found - leeway > one.high, "at most", one.high),
        ):
            if wrong:
                yield (
                    f"{_place(case.name, one.slice)}: the mask has {found:.0f} voxels of {_name(one, prepared)}, "
                    f"and {side} {bound:.10g} are asked for"
                )


def _scribbles_and_mask(
    points: Iterable[ScribblePoint], mask: NDArray[np.uint8], case: Case, prepared: PreparedSet
) -> Iterator[str]:
    """Against the box around the mask, a pixel wider where slices were resized."""
    frame = case.frame(prepared.size)
    scales = [after / before for before, after in zip(frame.native, frame.size, strict=True)]
    leeway = float(frame.resized)
    for (_, number, label), some in _by_place(points).items():
        if label == 0:
            continue
        there = np.argwhere(mask[number] == label)
        outside = list(some)
        if len(there):
            low, high = there.min(axis=0) - leeway, there.max(axis=0) + 1 + leeway
            outside = [
                one
                for one in some
                if not all(
                    first <= (place + 0.5) * scale < last
                    for place, scale, first, last in zip((one.row, one.column), scales, low, high, strict=True)
                )
            ]
        if outside:
            where = "outside of the box around its mask" if len(there) else "where the mask has none of it"
            yield _outside(outside, where, prepared)


def _outside(points: Sequence[ScribblePoint], where: str, prepared: PreparedSet) -> str:
    first, many = points[0], len(points) > 1
    count = f"{len(points)} points" if many else "a point"
    return (
        f"{_place(first.case, first.slice)}: {count} of a scribble of {_name(first, prepared)} "
        f"({'the first ' * many}at row {first.row}, column {first.column}) {'are' if many else 'is'} {where}"
    )


def _by_case(labels: Iterable[Label]) -> defaultdict[str, list[Label]]:
    found: defaultdict[str, list[Label]] = defaultdict(list)
    for one in labels:
        found[one.case].append(one)
    return found


def _by_place(points: Iterable[ScribblePoint]) -> dict[Key, list[ScribblePoint]]:
    found: defaultdict[Key, list[ScribblePoint]] = defaultdict(list)
    for one in points:
        found[one.case, one.slice, one.label].append(one)
    return dict(sorted(found.items()))


def _holds(box: BoxAnnotation, point: ScribblePoint) -> bool:
    return box.low[0] <= point.row < box.high[0] and box.low[1] <= point.column < box.high[1]


def _sides(box: BoxAnnotation) -> list[int]:
    return [stop - start for start, stop in zip(box.low, box.high, strict=True)]


def _content(box: BoxAnnotation) -> int:
    return math.prod(_sides(box))


def _name(one: SizeAnnotation | ScribblePoint, prepared: PreparedSet) -> str:
    return one_line(class_name(one.label, prepared))


def _place(case: str, number: int | None) -> str:
    return place_name(one_line(case), number)
