"""Weak labels: what an annotator could say without drawing a mask, here simulated from one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ringfence.numbers import not_negative


class Bounds(NamedTuple):
    """A range for each image and class; ``rf.between(value, bounds.low, bounds.high)``."""

    low: Tensor
    high: Tensor


def size_bounds(masks: Tensor, slack: float = 0.1) -> Bounds:
    """(1 - slack)·τ <= V <= (1 + slack)·τ with τ = Σ_p y_p, the size of each mask: float32 ``[...]``.

    Args:
        masks: bool ``[..., *space]`` with a batch and a class dimension before two axes of space.
        slack: a share, 0 to 1; the paper's is 0.1.
    """
    if not_negative("slack", slack) > 1.0:
        raise ValueError(f"slack is a share from 0 to 1, got {slack}")
    size = _checked(masks).flatten(2).sum(dim=-1).float()
    return Bounds((1.0 - slack) * size, (1.0 + slack) * size)


def centroid_bounds(masks: Tensor, slack: float) -> Bounds:
    """τ - slack <= C <= τ + slack with τ = Σ_p y_p c_p / Σ_p y_p, in pixels: float32 ``[batch, classes, axes]``.

    An empty mask has no centroid, and so no bounds: they are infinite.

    Args:
        masks: as for ``size_bounds``.
        slack: pixels; the paper's is 20 at 256×256.
    """
    slack = not_negative("slack", slack)
    masks = _checked(masks)
    size = masks.flatten(2).sum(dim=-1)
    places = []
    for axis in range(2, masks.ndim):
        others = tuple(other for other in range(2, masks.ndim) if other != axis)
        along = masks.sum(dim=others) if others else masks
        place = torch.arange(masks.shape[axis], dtype=torch.float64, device=masks.device)
        places.append((along * place).sum(dim=-1) / size)  # 0/0, NaN, where there is nothing
    centroid = torch.stack(places, dim=-1).float()
    return Bounds(
        (centroid - slack).nan_to_num(nan=-torch.inf, neginf=-torch.inf),
        (centroid + slack).nan_to_num(nan=torch.inf, posinf=torch.inf),
    )


def _checked(masks: Tensor) -> Tensor:
    if masks.dtype != torch.bool or masks.ndim < 3:
        raise ValueError(
            f"masks must be bool [batch, classes, *space], got {masks.dtype} of shape {list(masks.shape)}"
        )
    return masks
