"""Levels: how much likelier than all else a class must be in a box, so that what is found touches the box's sides.

    level = min over the tight sides of a box of max over the pixels along that side of log(p_k / p_next)

A network that learnt from constraints may be too shy or too bold as a whole, or in one image. A tight box tells:
whatever is above this level reaches all of its sides, and above a higher one it does not. One box alone is noisy,
so that half of it counts, and half of what is usual for the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FARTHEST: Final = 4.0
"""A level is within ± this: odds of 55."""
JUST: Final = 1e-4
"""Below a level, what just reaches it is above."""
TINY: Final = 1e-6
"""Probabilities below it are taken as it."""


def lead(likely: NDArray[np.floating[Any]], label: int) -> NDArray[np.float32]:
    """log(p_k / the largest of the others), ``[*space]``, of probabilities ``[1 + K, *space]``."""
    logs = np.log(np.maximum(likely, TINY))
    found: NDArray[np.float32] = (logs[label] - np.delete(logs, label, axis=0).max(axis=0)).astype(np.float32)
    return found


def box_level(ahead: NDArray[np.float32], tight: NDArray[np.bool_], margin: NDArray[np.int64]) -> float | None:
    """The level of one box; None where it is tight along no axis.

    Args:
        ahead: ``lead`` of its class within it.
        tight: bool ``[axes]``.
        margin: ``[axes]``: pixels by which it may be too wide on either side; what it holds is the object all
            the same, and touches one of so many lines.
    """
    reached = []
    for axis in np.flatnonzero(tight):
        deep = min(1 + 2 * int(margin[axis]), ahead.shape[axis])
        lines = np.moveaxis(ahead, axis, 0)
        reached += [float(lines[:deep].max()), float(lines[-deep:].max())]
    return float(np.clip(min(reached), -FARTHEST, FARTHEST)) if reached else None


def usual_levels(found: Iterable[tuple[int, float]], classes: int) -> list[float]:
    """The median of each class's levels; 0 where it has none.

    Args:
        found: a class, from 1, and the level of a box of it.
        classes: how many there are.
    """
    by_class: list[list[float]] = [[] for _ in range(classes)]
    for label, level in found:
        by_class[label - 1].append(level)
    return [float(np.median(levels)) if levels else 0.0 for levels in by_class]


def settled_level(level: float | None, label: int, usual: Sequence[float]) -> float:
    """The level that pixels of a box of class ``label`` must be above."""
    settled = usual[label - 1] if level is None else 0.5 * (level + usual[label - 1])
    return settled - JUST
