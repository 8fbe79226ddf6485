"""What neighbouring pixels say of each other: how much two maps touch, and how long a map's boundary is."""

from __future__ import annotations

import itertools
import math
from typing import Final

from torch import Tensor

from ringfence.barrier import computing_dtype

HALF_SPHERE_SHARES: Final = {1: 2 * 0.04577789, 2: 2 * 0.03698062, 3: 2 * 0.03519563}
"""By a direction's number of non-zero steps: how much of the half sphere is nearest to it (13 of them make 1)."""


def contact(p: Tensor, q: Tensor, axes: int) -> Tensor:
    """Σ p_i q_j + p_j q_i over all pairs (i, j) of pixels that share a face: ``[batch, ...]``, without the space.

    For two masks without a pixel in common, the number of faces between them: 0 if they touch nowhere, or by edges
    and corners only.

    Args:
        p: ``[batch, ..., *space]``, probabilities.
        q: likewise, of the same shape.
        axes: how many axes space has, the last ones.
    """
    _check_maps("p", p, axes)
    if q.shape != p.shape:
        raise ValueError(f"p and q must have the same shape, got {list(p.shape)} and {list(q.shape)}")
    _check_maps("q", q, axes)
    p, q = p.to(computing_dtype(p.dtype)), q.to(computing_dtype(q.dtype))
    total = p.new_zeros(p.shape[: p.ndim - axes])
    for axis in range(axes):
        step = tuple(int(other == axis) for other in range(axes))
        (p_here, p_there), (q_here, q_there) = pairs(p, step), pairs(q, step)
        total = total + (p_here * q_there + p_there * q_here).flatten(-axes).sum(dim=-1)
    return total


def boundary_length(p: Tensor, axes: int) -> Tensor:
    """Σ_d w_d Σ_i abs(p_i - p_{i+d}), the Crofton estimate of a boundary's length or area: ``[batch, ...]``.

    In 2-D, d goes in the 4 directions of the 8 neighbours, with w_d = π / (8 length of d); in 3-D in the 13 of the
    26 neighbours, with w_d = 2 c_d / (length of d), c_d being the direction's share of the half sphere. In 1-D it
    is the sum of absolute differences: the number of ends of a mask's pieces. Pixels are squares or cubes of side
    1, and there is no boundary where the image ends.

    Args:
        p: ``[batch, ..., *space]``, probabilities.
        axes: how many axes space has, the last ones: one to three.
    """
    _check_maps("p", p, axes)
    p = p.to(computing_dtype(p.dtype))
    total = p.new_zeros(p.shape[: p.ndim - axes])
    for step in directions(axes):
        here, there = pairs(p, step)
        total = total + weight_of(step) * (here - there).abs().flatten(-axes).sum(dim=-1)
    return total


def directions(axes: int) -> list[tuple[int, ...]]:
    """One of each two opposite steps to a neighbour, by face, edge or corner: 1, 4 or 13 of them."""
    nowhere = (0,) * axes
    return [step for step in itertools.product((-1, 0, 1), repeat=axes) if step > nowhere]


def weight_of(step: tuple[int, ...]) -> float:
    """w_d of ``boundary_length``."""
    taken = sum(map(abs, step))  # also the square of its length
    if len(step) == 1:
        return 1.0
    share = 1 / 4 if len(step) == 2 else HALF_SPHERE_SHARES[taken]
    # A surface of unit area is crossed by |n·d| pairs, and |cos| is 2/π on average in the plane and 1/2 in space.
    return (math.pi / 2 if len(step) == 2 else 2.0) * share / math.sqrt(taken)


def pairs(maps: Tensor, step: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """``maps`` at the pixels i and at the pixels i + step, for all i where both are within the image: two views."""
    here = there = maps
    for dimension, by in enumerate(step, start=maps.ndim - len(step)):
        length = max(maps.shape[dimension] - abs(by), 0)
        here = here.narrow(dimension, min(max(-by, 0), maps.shape[dimension]), length)
        there = there.narrow(dimension, min(max(by, 0), maps.shape[dimension]), length)
    return here, there


def _check_maps(name: str, maps: Tensor, axes: int) -> None:
    if not isinstance(maps, Tensor) or not maps.is_floating_point():
        kind = maps.dtype if isinstance(maps, Tensor) else type(maps).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {kind}")
    if axes not in (1, 2, 3) or maps.ndim <= axes:
        raise ValueError(
            f"{name} must be [batch, ..., *space] with axes = 1, 2 or 3 of space, "
            f"got {list(maps.shape)} and axes={axes!r}"
        )
