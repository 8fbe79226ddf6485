"""Labels of a slice from brightness: what in each box is unlike what is around it.

    q_p = σ(log N(v_p; m, s²) / N(v_p; 0, s²) + Σ_n w_n (q_n - ½)),   over the eight neighbours n of p in the box

where v is the image without the field of brightness around the box, and w_n = 1 / their distance: neighbours are
usually of the same kind. s is that of the surroundings and m that of the object, both in the image as it is: a mean
over neighbours would make thin objects thicker. So would an m of all that is likely of the object, since its pixels
along the boundary are half of it: m is of those whose four neighbours are likely, too, if there are enough.

    y_p = k        if q_p > 0.9 in a box of k, and p is in the largest part of what is likely there
    y_p = 0        outside of boxes, and where q_p < 0.1 in all that hold p
    y_p = unsure   elsewhere, and in boxes whose object is not told apart
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require
from ringfence.weak.appearance.looks import Look, looks
from ringfence.weak.appearance.telling import Numbers, Pixels, chance, log_odds, object_of, spread_of

SURE: Final = 0.9
"""How likely a pixel must be of an object, or not of it."""
ROUNDS: Final = 5
"""Of finding the object's brightness, and then its pixels."""
CORE, CORE_PIXELS = 0.1, 4.0
"""Of an object, and pixels, that its inner ones must be for its brightness to be theirs."""
TOUCHING: Final = np.ones((3, 3), dtype=np.uint8)
"""By corners, too, pixels are of one part: a line at an angle is one."""
SMOOTHED: Final = 15
"""Times that pixels look at their neighbours: by then they hardly change."""

Labels = NDArray[np.uint8]


def looked_labels(
    image: NDArray[np.uint8], boxes: NDArray[np.int64], tight: Pixels, unsure: int, known: Pixels | None = None
) -> Labels:
    """Labels uint8 ``[height, width]``: 0 for background, k for the k-th class, ``unsure``.

    Args:
        image: a slice ``[channels, height, width]``.
        boxes: ``[classes, objects, 2, 2]``, empty ones among them.
        tight: ``[classes, objects]``: whether a box is drawn around what is in this slice.
        unsure: the label of pixels that nothing is known of.
        known: as for ``looks``.
    """
    ahead = np.zeros((1 + len(boxes), *image.shape[1:]))
    ahead[0] = 1.0 - SURE  # what is less likely is background
    held, told = (np.zeros(image.shape[1:], np.int64) for _ in range(2))
    for (top, bottom), (left, right) in boxes.reshape(-1, 2, 2):
        held[top:bottom, left:right] += 1
    for look in looks(image, boxes, tight, known=known):
        if look.fill is not None:
            likely = likely_in(image, look)
            place: Any = tuple(slice(*ends) for ends in look.box)
            own = ahead[1 + look.number][place]
            np.maximum(own, np.nan_to_num(likely), out=own)
            told[place] += np.isfinite(likely)
    best = ahead.max(axis=0)
    labels: Labels = ahead.argmax(axis=0).astype(np.uint8)
    labels[(labels > 0) & (best <= SURE)] = unsure
    labels[(labels == 0) & (told < held)] = unsure
    return labels


def likely_in(image: NDArray[np.uint8], look: Look) -> Numbers:
    """How likely each pixel of a box is of its object; not a number where another box explains it.

    Of what is likely, all but the largest part is as likely as not: something else is as bright.

    Args:
        image: the slice.
        look: of all of its lines, in which the object is told apart.
    """
    values = image[:, look.rows, look.columns] - look.field
    spread = spread_of(values[:, look.ring])
    (top, left), (bottom, right) = (look.box[:, end] - (look.rows.start, look.columns.start) for end in (0, 1))
    inside = look.inside[top:bottom, left:right]
    within = values[:, look.inside]
    likely = look.likely
    q = np.full(inside.shape, 0.5)
    for _ in range(ROUNDS):
        mean, _ = object_of(within, inner_pixels(likely, inside), spread)
        odds = np.zeros(inside.shape)
        odds[inside] = log_odds(within, mean, spread, spread)
        q = smoothed(odds, inside)
        likely = q[inside]
    label = require("scipy.ndimage", "labels from brightness", "train").label
    parts, count = label(inside & (q > 0.5), TOUCHING)
    if count:
        largest = 1 + np.bincount(parts.ravel())[1:].argmax()
        q[(parts > 0) & (parts != largest)] = 0.5
    return np.where(inside, q, np.nan)


def inner_pixels(likely: Numbers, inside: Pixels) -> Numbers:
    """How likely pixels ``inside`` and their four neighbours are of the object; if hardly any are, they alone."""
    grid = np.zeros((inside.shape[0] + 2, inside.shape[1] + 2))
    grid[1:-1, 1:-1][inside] = likely
    beside = (grid[:-2, 1:-1], grid[2:, 1:-1], grid[1:-1, :-2], grid[1:-1, 2:])
    found: Numbers = np.minimum.reduce([grid[1:-1, 1:-1], *beside])[inside]
    return found if found.sum() >= max(CORE_PIXELS, CORE * likely.sum()) else likely


def smoothed(odds: Numbers, inside: Pixels) -> Numbers:
    """Probabilities, from the log of the odds ``[rows, columns]`` of each pixel by itself.

    Of pixels that are not ``inside`` nothing is known; those beyond the box do not count.
    """
    q = np.where(inside, chance(odds), 0.5)
    rows, columns = q.shape
    steps = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
    for _ in range(SMOOTHED):
        around = np.pad(q - 0.5, 1)
        beside = sum(around[i : i + rows, j : j + columns] / np.hypot(i - 1, j - 1) for i, j in steps)
        q = np.where(inside, chance(odds + beside), 0.5)
    return q
