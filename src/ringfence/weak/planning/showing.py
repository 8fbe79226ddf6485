"""What of a set's objects shows: in how many boxes, how much of them they fill, and how loose boxes are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.annotations.grid import exact_boxes
from ringfence.weak.appearance.delineation import filled
from ringfence.weak.appearance.looks import Look, looks
from ringfence.weak.appearance.overlap import in_any
from ringfence.weak.planning.looseness import DEPTHS, looseness, profile
from ringfence.weak.prepared.prepared_set import Case, PreparedSet

Boxes = NDArray[np.int64]
SOME_CASES, SOME_SLICES = 16, 6
"""At most as many cases, and slices of each, are looked at for what objects look like."""
ENOUGH: Final = 10
"""Boxes of a class that show their object, whose sides together say how much too wide they are drawn."""
MANY: Final = 48
"""Lines across a box that are looked at, or up to twice as many: hundreds would say the same, more slowly."""
CLOSE: Final = 32
"""Pixels along the shorter side of a box, below which a closer look says what its object fills."""


def what_shows(
    prepared: PreparedSet,
    cases: Sequence[Case],
    found: Sequence[tuple[Boxes, NDArray[np.bool_]]],
    drawn: Sequence[BoxAnnotation],
) -> list[dict[str, Any]]:
    """Of each class's boxes in some slices of some cases, how many show their object, and what these say.

    Args:
        prepared: the set.
        cases: of it, for training.
        found: boxes ``[slices, classes, objects, 2, 2]`` of each case, and which of them are tight.
        drawn: boxes of a file as they are before they are rounded.

    Returns:
        For each class ``visible``, ``fill``, ``loose`` and ``looked``, as ``ClassFacts`` has them.
    """
    seen: list[list[float | None]] = [[] for _ in prepared.classes]
    profiles = np.zeros((len(prepared.classes), len(DEPTHS), 2))
    for case, (boxes, tight) in _some(list(zip(cases, found, strict=True)), SOME_CASES):
        there = np.flatnonzero(((boxes[..., 1] > boxes[..., 0]).all(axis=-1) & tight).any(axis=(1, 2)))
        if not len(there):
            continue
        image, _ = prepared.load(case)
        exact, known = exact_boxes(drawn, case, prepared.size), case.frame(prepared.size).known
        for row in _some(there.tolist(), SOME_SLICES):
            every = boxes[row].reshape(-1, 2, 2)
            for look in looks(image[row], boxes[row], tight[row], MANY, known):
                seen[look.number].append(_fill(image[row], look))
                if look.fill is not None:
                    others = ~known | in_any(every[(every != look.box).any(axis=(1, 2))], image.shape[2:])
                    rounded = tuple((low, high) for low, high in look.box.tolist())
                    ends = exact.get((row, 1 + look.number, rounded))
                    profiles[look.number] += profile(image[row], look, others, ends)
    fills = [[one for one in some if one is not None] for some in seen]
    return [
        {
            "visible": len(told) / max(len(some), 1),
            "fill": float(np.median(told)) if told else 1.0,
            "loose": looseness(of_class) if len(told) >= ENOUGH else None,
            "looked": len(some),
        }
        for some, told, of_class in zip(seen, fills, profiles, strict=True)
    ]


def _fill(image: NDArray[np.uint8], look: Look) -> float | None:
    """What an object that shows fills of its box: of a small box by a closer look, if that tells it apart, too."""
    if look.fill is None or (look.box[:, 1] - look.box[:, 0]).min() >= CLOSE:
        return look.fill
    closer = filled(image, look)
    return look.fill if closer is None else closer


def _some(every: Sequence[Any], most: int) -> Sequence[Any]:
    """No more than so many, evenly spread."""
    return every[:: max(1, math.ceil(len(every) / most))]
