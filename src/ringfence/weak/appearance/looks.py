"""Whether objects can be told from what is around their boxes by brightness, and how much of a box they fill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from ringfence.weak.appearance.overlap import Boxes, area_of, in_any, lies_in
from ringfence.weak.appearance.telling import Numbers, Pixels, without_field
from ringfence.weak.constraints.edges import blurred

APART: Final = 2.0
"""Deviations between the means of an object and of its surroundings, from which on they are told apart."""
AROUND: Final = 0.5
"""How far surroundings reach, as a fraction of a box's sides; four pixels at least."""
SMALLEST: Final = 6
"""Pixels along the sides of boxes that are looked at."""
FEWEST, ENOUGH = 32, 0.5
"""Pixels of surroundings, and of them for each of the box, without which too little is known of them."""
LINES: Final = 0.8
"""Of the lines across a box, those that must meet what is told apart: something small in the object does not."""


@dataclass(frozen=True)
class Look:
    """A box and what is around it.

    Attributes:
        number: of the class, from 0.
        box: ``[2, 2]``: first pixel and one past the last, of rows and columns.
        rows: of the image, those that are looked at.
        columns: likewise.
        ring: bool ``[rows, columns]``: surroundings.
        inside: likewise: in the box, and not explained by another.
        smooth: ``[channels, rows, columns]``: the image, averaged over 3×3 pixels.
        field: likewise: how bright the image would be there without the object.
        fill: what the object fills of the rows and columns that it meets; None if it is not told apart.
        likely: how likely pixels ``inside`` are of the object.
        mean: by how much the object is brighter than its surroundings, in each channel.
        spread: the deviation of these.
    """

    number: int
    box: NDArray[np.int64]
    rows: slice
    columns: slice
    ring: Pixels
    inside: Pixels
    smooth: Numbers
    field: Numbers
    fill: float | None
    likely: Numbers
    mean: Numbers
    spread: Numbers


def looks(
    image: NDArray[np.uint8],
    boxes: NDArray[np.int64],
    tight: Pixels,
    lines: int | None = None,
    known: Pixels | None = None,
) -> Iterator[Look]:
    """Each box of a slice that can be looked at.

    Args:
        image: a slice ``[channels, height, width]``.
        boxes: ``[classes, objects, 2, 2]``, empty ones among them.
        tight: ``[classes, objects]``: whether a box is drawn around what is in this slice.
        lines: across a box that are looked at, or up to twice as many, if it has as many both ways; None: all.
        known: bool ``[height, width]``: pixels of the image, around which there is nothing (``Frame.known``); None:
            all of them.
    """
    known = np.ones(image.shape[1:], dtype=bool) if known is None else known
    smooth = _mean_of(image, known)
    number_of, every = _there(boxes)
    for number, box in zip(number_of, every, strict=True):
        whole = tight[number][(boxes[number] == box).all(axis=(1, 2))].any()
        if not whole or (box[:, 1] - box[:, 0]).min() < SMALLEST:
            continue
        rows, columns = _around(box, image.shape[1:], lines)
        around = _larger_around(box, every)  # what a box lies in is what surrounds it
        ring = (known & ~in_any(every[~around], image.shape[1:], by=1))[rows, columns]  # 3×3 reach farther
        others = every[(number_of != number) & ~around]
        own = known & in_any(box[None], image.shape[1:]) & ~in_any(others, image.shape[1:])
        inside = own[rows, columns]
        if ring.sum() >= max(FEWEST, ENOUGH * inside.sum()) and inside.any():
            seen = smooth[:, rows, columns]
            field, deviations, likely = without_field(seen, ring, inside)
            values = seen - field
            mean = (values[:, inside] * likely).sum(axis=1) / max(float(likely.sum()), 1e-9)
            spread = np.maximum(values[:, ring].std(axis=1), 1e-3)
            fill = _fill(deviations, likely, inside)
            yield Look(int(number), box, rows, columns, ring, inside, seen, field, fill, likely, mean, spread)


def _mean_of(image: NDArray[np.uint8], known: Pixels) -> Numbers:
    """Over 3×3 pixels, of those that are known."""
    both = torch.from_numpy(np.concatenate([image * known, known[None]])).double()
    *values, share = blurred(both[None], 2)[0].numpy()
    mean: Numbers = np.stack(values) / np.maximum(share, 0.1)
    return mean


def _there(boxes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The classes of boxes that are not empty, and these."""
    some = (boxes[..., 1] > boxes[..., 0]).all(axis=-1)
    return np.nonzero(some)[0], boxes[some]


def _larger_around(one: Boxes, every: Boxes) -> Pixels:
    """Which boxes are larger than one, and hold it."""
    return lies_in(one, every) & (area_of(every) > area_of(one))


def _fill(deviations: float, likely: Numbers, inside: Pixels) -> float | None:
    """What is unlike the ring, as a share of the rows and columns that it meets: a box may be too wide.

    None if it is not told apart, or meets too few of them.
    """
    found = np.zeros_like(inside)
    found[inside] = likely > 0.5
    return None if deviations < APART or lines_met(found, inside) < LINES else share_filled(found, inside)


def share_filled(found: Pixels, inside: Pixels) -> float:
    """What is found, as a share of the rows and columns of a box that it meets."""
    return float(found.sum() / inside[np.ix_(found.any(axis=1), found.any(axis=0))].sum())


def lines_met(found: Pixels, inside: Pixels) -> float:
    """The share of the rows or of the columns of a box that meet what is found in it, whichever is less."""
    return min(float(found.any(axis=axis).sum() / inside.any(axis=axis).sum()) for axis in (0, 1))


def _around(box: NDArray[np.int64], space: tuple[int, ...], lines: int | None) -> tuple[slice, slice]:
    """A box and its surroundings; of one that is large both ways, every so many-th row and column."""
    sides = box[:, 1] - box[:, 0]
    more = np.maximum(np.rint(AROUND * sides).astype(int), 4)
    low, high = np.maximum(box[:, 0] - more, 0), np.minimum(box[:, 1] + more, space)
    steps = [1 if lines is None or sides.min() < lines else int(side) // lines for side in sides]
    rows, columns = (slice(int(first), int(last), step) for first, last, step in zip(low, high, steps, strict=True))
    return rows, columns
