"""Where voxels are, if that is possible: checks of what a header says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 1e-6, 1e6
"""Millimetres between voxels; what is beyond is no step of any scanner or microscope."""
FARTHEST: Final = 1e9
"""Millimetres from a scanner's middle."""


def check_spacing(steps: Sequence[float], field: str) -> None:
    """Refuse steps between voxels that are no lengths; ``field`` is what the header calls them."""
    if not all(SMALLEST <= step <= LARGEST for step in steps):  # also NaN
        raise ValueError(
            f"its header has {field} {' '.join(f'{step:g}' for step in steps)}; each should be a number of "
            "millimetres above 0"
        )


def check_affine(affine: NDArray[Any], field: str) -> None:
    """Refuse a place that is none: not finite, or with axes that run along each other."""
    usable = np.isfinite(affine).all() and np.abs(affine).max() < FARTHEST
    if not usable or np.linalg.matrix_rank(affine) < len(affine):
        raise ValueError(
            f"the header does not say where the voxels are: {field} gives the affine {affine.tolist()}, which is "
            "not finite or has no inverse"
        )
