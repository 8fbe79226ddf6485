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
    down, across = (
        np.linspace(-1.0, 1.0, size)[:, None] ** np.arange(2 * ORDER + 1) if size > 1 else np.eye(1, 2 * ORDER + 1)
        for size in values.shape[1:]
    )
    terms = [(i, j) for i in range(ORDER + 1) for j in range(ORDER + 1 - i)]
    # Σ w x^i y^j and Σ w v x^i y^j, sides after sides: a table of terms by pixels would be ten times the image
    moments, held = down.T @ weights @ across, down.T @ (weights * values) @ across
    normal = np.array([[moments[i + n, j + m] for n, m in terms] for i, j in terms])
    fit, *_ = np.linalg.lstsq(normal, np.array([held[:, i, j] for i, j in terms]), rcond=None)
    factors = np.zeros((len(values), ORDER + 1, ORDER + 1))
    for (i, j), of_term in zip(terms, fit, strict=True):
        factors[:, i, j] = of_term
    field: Numbers = down[:, : ORDER + 1] @ factors @ across[:, : ORDER + 1].T
    return field
