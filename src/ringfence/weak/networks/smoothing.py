"""Smoothing: probabilities averaged over a Gaussian in each slice."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

FAR: Final = 3.0
"""Deviations that the Gaussian reaches: beyond them is a quarter of a percent of it."""


def smoothed(probabilities: Tensor, sigma: float) -> Tensor:
    """p̄_x = Σ_d g_d p_{x+d} / Σ_d g_d with g_d = exp(-|d|² / 2σ²), d going over the last two axes.

    Beyond the border, pixels are as at the border. In volumes that is along rows and columns alone: slices may be
    far apart. Probabilities of a pixel still sum up to 1.

    Args:
        probabilities: ``[B, 1 + K, *space]``.
        sigma: σ in pixels; with 0 they are returned as they are.
    """
    if sigma == 0.0:
        return probabilities
    reach = math.ceil(FAR * sigma)
    steps = torch.arange(-reach, reach + 1, dtype=torch.float64, device=probabilities.device)
    kernel = (-0.5 * (steps / sigma).square()).exp()
    kernel = (kernel / kernel.sum()).to(probabilities.dtype)
    maps = probabilities.reshape(-1, 1, *probabilities.shape[-2:])
    # eight bits are few for what is close to even, and so are ten
    with torch.autocast(probabilities.device.type, enabled=False), torch.backends.cudnn.flags(allow_tf32=False):
        maps = F.conv2d(F.pad(maps, (0, 0, reach, reach), mode="replicate"), kernel.view(1, 1, -1, 1))
        maps = F.conv2d(F.pad(maps, (reach, reach, 0, 0), mode="replicate"), kernel.view(1, 1, 1, -1))
    return maps.view(probabilities.shape)
