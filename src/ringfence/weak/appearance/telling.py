"""What in a box is unlike what is around it: two normal distributions, and a field of brightness."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.appearance.field import smooth_field

Numbers = NDArray[np.float64]
Pixels = NDArray[np.bool_]
ROUNDS: Final = 25
"""Of expectation and maximisation."""
FITS: Final = 4
"""Of the field of brightness, each to what the last one left like the surroundings."""


def without_field(values: Numbers, ring: Pixels, inside: Pixels) -> tuple[Numbers, float, Numbers]:
    """The field of brightness around a box and in it, and what is ``unlike`` the surroundings without it.

    What is around a box tells little of a field within it: what is in the box and like its surroundings counts,
    too, as much as it is likely to be.

    Args:
        values: ``[channels, rows, columns]``.
        ring: bool ``[rows, columns]``: around the box.
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
    spread = spread_of(surroundings)
    theirs = ((within / spread) ** 2).sum(axis=0)
    likely = (theirs > np.median(theirs)).astype(float)
    mean, own = np.zeros_like(spread), spread
    for _ in range(ROUNDS):
        mean, own = object_of(within, likely, spread)
        share = min(max(float(likely.mean()), 0.05), 0.95)
        likely = chance(log_odds(within, mean, own, spread) + math.log(share / (1.0 - share)))
    deviations = np.sqrt(((mean / (0.5 * (own + spread))) ** 2).sum())
    return float(deviations), likely


def spread_of(surroundings: Numbers) -> Numbers:
    """σ ``[channels, 1]``, of 255 at least a thousandth."""
    spread: Numbers = np.maximum(surroundings.std(axis=1, keepdims=True), 1e-3)
    return spread


def object_of(within: Numbers, likely: Numbers, spread: Numbers) -> tuple[Numbers, Numbers]:
    """m and s ``[channels, 1]`` of pixels by how likely they are of the object."""
    weight = likely / max(float(likely.sum()), 1e-9)
    mean: Numbers = (within * weight).sum(axis=1, keepdims=True)
    own: Numbers = np.maximum(np.sqrt(((within - mean) ** 2 * weight).sum(axis=1, keepdims=True)), 0.5 * spread)
    return mean, own


def log_odds(within: Numbers, mean: Numbers, own: Numbers, spread: Numbers) -> Numbers:
    """log N(m, s²) / N(0, σ²), ``[pixels]``."""
    apart = ((within / spread) ** 2 - ((within - mean) / own) ** 2).sum(axis=0)
    found: Numbers = 0.5 * apart + float(np.log(spread / own).sum())
    return found


def chance(odds: Numbers) -> Numbers:
    """From the log of odds to probabilities."""
    found: Numbers = 1.0 / (1.0 + np.exp(-odds.clip(-50.0, 50.0)))
    return found
