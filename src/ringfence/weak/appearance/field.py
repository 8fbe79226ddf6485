"""Brightness that changes slowly over an image, as bias fields and illumination do."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ORDER: Final = 3
"""Of the polynomial: a plane misses fields that bend within a box's surroundings."""


def smooth_field(values: Numbers, weights: Numbers) -> Numbers:
    """Σ_ij a_ij x^i y^j, i + j <= 3, that is closest to values where weights are: min Σ w (v - field)².

    Args:
        values: ``[channels, rows, columns]``.
        weights: ``[rows, columns]``, 0 where nothing is known.

    Returns:
        Like ``values``.
    """
    down, across = (np.linspace(-1.0, 1.0, size) if size > 1 else np.zeros(1) for size in values.shape[1:])
    terms = np.stack(
        [np.outer(down**i, across**j) for i in range(ORDER + 1) for j in range(ORDER + 1 - i)], axis=-1
    )
    known = weights > 0
    roots = np.sqrt(weights[known])
    fit, *_ = np.linalg.lstsq(terms[known] * roots[:, None], (values[:, known] * roots).T, rcond=None)
    field: Numbers = np.moveaxis(terms @ fit, -1, 0)
    return field
