"""Flip-averaged prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor

from ringfence.weak.networks.smoothing import smoothed


def flip_averaged(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    axes: Sequence[int],
    levels: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """p̄(x) = mean over flips m of m⁻¹ softmax(network(m x)): probabilities ``[B, 1 + K, *space]``.

    Args:
        network: from images to logits.
        images: ``[B, C, *space]``.
        axes: to flip along: 2^n images for n of them, the image itself among them.
        levels: ``[1 + K]``, in these logits; see ``flip_mean``.
        smoothing: of the mean, likewise.
    """
    answers = (network(images.flip(some)).softmax(dim=1).flip(some) for some in flips_along(axes))
    return flip_mean(answers, levels, smoothing)


def flips_along(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Every choice of axes: 2^n for n of them, none at first."""
    return [some for count in range(1 + len(axes)) for some in combinations(axes, count)]


def flip_mean(answers: Iterable[Tensor], levels: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
    """The mean of answers about all flips, one after the other, smoothed if asked for.

    Levels (``Tempered.level``) say at which odds a class is found: those of the mean, which is the best that is
    known, not of each flip. So they are taken from the answers and given to the mean:
    p̄_k ∝ e^level_k · mean over flips of p_k, each p without them.

    Args:
        answers: probabilities ``[B, 1 + K, *space]``.
        levels: that they have, ``[1 + K]``; None if they have none.
        smoothing: σ in pixels, over which the mean is averaged before it has its levels; 0: not at all.
    """
    total, count = torch.zeros(()), 0
    for answer in answers:
        one = answer if levels is None else _levelled(answer, -levels)
        total = total + one if count else one
        count += 1
    mean = smoothed(total / count, smoothing)
    return mean if levels is None else _levelled(mean, levels)


def _levelled(answer: Tensor, levels: Tensor) -> Tensor:
    """p_k e^level_k, and a sum of 1 over classes."""
    weighed = answer * levels.exp().view(1, -1, *[1] * (answer.ndim - 2))
    return weighed / weighed.sum(dim=1, keepdim=True)
