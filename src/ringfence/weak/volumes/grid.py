"""Whether two volumes of one case are in the same place: shapes, voxel sizes, orientation, position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ringfence.weak.volumes.orientation import axes

if TYPE_CHECKING:
    from ringfence.weak.volumes.volume import Volume

APART: Final = 0.4
"""Of a voxel: what headers may disagree by. NIfTI's rotations are rounded by up to a quarter of one, and half of
one is not rounding, but another idea of where a voxel's middle is."""
RESAMPLE: Final = "resample one to the other's grid or, if they do belong together, correct a header"


def check_same_shape(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case that have different shapes."""
    if one.voxels.shape != other.voxels.shape:
        shapes = [" × ".join(map(str, volume.voxels.shape)) for volume in (one, other)]
        raise ValueError(f"{one.path} has {shapes[0]} voxels, but {other.path} has {shapes[1]} (z, y, x)")


def check_same_steps(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case whose voxels have different sizes, or whose axes differ, where known."""
    if not (one.spacing_known and other.spacing_known):
        return
    if not np.allclose(one.spacing, other.spacing, rtol=1e-3, atol=0.0):
        steps = [" × ".join(f"{step:g}" for step in volume.spacing) for volume in (one, other)]
        raise ValueError(
            f"{one.path} has voxels of {steps[0]} mm, but {other.path} of {steps[1]} (z, y, x): {RESAMPLE}"
        )
    if one.placed and other.placed and axes(one) != axes(other):
        raise ValueError(
            f"the axes of {one.path} run to {axes(one)}, those of {other.path} to {axes(other)}: {RESAMPLE}"
        )


def check_same_grid(one: Volume, other: Volume) -> None:
    """Refuse two volumes of one case that have different shapes, or whose voxels are not in the same places.

    A header with the placeholder 1 1 1 beside one that says more, or beside any if it begins at 0 0 0, is not
    compared: its place is unknown.
    """
    check_same_shape(one, other)
    check_same_steps(one, other)
    if one.spacing_known != other.spacing_known or not (one.placed and other.placed):
        return
    apart = _apart(one, other)
    if apart > APART:
        begins = [" ".join(f"{value:g}" for value in volume.affine[:3, 3]) for volume in (one, other)]
        raise ValueError(
            f"{one.path} and {other.path} lie up to {apart:.2g} voxels apart (they begin at {begins[0]} and at "
            f"{begins[1]} mm): {RESAMPLE}"
        )


def _apart(one: Volume, other: Volume) -> float:
    """How far the corners of two volumes of one shape are from each other, in voxels."""
    depth, height, width = one.voxels.shape
    corners = np.array([(x, y, z, 1) for x in (0, width - 1) for y in (0, height - 1) for z in (0, depth - 1)]).T
    return float(np.abs(np.linalg.solve(one.affine, other.affine @ corners) - corners).max())
