"""Which pixels of a box are of its object, by a closer look than the one that told it apart.

    v_p = f_p + n_p              of the surroundings, around the box and in it
    v_p = f_p + m + g_p + n_p    of the object,  n ~ N(0, s²)

    q_p = σ(log N(v_p; f_p + m + g_p, s²) / N(v_p; f_p, s²) + Σ_n w_n (q_n - ½)),   over the eight neighbours n of p

f is a polynomial and a local mean of what that leaves; g is a local mean, too: the surroundings' brightness bends
within a box, and that of a long object along it. What is in the box counts in f and s as far as it is unlikely to
be of the object. All are of the image as it is: a mean over neighbours would make thin objects thicker. So would an
m of all that is likely of the object, since its pixels along the boundary are half of it: m and g are of those with
likely neighbours, if there are enough. w_n = 1 / their distance: neighbours are usually of the same kind.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ringfence.extras import require
from ringfence.weak.appearance.field import smooth_field
from ringfence.weak.appearance.looks import APART, LINES, Look, lines_met, share_filled
from ringfence.weak.appearance.telling import Numbers, Pixels, chance

ROUNDS: Final = 8
"""Of finding fields, then the object's brightness, and then its pixels."""
WHOLE: Final = 3
"""Rounds before the object's brightness differs from place to place: at first, too much may count as the object."""
WIDTH, LEAST_WIDTH = 0.25, 2.0
"""Deviation of the kernel that f is a local mean by: of the box's shorter side, and in pixels at least."""
ALONG, LEAST_ALONG = 0.12, 1.5
"""Likewise of g, and of the longer side."""
FINE: Final = 6.0
"""Blocks to a deviation of a kernel, at least: finer ones hardly change a label."""
LITTLE: Final = 0.05
"""Of a kernel: where it holds less, a local mean goes towards 0."""
CORE, CORE_PIXELS = 0.1, 4.0
"""Of an object, and pixels, that its inner ones must be for its brightness to be theirs."""
LOOSE: Final = 0.1
"""Of a box's side, what a box drawn by hand may leave empty at an end; a single line it always may."""
TOUCHING: Final = np.ones((3, 3), dtype=np.uint8)
"""By corners, too, pixels are of one part: a line at an angle is one."""
SMOOTHED: Final = 15
"""Times that pixels look at their neighbours: by then they hardly change."""


def delineated(image: NDArray[np.uint8], look: Look) -> Numbers | None:
    """How likely each pixel of a box is of its object: q, and not a number where another box explains it.

    None if the object is not told apart: by less than ``APART`` deviations (of means over 3×3 pixels), or on fewer
    than ``LINES`` of the lines across the box. Even odds where nothing is known: in parts that are apart from the
    largest one (something else is as bright), and on lines that should meet the object, but do not: those beyond
    its ends, if they are more than a box that is drawn by hand may have.

    Args:
        image: the slice ``[channels, height, width]``.
        look: of all lines of the box.
    """
    if not look.rows.step == look.columns.step == 1:
        raise ValueError("a box is delineated by a look at all of its lines, and some were left out")
    (top, left), (bottom, right) = (look.box[:, end] - (look.rows.start, look.columns.start) for end in (0, 1))
    values = image[:, look.rows, look.columns].astype(np.float64)
    q, deviations = _fitted(values, look)
    q, inside = q[top:bottom, left:right], look.inside[top:bottom, left:right]
    label = require("scipy.ndimage", "labels from brightness", "train").label
    parts, count = label(q > 0.5, TOUCHING)
    found = parts == 1 + np.bincount(parts.ravel())[1:].argmax() if count else parts > 0
    if deviations < APART or lines_met(found, inside) < LINES:
        return None
    q[(parts > 0) & ~found] = 0.5
    missed = _missed(found, inside, 1)[:, None] | _missed(found, inside, 0)
    q[missed] = np.maximum(q[missed], 0.5)
    return np.where(inside, q, np.nan)


def filled(image: NDArray[np.uint8], look: Look) -> float | None:
    """What an object fills of the rows and columns of its box that it meets; None if it is not told apart.

    Of small objects, this is nearer to the truth than ``look.fill``: means over 3×3 pixels make them seem fuller.
    Arguments as for ``delineated``.
    """
    likely = delineated(image, look)
    return None if likely is None else share_filled(np.nan_to_num(likely) > 0.5, np.isfinite(likely))


def _missed(found: Pixels, inside: Pixels, axis: int) -> Pixels:
    """Lines before the first that meets the object and after the last, unless boxes may be so much too wide.

    Args:
        found: ``[rows, columns]``.
        inside: likewise; lines without such a pixel, beyond an image or in another box, do not count.
        axis: 1 for rows, 0 for columns.
    """
    there: Pixels = np.asarray(inside.any(axis=axis))
    first, last = np.flatnonzero(found.any(axis=axis))[[0, -1]]
    loose, missed = max(1.0, LOOSE * there.sum()), np.zeros_like(there)
    missed[:first], missed[last + 1 :] = there[:first].sum() > loose, there[last + 1 :].sum() > loose
    return missed


