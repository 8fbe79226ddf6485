"""The launches of the augmentation's kernels."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from ringfence.extras import installed
from ringfence.weak.training.settings import AugmentSettings

BLOCK: Final = 1024


def can_vary(images: Tensor) -> bool:
    """Whether the kernels can be used: 2-D images or masks of bytes, on a GPU, with Triton."""
    return (
        images.is_cuda
        and images.ndim == 4
        and images.dtype in (torch.uint8, torch.bool)
        and images.is_contiguous()
        and images.numel() > 0
        and installed("triton")
    )


def varied(
    images: Tensor,
    key: Tensor,
    scale: Tensor,
    shift: Tensor,
    draws: Tensor,
    bias: Tensor | None,
    settings: AugmentSettings,
) -> Tensor:
    """Images moved and changed in brightness.

    Args:
        images: uint8 ``[B, C, H, W]``.
        key: int64 ``[B]``.
        scale: ``[B, 2]``.
        shift: ``[B, 2]``.
        draws: contrast, brightness, gamma and the strength of noise of each channel, in 0..1: ``[B, 4 C]``.
        bias: the fields' logarithms, ``[B, C, H, W]``, or None.
        settings: how much of each.
    """
    from ringfence.weak.training.gpu import augmentation_kernels as kernels

    rows, channels, height, width = images.shape
    out = torch.empty_like(images)
    bright = not settings.intensity == settings.bias == settings.noise == 0.0
    kernels.vary[(rows * channels, -(-height * width // BLOCK))](
        images, out, key, scale.contiguous(), shift.contiguous(), draws,
        None if bias is None else bias.contiguous(), channels, height, width, draws.stride(0), settings.intensity,
        settings.noise,
        BIAS=bias is not None, NOISE=settings.noise > 0.0, BRIGHT=bright, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def moved(masks: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Masks, bool ``[B, K, H, W]``, as the images moved: that of the nearest pixel."""
    from ringfence.weak.training.gpu import augmentation_kernels as kernels

    rows, channels, height, width = masks.shape
    out = torch.empty_like(masks)
    kernels.move[(rows * channels, -(-height * width // BLOCK))](
        masks.view(torch.uint8), out.view(torch.uint8), scale.contiguous(), shift.contiguous(), channels, height,
        width, BLOCK=BLOCK,
    )  # fmt: skip
    return out
