"""How much too wide boxes are drawn, as far as the objects in them are seen.

A line across a tight box meets the object as soon as it is within the box, and the farther in, the more of it. If
boxes are too wide, lines close to their sides meet nothing. Of a single box noise says otherwise; of hundreds of
sides together it does not: the mean of what a line holds, against how deep in the box it is, rises where objects
begin.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.appearance.looks import Look
from ringfence.weak.appearance.telling import Numbers

STEP: Final = 0.05
"""Between depths, as a fraction of a box's side."""
DEPTHS: Final = STEP * np.arange(-5, 9)
"""How deep in the box a line is: 0 at its side, a half in its middle."""
AWAY: Final = -0.09
"""Lines before that are what surroundings are like: a box is seldom so much too small."""
RISEN: Final = 0.25
"""Of the most that lines hold: where it is reached, objects have begun."""
ROUND: Final = 0.016
"""How deep in its tight box an ellipse holds that much: 2 √(d (1 - d)) = ¼. It meets the sides in points alone."""


def profile(
    image: NDArray[np.uint8], look: Look, others: NDArray[np.bool_], ends: Numbers | None = None
) -> Numbers:
    """Of lines at each depth of a box: the sum of what they hold, and how many there are. 1 is object all along.

    Args:
        image: the slice ``[channels, height, width]``.
        look: of a box in which the object is told apart.
        others: bool ``[height, width]``: in another box, of whatever class, or beyond the image.
        ends: ``[2, 2]``: of the box before it was rounded, outwards; default: it was not.

    Returns:
        ``[depths, 2]``.
    """
    values = image[:, look.rows, look.columns] - look.field
    # of what is 1 in the object and 0 around it, the estimate with the least variance
    weights = look.mean / look.spread**2
    there = np.tensordot(weights, values, axes=1) / float((look.mean * weights).sum())
    there[others[look.rows, look.columns]] = np.nan
    found = np.zeros((len(DEPTHS), 2))
    for axis, own in enumerate((look.rows, look.columns)):
        lines, across = (there, look.columns) if axis == 0 else (there.T, look.rows)
        places, beside = (np.arange(one.start, one.stop, one.step) for one in (own, across))
        start, stop = look.box[1 - axis]
        lines = lines[:, (beside >= start) & (beside < stop)]
        known = np.isfinite(lines)
        held = np.where(known, lines, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        low, high = (look.box if ends is None else ends)[axis]
        for depth in ((places + 0.5 - low) / (high - low), (high - places - 0.5) / (high - low)):
            bins = np.rint((depth - DEPTHS[0]) / STEP).astype(int)
            some = (bins >= 0) & (bins < len(DEPTHS)) & (known.mean(axis=1) > 0.5)
            np.add.at(found, bins[some], np.stack([held[some], np.ones(int(some.sum()))], axis=1))
    return found


def looseness(found: Numbers) -> float | None:
    """By which fraction of their sides boxes are too wide at either end, of the sum of their profiles.

    Below 0 they are too small. None if too little was seen of what is around them, or lines hold nothing.
    """
    some = found[:, 1] > 0  # of boxes of ten pixels, only each other depth
    depths, held = DEPTHS[some], found[some, 0] / found[some, 1]
    away = depths < AWAY
    if not away.any() or away.all():
        return None
    base, most = held[away].mean(), held.max()
    level = base + RISEN * (most - base)
    first = int((held >= level).argmax())
    if first == 0 or most <= base:
        return None
    (before, here), step = held[first - 1 : first + 1], depths[first] - depths[first - 1]
    return float(depths[first] - step * (here - level) / (here - before)) - ROUND