def _fitted(values: Numbers, look: Look) -> tuple[Numbers, float]:
    """q ``[rows, columns]`` of all that is looked at, and how many deviations the object is apart."""
    ring, inside = look.ring, look.inside
    sides = look.box[:, 1] - look.box[:, 0]
    wide, along = max(LEAST_WIDTH, WIDTH * sides.min()), max(LEAST_ALONG, ALONG * sides.max())
    q = np.zeros(ring.shape)
    q[inside] = look.likely
    field = look.field
    for number in range(ROUNDS):
        theirs = np.where(inside, 1.0 - q, ring)
        if number:
            field = smooth_field(values, theirs)
            field = field + local_mean(values - field, theirs, wide)
        flat = values - field
        spread = _deviation(flat, theirs)
        core = inner_pixels(q, inside)
        mean = _mean(flat, core)
        own = mean + local_mean(flat - mean, core, along) if number >= WHOLE else mean
        q = smoothed(_log_odds(flat, own, spread), inside)
    flat = look.smooth - field
    mean = _mean(flat, core)
    spread = 0.5 * (_deviation(flat, theirs) + _deviation(flat - mean, core))
    return q, float(np.sqrt(((mean / spread) ** 2).sum()))


def local_mean(values: Numbers, weights: Numbers, width: float) -> Numbers:
    """G * (w v) / (G * w + LITTLE), with a normal kernel G of this deviation: ``[channels, rows, columns]``.

    With a wide kernel, of means over blocks of pixels, and linear between these: pixel by pixel, it would take most
    of a minute for a large box.
    """
    blur = require("scipy.ndimage", "labels from brightness", "train").gaussian_filter
    block = max(1, int(width / FINE))
    sums = [blur(_in_blocks(one, block), width / block, mode="constant") for one in (weights, *(weights * values))]
    mean = torch.from_numpy(np.stack(sums[1:]) / (sums[0] + LITTLE))
    if block > 1:
        mean = F.interpolate(mean[None], scale_factor=block, mode="bilinear")[0]
    fine: Numbers = mean[:, : weights.shape[0], : weights.shape[1]].numpy()
    return fine


def _in_blocks(values: Numbers, block: int) -> Numbers:
    """Means over ``block`` × ``block`` pixels; those beyond the end are 0."""
    rows, columns = (-(-size // block) for size in values.shape)
    whole = np.zeros((rows * block, columns * block))
    whole[: values.shape[0], : values.shape[1]] = values
    mean: Numbers = whole.reshape(rows, block, columns, block).mean(axis=(1, 3))
    return mean


def inner_pixels(likely: Numbers, inside: Pixels) -> Numbers:
    """How likely pixels ``[rows, columns]`` and their neighbours are of the object; if hardly any are, they alone.

    Of the four neighbours, the least likely.

    Args:
        likely: of each pixel by itself.
        inside: of the box; others are none of the object.
    """
    own = np.where(inside, likely, 0.0)
    grid = np.pad(own, 1)
    beside = (grid[:-2, 1:-1], grid[2:, 1:-1], grid[1:-1, :-2], grid[1:-1, 2:])
    found: Numbers = np.minimum.reduce([own, *beside])
    return found if found.sum() >= max(CORE_PIXELS, CORE * own.sum()) else own


def smoothed(odds: Numbers, inside: Pixels) -> Numbers:
    """Probabilities, from the log of the odds ``[rows, columns]`` of each pixel by itself; 0 beyond the box.

    Of pixels that are not ``inside`` nothing is known: they do not count.
    """
    q = np.where(inside, chance(odds), 0.5)
    rows, columns = q.shape
    steps = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
    for _ in range(SMOOTHED):
        around = np.pad(q - 0.5, 1)
        beside = sum(around[i : i + rows, j : j + columns] / np.hypot(i - 1, j - 1) for i, j in steps)
        q = np.where(inside, chance(odds + beside), 0.5)
    return np.where(inside, q, 0.0)


def _mean(values: Numbers, weights: Numbers) -> Numbers:
    """``[channels, 1, 1]``."""
    mean: Numbers = (weights * values).sum(axis=(1, 2), keepdims=True) / max(float(weights.sum()), 1e-9)
    return mean


def _deviation(values: Numbers, weights: Numbers) -> Numbers:
    """From 0, ``[channels, 1, 1]``: of 255 at least a thousandth."""
    deviation: Numbers = np.maximum(np.sqrt(_mean(values**2, weights)), 1e-3)
    return deviation


def _log_odds(values: Numbers, own: Numbers, spread: Numbers) -> Numbers:
    """log N(own, s²) / N(0, s²), ``[rows, columns]``."""
    odds: Numbers = 0.5 * ((values / spread) ** 2 - ((values - own) / spread) ** 2).sum(axis=0)
    return odds
