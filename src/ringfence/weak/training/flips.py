"""Mirror images, and a network's mean answer over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final

import torch
from torch import Tensor

AXES: Final[Mapping[str, int]] = {"left-right": -1, "up-down": -2, "slices": -3}
"""What images can be mirrored along, as slices are stored: columns, rows, and slices of a volume."""


def mirror_axes(names: Sequence[str]) -> tuple[int, ...]:
    """Axes by their names."""
    unknown = [name for name in names if name not in AXES]
    if unknown:
        raise ValueError(f"images can be mirrored along {', '.join(AXES)}, not {', '.join(map(str, unknown))}")
    if len(set(names)) < len(names):
        raise ValueError(f"each axis to mirror along once; got {', '.join(names)}")
    return tuple(AXES[name] for name in names)


def mean_answer(network: Callable[[Tensor], Tensor], images: Tensor, axes: Sequence[int]) -> Tensor:
    """p̄(x) = mean over mirrors m of m⁻¹ softmax(network(m x)): probabilities ``[B, 1 + K, *space]``.

    Args:
        network: from images to logits.
        images: ``[B, C, *space]``.
        axes: to mirror along: 2^n images for n of them, the image itself among them.
    """
    mirrors = [some for count in range(1 + len(axes)) for some in combinations(axes, count)]
    total = torch.zeros((), device=images.device)
    for some in mirrors:
        total = total + network(images.flip(some)).softmax(dim=1).flip(some)
    return total / len(mirrors)
