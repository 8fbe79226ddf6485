"""Which way round images are: a class that is always on the same side of another one, or of the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.hints import one_line

Boxes = NDArray[np.int64]
FEWEST: Final = 6
"""Cases that must say so: in five, one of several classes is on a side by chance too often."""
NEARLY: Final = 0.9
"""Of a case's slices, those in which a class is on its side: the mean over cases."""
BESIDE: Final = 0.5
"""Of how far apart the centres of two boxes that touch are: nearer ones are not beside each other."""


@dataclass(frozen=True)
class Sided:
    """A class that is always on one side.

    Attributes:
        name: of the class.
        other: the class that it is beside; None: the image's middle.
        left: whether it is on the left of that, as slices are stored.
        share: of slices that show it (and the other), those in which it is there: the mean over cases.
    """

    name: str
    other: str | None
    left: bool
    share: float

    def __str__(self) -> str:
        side = "left" if self.left else "right"
        where = f"in the {side} half" if self.other is None else f"{side} of {one_line(self.other)}"
        return f"{one_line(self.name)} is {where} in {self.share:.0%} of the slices that show it"


def sided(names: Sequence[str], found: Sequence[Boxes], width: int) -> Sided | None:
    """The class that is on one side most often, or None: a mirrored image would have it where it never is.

    Args:
        names: of the classes.
        found: boxes ``[slices, classes, objects, 2, 2]`` of each case.
        width: of slices, in pixels.
    """
    every = [*_of_image(names, found, width), *_of_each_other(names, found)]
    return max((one for one in every if one.share >= NEARLY), key=lambda one: one.share, default=None)


def _of_image(names: Sequence[str], found: Sequence[Boxes], width: int) -> Iterator[Sided]:
    """Of each class, how often all of it lies in the left half, and in the right one."""
    for number, name in enumerate(names):
        ends = [_columns(boxes[:, number]) for boxes in found]
        left = [high[some] <= width / 2 for some, _, high in ends]
        right = [low[some] >= width / 2 for some, low, _ in ends]
        yield from _shares(name, None, left, right)


def _of_each_other(names: Sequence[str], found: Sequence[Boxes]) -> Iterator[Sided]:
    """Of each pair of classes, how often one is on the left of the other, and on the right."""
    for one, other in combinations(range(len(names)), 2):
        left: list[NDArray[np.bool_]] = []
        right: list[NDArray[np.bool_]] = []
        for boxes in found:
            (some, low, high), (others, start, stop) = _columns(boxes[:, one]), _columns(boxes[:, other])
            both = some & others
            apart = ((low + high) / 2 - (start + stop) / 2)[both]
            least = (BESIDE * (high - low + stop - start) / 2)[both]
            left.append(apart <= -least)
            right.append(apart >= least)
        yield from _shares(names[one], names[other], left, right)


def _columns(boxes: Boxes) -> tuple[NDArray[np.bool_], Boxes, Boxes]:
    """Of each slice, whether there is a box ``[objects, 2, 2]``, and where the first begins and the last ends."""
    there: NDArray[np.bool_] = np.all(boxes[..., 1] > boxes[..., 0], axis=-1)
    low = np.where(there, boxes[..., 1, 0], np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    high = np.where(there, boxes[..., 1, 1], 0).max(axis=1, initial=0)
    some: NDArray[np.bool_] = np.any(there, axis=1)
    return some, np.where(some, low, 0), high


def _shares(
    name: str, other: str | None, left: Sequence[NDArray[np.bool_]], right: Sequence[NDArray[np.bool_]]
) -> Iterator[Sided]:
    """Means over the cases in which there is any slice to say so."""
    for side, votes in ((True, left), (False, right)):
        shares = [float(one.mean()) for one in votes if len(one)]
        if len(shares) >= FEWEST:
            yield Sided(name, other, side, float(np.mean(shares)))
