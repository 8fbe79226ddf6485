"""Doubling and joining, and halving, of maps on a GPU, as autograd sees them; plain operations elsewhere."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.extras import installed

PIXELS: Final = 64
"""Of a program."""


class Halving(nn.Module):
    """The maximum of two by two pixels, as ``nn.MaxPool2d(2)``."""

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, channels, height / 2, width / 2]``."""
        if not _is_ours(x) or x.shape[2] % 2 or x.shape[3] % 2:
            return F.max_pool2d(x, 2)
        result: Tensor = _Halved.apply(x)  # type: ignore[no-untyped-call]
        return result


def join_doubled(skip: Tensor, small: Tensor) -> Tensor:
    """``skip``, and ``small`` at twice its size (bilinear, corners aligned), joined along the channels."""
    block = _common_block(skip.shape[1], small.shape[1])
    doubled = skip.shape[2:] == tuple(2 * length for length in small.shape[2:]) and min(small.shape[2:]) >= 4
    if not (_is_ours(skip) and _is_ours(small) and doubled and block and skip.dtype == small.dtype):
        larger = F.interpolate(small, scale_factor=2.0, mode="bilinear", align_corners=True)
        return torch.cat([skip, larger], dim=1)
    result: Tensor = _Joined.apply(skip, small, block)  # type: ignore[no-untyped-call]
    return result


def _is_ours(x: Tensor) -> bool:
    return (
        x.is_cuda
        and installed("triton")
        and x.dtype != torch.float64
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _common_block(first: int, second: int) -> int:
    """The largest power of two up to 32 that divides both; 0 if it is less than 8."""
    block = next(one for one in (32, 16, 8, 1) if first % one == 0 and second % one == 0)
    return block if block >= 8 else 0


def _empty(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    return like.new_empty(like.shape[0], height, width, channels).permute(0, 3, 1, 2)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, skip: Tensor, small: Tensor, block: int) -> Tensor:
        from ringfence.weak.networks.fast import map_kernels as kernels

        batch, first, height, width = skip.shape
        second, low_height, low_width = small.shape[1:]
        out = _empty(skip, first + second, height, width)
        ctx.sizes, ctx.block = (first, second, height, width, low_height, low_width), block
        pixels = batch * height * width
        kernels.join[(-(-pixels // PIXELS), (first + second) // block)](
            skip, small, out, pixels, height, width, low_height, low_width,
            (low_height - 1) / (height - 1), (low_width - 1) / (width - 1), SKIP=first, SMALL=second, BR=PIXELS,
            BC=block,
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        from ringfence.weak.networks.fast import map_kernels as kernels

        first, second, height, width, low_height, low_width = ctx.sizes
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        out = _empty(gradient, second, low_height, low_width)
        pixels = len(gradient) * low_height * low_width
        kernels.join_back[(-(-pixels // PIXELS), second // ctx.block)](
            gradient, out, pixels, height, width, low_height, low_width,
            (low_height - 1) / (height - 1), (low_width - 1) / (width - 1),
            (height - 1) / (low_height - 1), (width - 1) / (low_width - 1),
            SKIP=first, SMALL=second, REACH=5, BR=PIXELS, BC=ctx.block,
        )  # fmt: skip
        return gradient[:, :first], out, None


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        from ringfence.weak.networks.fast import map_kernels as kernels

        batch, channels, height, width = x.shape
        out = _empty(x, channels, height // 2, width // 2)
        pixels, block = batch * (height // 2) * (width // 2), 32 if channels >= 32 else 16
        kernels.pool[(-(-pixels // PIXELS), -(-channels // block))](
            x, out, pixels, height // 2, width // 2, channels, BR=PIXELS, BC=block
        )
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        from ringfence.weak.networks.fast import map_kernels as kernels

        (x,) = ctx.saved_tensors
        batch, channels, height, width = x.shape
        dy, dx = dy.contiguous(memory_format=torch.channels_last), torch.empty_like(x)
        pixels, block = batch * (height // 2) * (width // 2), 32 if channels >= 32 else 16
        kernels.pool_back[(-(-pixels // PIXELS), -(-channels // block))](
            x, dy, dx, pixels, height // 2, width // 2, channels, BR=PIXELS, BC=block
        )
        return dx
