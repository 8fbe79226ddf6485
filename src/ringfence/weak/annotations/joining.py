"""Which boxes of slices are of one object: those that meet across neighbouring slices, or across a few left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    matrices = require("scipy.sparse", "boxes of volumes", "train")
    low = np.array([(one.slice, *one.low) for one in boxes])
    high = np.array([(one.slice, *one.high) for one in boxes])
    high[:, 0] += 1
    order = np.argsort(low[:, 0], kind="stable")
    numbers, first = np.unique(low[order, 0], return_index=True)
    by_slice = dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for number, here in by_slice.items():
        there = by_slice.get(number + 1, here[:0])  # not all pairs of boxes: there may be very many
        meet = (low[here, None, 1:] <= high[None, there, 1:]) & (low[None, there, 1:] <= high[here, None, 1:])
        one, other = np.nonzero(meet.all(axis=-1))
        pairs.append(np.stack([here[one], there[other]], axis=1))
    edges = np.concatenate(pairs)
    graph = matrices.coo_array((np.ones(len(edges)), edges.T), shape=(len(boxes), len(boxes)))
    _, groups = graphs.connected_components(graph, directed=False)
    order = np.argsort(groups, kind="stable")
    _, first = np.unique(groups[order], return_index=True)
    lows, highs = np.minimum.reduceat(low[order], first), np.maximum.reduceat(high[order], first)
    yield from zip(lows.tolist(), highs.tolist(), strict=True)


def left_out(boxes: Iterable[BoxAnnotation], gap: int) -> list[BoxAnnotation]:
    """Boxes for slices that the annotator left out, each the hull of the two that it lies between; not tight.

    Two boxes of a class whose rows and columns both overlap or touch, with 1 to ``gap`` slices between them, are of
    one object, which is in those slices, too; unless either meets a box that is nearer to it on that side.

    Args:
        boxes: of any cases and classes; those in 3-D leave nothing out.
        gap: the most slices that may be missing between two boxes of an object.
    """
    slices: dict[tuple[str, int], dict[int, list[BoxAnnotation]]] = {}
    for one in boxes:
        if one.slice is not None:
            slices.setdefault((one.case, one.label), {}).setdefault(one.slice, []).append(one)
    found: dict[BoxAnnotation, None] = {}  # in order, and each once
    for (case, label), there in slices.items():
        for first, one in ((number, one) for number in sorted(there) for one in there[number]):
            last, nearest = _nearest(one, there, range(first + 1, first + gap + 2))
            for other in nearest:
                if one not in _nearest(other, there, range(last - 1, last - gap - 2, -1))[1]:
                    continue
                low, high = tuple(map(min, one.low, other.low)), tuple(map(max, one.high, other.high))
                for number in range(first + 1, last):
                    found[BoxAnnotation(case, number, label, low, high, tight=False)] = None
    return list(found)


def _nearest(
    one: BoxAnnotation, slices: Mapping[int, Sequence[BoxAnnotation]], numbers: Sequence[int]
) -> tuple[int, list[BoxAnnotation]]:
    """The first slice of these that has boxes which meet this one, and those."""
    for number in numbers:
        if met := [other for other in slices.get(number, ()) if _meet(one, other)]:
            return number, met
    return 0, []


def _meet(one: BoxAnnotation, other: BoxAnnotation) -> bool:
    """Whether their rows and their columns overlap or touch."""
    ends = zip(one.low, one.high, other.low, other.high, strict=True)
    return all(start <= last and first <= stop for start, stop, first, last in ends)
