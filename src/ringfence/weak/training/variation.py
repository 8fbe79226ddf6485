"""What is random about augmentation: how images are moved, flipped and changed in brightness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ringfence.weak.training.draws import FIELD, TURN, bell, uniform
from ringfence.weak.training.settings import AugmentSettings, flip_axes

LEVELS: Final = 4
"""Numbers for each channel: contrast, brightness, gamma, and the strength of noise."""
NODES: Final = 4
"""Of a smooth field, along each axis."""


class Variation(NamedTuple):
    """How each image of a batch is varied.

    Attributes:
        scale: float32 ``[B, axes]``, negative where the image is flipped.
        shift: ``[B, axes]``, as a fraction of the image.
        levels: contrast, brightness, gamma and the strength of noise of each channel, in 0..1: ``[B, 4 C]``.
        coarse: the bias fields' logarithms at their nodes, ``[B, C, 4, 4]`` (of volumes ``[B, C, 4, 4, 4]``); None
            where there are no fields.
    """

    scale: Tensor
    shift: Tensor
    levels: Tensor
    coarse: Tensor | None


def drawn(key: Tensor, shape: Sequence[int], settings: AugmentSettings) -> Variation:
    """The variation of images ``[B, C, *space]``, step by step, on any device.

    Args:
        key: int64 ``[B]``, of ``draws.keys``.
        shape: of the images.
        settings: how much of each.
    """
    channels, axes = shape[1], len(shape) - 2
    draws = uniform(key, 3 * axes + LEVELS * channels)
    scale = 1.0 + settings.scale * (2.0 * draws[:, :axes] - 1.0)
    shift = settings.shift * (2.0 * draws[:, axes : 2 * axes] - 1.0)
    if axes == 3:  # by whole slices: one between two would be a blend of both, with the boxes of one
        depth = shape[2]
        scale[:, 0], shift[:, 0] = 1.0, (shift[:, 0] * depth).round() / depth
    for axis in flip_axes(settings.flip):
        flipped = draws[:, flip_place(axes, axis)] < 0.5
        scale[:, axis] = torch.where(flipped, -scale[:, axis], scale[:, axis])
    return Variation(scale, shift, draws[:, 3 * axes :], nodes_of_fields(key, shape, settings.bias))


def turns(key: Tensor, degrees: float) -> Tensor:
    """By how much each image is turned, up to so many degrees to either side: radians, float32 ``[B]``."""
    return math.radians(degrees) * (2.0 * uniform(key, 1, TURN)[:, 0] - 1.0)


def flip_place(axes: int, axis: int) -> int:
    """Which of an image's numbers decides whether it is flipped along an axis, which counts from the last: -1."""
    return 3 * axes + axis


def nodes_of_fields(key: Tensor, shape: Sequence[int], strength: float) -> Tensor | None:
    """Almost normal numbers on a coarse grid, for each channel; None where their strength is 0."""
    if strength == 0.0:
        return None
    grid = [NODES] * (len(shape) - 2)
    return strength * bell(key, shape[1] * NODES ** len(grid), FIELD).view(len(key), shape[1], *grid)
