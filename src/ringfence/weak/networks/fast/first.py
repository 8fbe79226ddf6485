"""The first convolution of a network on a GPU, whose images have one or a few channels and need no gradient."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ringfence.weak.networks.fast.rows import computing_in, is_ours

MOST_CHANNELS: Final = 3
"""Of the images: 27 taps and channels; from there on, matrix products pay."""
PARTS: Final = 1024
"""Sums over pixels are made in so many parts at most."""


def is_small(convolution: nn.Conv2d) -> bool:
    """Whether it is 3 × 3, of a few channels, with zeros around the image, and nothing special."""
    return (
        convolution.in_channels <= MOST_CHANNELS
        and convolution.kernel_size == (3, 3)
        and convolution.stride == convolution.dilation == convolution.padding == (1, 1)
        and convolution.groups == 1
        and convolution.padding_mode == "zeros"
    )


def convolved(images: Tensor, weight: Tensor) -> Tensor | None:
    """The convolution, without a bias; None where the kernels do not fit: images that need a gradient, say."""
    if images.requires_grad or not is_ours(images):
        return None
    result: Tensor = _Convolved.apply(images, weight, computing_in(images))  # type: ignore[no-untyped-call]
    return result


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        from ringfence.weak.networks.fast import first_kernels as kernels

        batch, channels, height, width = images.shape
        outputs, block = len(weight), _block(len(weight))
        images, pixels = images.to(dtype), batch * height * width
        out = torch.empty(batch, height, width, outputs, device=images.device, dtype=dtype).permute(0, 3, 1, 2)
        # as matrix products do: weights rounded to what is computed in, sums in float32
        kernels.convolve[(-(-pixels // 128), -(-outputs // block))](
            images, weight.detach().to(dtype).contiguous(), out, pixels, height, width, outputs,
            CHANNELS=channels, BR=128, BC=block,
        )  # fmt: skip
        ctx.save_for_backward(images)
        ctx.like = weight
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        from ringfence.weak.networks.fast import first_kernels as kernels

        (images,) = ctx.saved_tensors
        batch, channels, height, width = images.shape
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        outputs, pixels = gradient.shape[1], batch * height * width
        each = -(-pixels // PARTS // 128) * 128
        count, taps, block = -(-pixels // each), 16 if channels == 1 else 32, max(16, _block(outputs))
        parts = torch.empty(count, taps, outputs, device=images.device)
        kernels.weigh[(count, -(-outputs // block))](
            images, gradient, parts, pixels, height, width, outputs, each, CHANNELS=channels, BR=128, BT=taps,
            BC=block,
        )  # fmt: skip
        found = parts.sum(dim=0)[: 9 * channels].t().reshape(outputs, channels, 3, 3)
        return None, found.to(ctx.like.dtype), None


def _block(outputs: int) -> int:
    return min(32, 1 << math.ceil(math.log2(max(outputs, 8))))
