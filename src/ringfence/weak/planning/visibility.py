"""Whether objects can be told from what is around their boxes by brightness, and how much of a box they fill."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from ringfence.weak.constraints.edges import blurred
from ringfence.weak.planning.field import Numbers, smooth_field

VISIBLE: Final = 0.25
"""Of the boxes of a class, in which the object is told from its surroundings by brightness: enough to go by."""
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
MANY: Final = 48
"""Lines across a box that are looked at, or up to twice as many: hundreds would say the same, more slowly."""
ROUNDS: Final = 25
"""Of expectation and maximisation."""
FITS: Final = 4
"""Of the field of brightness, each with what the last one left unlike the surroundings."""


@dataclass(frozen=True)
class Look:
    """A box and what is around it.

    Attributes:
        number: of the class, from 0.
        box: ``[2, 2]``: first pixel and one past the last, of rows and columns.
        rows: of the image, those that are looked at.
        columns: likewise.
        field: ``[channels, rows, columns]``: how bright the image would be there without the object.
        fill: what the object fills of the rows and columns that it meets; None if it is not told apart.
        mean: by how much the object is brighter than its surroundings, in each channel.
        spread: the deviation of these.
    """

    number: int
    box: NDArray[np.int64]
    rows: slice
    columns: slice
    field: Numbers
    fill: float | None
    mean: Numbers
    spread: Numbers


def looks(image: NDArray[np.uint8], boxes: NDArray[np.int64], tight: NDArray[np.bool_]) -> Iterator[Look]:
    """Each box of a slice that can be looked at.

    Args:
        image: a slice ``[channels, height, width]``.
        boxes: ``[classes, objects, 2, 2]``, empty ones among them.
        tight: ``[classes, objects]``: whether a box is drawn around what is in this slice.
    """
    smooth = blurred(torch.from_numpy(image)[None].double(), 2)[0].numpy()
    outside = np.ones(image.shape[1:], dtype=bool)
    for (top, bottom), (left, right) in boxes[(boxes[..., 1] > boxes[..., 0]).all(axis=-1)]:
        outside[max(top - 1, 0) : bottom + 1, max(left - 1, 0) : right + 1] = False  # as far as it is blurred
    for number, of_class in enumerate(boxes):
        others = np.zeros_like(outside)  # what another class explains is left out
        for (top, bottom), (left, right) in np.delete(boxes, number, axis=0).reshape(-1, 2, 2):
            others[top:bottom, left:right] = True
        for box, is_tight in zip(of_class, tight[number], strict=True):
            if is_tight and (box[:, 1] - box[:, 0]).min() >= SMALLEST:
                rows, columns = _around(box, image.shape[1:])
                ring, own = outside[rows, columns], np.zeros_like(outside)
                own[slice(*box[0]), slice(*box[1])] = ~others[slice(*box[0]), slice(*box[1])]
                inside = own[rows, columns]
                if ring.sum() >= max(FEWEST, ENOUGH * inside.sum()) and inside.any():
                    field, deviations, likely = without_field(smooth[:, rows, columns], ring, inside)
                    values = smooth[:, rows, columns] - field
                    mean = (values[:, inside] * likely).sum(axis=1) / max(float(likely.sum()), 1e-9)
                    spread = np.maximum(values[:, ring].std(axis=1), 1e-3)
                    fill = _fill(deviations, likely, inside)
                    yield Look(number, box, rows, columns, field, fill, mean, spread)


def _fill(deviations: float, likely: Numbers, inside: NDArray[np.bool_]) -> float | None:
    """What is unlike the ring, as a share of the rows and columns that it meets: a box may be too wide.

    None if it is not told apart, or meets too few of them.
    """
    found = np.zeros_like(inside)
    found[inside] = likely > 0.5
    met = [found.any(axis=axis) for axis in (1, 0)]
    shares = [lines.sum() / inside.any(axis=axis).sum() for lines, axis in zip(met, (1, 0), strict=True)]
    if deviations < APART or min(shares) < LINES:
        return None
    return float(found.sum() / inside[np.ix_(*met)].sum())


def without_field(
    values: Numbers, ring: NDArray[np.bool_], inside: NDArray[np.bool_]
) -> tuple[Numbers, float, Numbers]:
    """The field of brightness around a box and in it, and what is `unlike` the surroundings when it is taken away.

    What is around a box tells little of a field within it, so that what is in the box and like its surroundings
    counts, too: as much as it is likely to be.

    Args:
        values: ``[channels, rows, columns]``.
        ring: bool ``[rows, columns]``: around the box, in no other.
        inside: likewise: in the box.
    """
    weights = ring.astype(np.float64)
    for _ in range(FITS):
        field = smooth_field(values, weights)
        flat = values - field
        deviations, likely = unlike(flat[:, inside], flat[:, ring])
        weights[inside] = 1.0 - likely
    return field, deviations, likely


def unlike(within: Numbers, surroundings: Numbers) -> tuple[float, Numbers]:
    """What is in a box and unlike its surroundings: how many deviations from them, and how likely each pixel is.

    Pixels of a box are N(0, σ²), as those around it are, or N(m, s²), whose numbers and share are found by
    expectation and maximisation; deviations are the mean of s and σ, in each channel.

    Args:
        within: ``[channels, pixels]``, less what the surroundings' mean is.
        surroundings: likewise.
    """
    spread = np.maximum(surroundings.std(axis=1, keepdims=True), 1e-3)  # of 255
    theirs = ((within / spread) ** 2).sum(axis=0)
    likely = (theirs > np.median(theirs)).astype(float)
    mean, own = np.zeros_like(spread), spread
    for _ in range(ROUNDS):
        weight = likely / max(float(likely.sum()), 1e-9)
        mean = (within * weight).sum(axis=1, keepdims=True)
        own = np.maximum(np.sqrt(((within - mean) ** 2 * weight).sum(axis=1, keepdims=True)), 0.5 * spread)
        share = min(max(float(likely.mean()), 0.05), 0.95)
        ours = (((within - mean) / own) ** 2).sum(axis=0)
        odds = 0.5 * (theirs - ours) + float(np.log(spread / own).sum()) + math.log(share / (1.0 - share))
        likely = 1.0 / (1.0 + np.exp(-odds.clip(-50.0, 50.0)))
    deviations = np.sqrt(((mean / (0.5 * (own + spread))) ** 2).sum())
    return float(deviations), likely


def _around(box: NDArray[np.int64], space: tuple[int, ...]) -> tuple[slice, slice]:
    """A box and its surroundings; of a large one, every so many-th row and column."""
    more = np.maximum(np.rint(AROUND * (box[:, 1] - box[:, 0])).astype(int), 4)
    low, high = np.maximum(box[:, 0] - more, 0), np.minimum(box[:, 1] + more, space)
    rows, columns = (
        slice(int(first), int(last), max(1, int(side) // MANY))
        for first, last, side in zip(low, high, box[:, 1] - box[:, 0], strict=True)
    )
    return rows, columns

