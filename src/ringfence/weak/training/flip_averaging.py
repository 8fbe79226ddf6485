"""Flip-averaged prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    return flip_mean(network(images.flip(some)).softmax(dim=1).flip(some) for some in flips_along(axes))


def flips_along(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Every choice of axes: 2^n for n of them, none at first."""
    return [some for count in range(1 + len(axes)) for some in combinations(axes, count)]


def flip_mean(answers: Iterable[Tensor]) -> Tensor:
    """The mean of answers about all flips, one after the other."""
    total, count = torch.zeros(()), 0
    for answer in answers:
        total = total + answer if count else answer
        count += 1
    return total / count
