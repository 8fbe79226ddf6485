"""Predictions averaged over views of an image: flipped, turned, or as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence.segmentation.turning import turned


class View(NamedTuple):
    """How the network sees an image.

    Attributes:
        flip: axes along which it is flipped.
        degrees: by how many it is turned then.
    """

    flip: tuple[int, ...] = ()
    degrees: float = 0.0


def views_of(axes: Sequence[int], turns: Sequence[float] = ()) -> list[View]:
    """Every choice of axes to flip along, upright and with each turn: the image itself comes first.

    Args:
        axes: to flip along.
        turns: degrees, beside 0.
    """
    flips = [some for count in range(1 + len(axes)) for some in combinations(axes, count)]
    return [View(flip, degrees) for degrees in (0.0, *turns) for flip in flips]


def answer_to(view: View, network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """v⁻¹ softmax(network(v x)): probabilities ``[B, 1 + K, *space]``; 0 of all classes where a turn sees nothing.

    Args:
        view: v.
        network: from images to logits.
        images: ``[B, C, *space]``, floats.
    """
    seen = images.flip(view.flip)
    if view.degrees == 0.0:
        return network(seen).softmax(dim=1).flip(view.flip)
    angle = torch.full((len(images),), math.radians(view.degrees), device=images.device)
    return turned(network(turned(seen, angle)).softmax(dim=1), -angle).flip(view.flip)


def mean_of(answers: Iterable[Tensor], levels: Tensor | None = None) -> Tensor:
    """The mean of answers to views, one after the other, over those that see a pixel.

    Levels (``Tempered.level``) say at which odds a class is found: those of the mean, which is the best that is
    known, not of each view. So they are taken from the answers and given to the mean:
    p̄_k ∝ e^level_k · mean over views of p_k, each p without them.

    Args:
        answers: probabilities ``[B, 1 + K, *space]``, of which the first sees all.
        levels: that they have, ``[1 + K]``; None if they have none.
    """
    total = None
    for answer in answers:
        # what sees half of a pixel counts half, with levels and without
        one = answer if levels is None else _levelled(answer, -levels) * answer.sum(dim=1, keepdim=True)
        total = one if total is None else total + one
    if total is None:
        raise ValueError("there is no answer to average")
    return _levelled(total, torch.zeros(total.shape[1], device=total.device) if levels is None else levels)


def view_averaged(
    network: Callable[[Tensor], Tensor], images: Tensor, views: Sequence[View], levels: Tensor | None = None
) -> Tensor:
    """p̄(x) = mean over views v of v⁻¹ softmax(network(v x)): probabilities ``[B, 1 + K, *space]``.

    Args:
        network: from images to logits.
        images: ``[B, C, *space]``, floats.
        views: the first of which is the image itself.
        levels: ``[1 + K]``, in these logits; see ``mean_of``.
    """
    return mean_of((answer_to(view, network, images) for view in views), levels)


def _levelled(answer: Tensor, levels: Tensor) -> Tensor:
    """p_k e^level_k, and a sum of 1 over classes; where all are 0, so they stay."""
    weighed = answer * levels.exp().view(1, -1, *[1] * (answer.ndim - 2))
    return weighed / weighed.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weighed.dtype).tiny)
