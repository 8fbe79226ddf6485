"""Flip-averaged prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor


def flip_averaged(network: Callable[[Tensor], Tensor], images: Tensor, axes: Sequence[int]) -> Tensor:
    """p̄(x) = mean over flips m of m⁻¹ softmax(network(m x)): probabilities ``[B, 1 + K, *space]``.

    Args:
        network: from images to logits.
        images: ``[B, C, *space]``.
        axes: to flip along: 2^n images for n of them, the image itself among them.
    """
    flips = [some for count in range(1 + len(axes)) for some in combinations(axes, count)]
    total = torch.zeros((), device=images.device)
    for some in flips:
        total = total + network(images.flip(some)).softmax(dim=1).flip(some)
    return total / len(flips)
