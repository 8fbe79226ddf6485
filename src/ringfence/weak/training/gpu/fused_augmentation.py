"""The launches of the augmentation's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from ringfence.extras import installed
from ringfence.weak.training.draws import FIELD
from ringfence.weak.training.settings import AugmentSettings, flip_axes
from ringfence.weak.training.variation import LEVELS, NODES, Variation, flip_place

BLOCK: Final = 1024
WARPS: Final = 8
"""To vary images. With 4, a thread has twice the pixels, and so many registers that few threads run at a time."""


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


def can_draw(key: Tensor) -> bool:
    """Whether the kernel can be used: for keys on a GPU, with Triton, where float32 is what torch computes in."""
    return key.is_cuda and key.numel() > 0 and torch.get_default_dtype() == torch.float32 and installed("triton")


def drawn_at_once(key: Tensor, shape: Sequence[int], settings: AugmentSettings) -> Variation:
    """As ``variation.drawn``, the same numbers, in one launch."""
    from ringfence.weak.training.gpu import augmentation_kernels as kernels

    rows, channels, axes = len(key), shape[1], len(shape) - 2
    scale, shift = key.new_empty(2, rows, axes, dtype=torch.float32)
    levels = key.new_empty(rows, channels * LEVELS, dtype=torch.float32)
    fields = settings.bias > 0.0
    coarse = key.new_empty(rows, channels, *[NODES] * axes, dtype=torch.float32) if fields else None
    flips = sum(1 << (axes + axis) for axis in flip_axes(settings.flip))  # a bit for each axis, from the first
    kernels.draw[(rows,)](
        key.contiguous(), scale, shift, levels, coarse, shape[2], settings.scale, settings.shift, settings.bias,
        AXES=axes, FLIPS=flips, FLIP_PLACE=flip_place(axes, -axes), FIELD=FIELD, BIAS=fields, CHANNELS=channels,
        LEVELS=LEVELS, NODES=NODES**axes, num_warps=1,
        enable_fp_fusion=False,  # 1 + s·u in two roundings, as on a CPU
    )  # fmt: skip
    return Variation(scale, shift, levels, coarse)


def varied(images: Tensor, key: Tensor, variation: Variation, settings: AugmentSettings) -> Tensor:
    """Images moved and changed in brightness.

    Args:
        images: uint8 ``[B, C, H, W]``.
        key: int64 ``[B]``.
        variation: theirs.
        settings: how much of each.
    """
    from ringfence.weak.training.gpu import augmentation_kernels as kernels

    rows, channels, height, width = images.shape
    scale, shift, levels, coarse = variation
    out = torch.empty_like(images)
    bright = not settings.intensity == settings.bias == settings.noise == 0.0
    kernels.vary[(rows * channels, -(-height * width // BLOCK))](
        images, out, key, scale.contiguous(), shift.contiguous(), levels, coarse, channels, height, width,
        levels.stride(0), NODES / height, NODES / width, settings.intensity, settings.noise,
        BIAS=coarse is not None, NOISE=settings.noise > 0.0, BRIGHT=bright, NODES=NODES, BLOCK=BLOCK,
        num_warps=WARPS,
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
