"""Doubling and joining, and halving, of maps on a GPU, as autograd sees them; plain operations elsewhere."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ringfence.weak.networks.fast.rows import empty_rows, is_ours, rows_of

PIXELS: Final = 64
"""Of a program."""


class Halving(nn.Module):
    """The maximum of two by two pixels, as ``nn.MaxPool2d(2)``."""

    def forward(self, x: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        """``[batch, channels, height / 2, width / 2]``.

        Args:
            x: ``[batch, channels, height, width]``.
            kept: gets x, to be used again in place of x itself: the gradients of both uses are then added in the
                pass that this one's needs anyway.
        """
        if not is_ours(x) or x.shape[2] % 2 or x.shape[3] % 2:
            result, again = F.max_pool2d(x, 2), x
        else:
            result, again = _Halved.apply(x)  # type: ignore[no-untyped-call]
        if kept is not None:
            kept.append(again)
        return result


def join_doubled(skip: Tensor, small: Tensor) -> Tensor:
    """``skip``, and ``small`` at twice its size (bilinear, corners aligned), joined along the channels."""
    block = _common_block(skip.shape[1], small.shape[1])
    doubled = skip.shape[2:] == tuple(2 * length for length in small.shape[2:]) and min(small.shape[2:]) >= 4
    if not (is_ours(skip) and is_ours(small) and doubled and block and skip.dtype == small.dtype):
        larger = F.interpolate(small, scale_factor=2.0, mode="bilinear", align_corners=True)
        return torch.cat([skip, larger], dim=1)
    result: Tensor = _Joined.apply(skip, small, block)  # type: ignore[no-untyped-call]
    return result


def _common_block(first: int, second: int) -> int:
    """The largest power of two up to 32 that divides both; 0 if it is less than 8."""
    block = next(one for one in (32, 16, 8, 1) if first % one == 0 and second % one == 0)
    return block if block >= 8 else 0


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, skip: Tensor, small: Tensor, block: int) -> Tensor:
        from ringfence.weak.networks.fast import map_kernels as kernels

        batch, first, height, width = skip.shape
        second, low_height, low_width = small.shape[1:]
        out = empty_rows(skip, first + second, height, width)
        ctx.sizes, ctx.block = (first, second, height, width, low_height, low_width), block
        pixels = batch * height * width
        kernels.join[(-(-pixels // PIXELS), (first + second) // block)](
            skip, small, out, pixels, height, width, low_height, low_width,
            (low_height - 1) / (height - 1), (low_width - 1) / (width - 1), SKIP=first, SMALL=second, BR=PIXELS,
            BC=block,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        from ringfence.weak.networks.fast import map_kernels as kernels

        first, second, height, width, low_height, low_width = ctx.sizes
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        out = empty_rows(gradient, second, low_height, low_width)
        pixels = len(gradient) * low_height * low_width
        kernels.join_back[(-(-pixels // PIXELS), second // ctx.block)](
            gradient, out, pixels, height, width, low_height, low_width,
            (low_height - 1) / (height - 1), (low_width - 1) / (width - 1),
            (height - 1) / (low_height - 1), (width - 1) / (low_width - 1),
            SKIP=first, SMALL=second, REACH=5, BR=PIXELS, BC=ctx.block,
        )  # fmt: skip
        return gradient[:, :first], out, None


class _Halved(torch.autograd.Function):
    """The halved map, and the map itself again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        from ringfence.weak.networks.fast import map_kernels as kernels

        batch, channels, height, width = x.shape
        out = empty_rows(x, channels, height // 2, width // 2)
        pixels, block = batch * (height // 2) * (width // 2), 32 if channels >= 32 else 16
        kernels.pool[(-(-pixels // PIXELS), -(-channels // block))](
            x, out, pixels, height // 2, width // 2, channels, BR=PIXELS, BC=block
        )
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)  # the map itself may not be used again
        return out, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, kept: Tensor | None) -> Tensor | None:
        from ringfence.weak.networks.fast import map_kernels as kernels

        if dy is None:
            return kept
        (x,) = ctx.saved_tensors
        batch, channels, height, width = x.shape
        dx = torch.empty_like(x)
        dy, stride = rows_of(dy)
        kept, kept_stride = (None, 0) if kept is None else rows_of(kept)
        pixels, block = batch * (height // 2) * (width // 2), 32 if channels >= 32 else 16
        kernels.pool_back[(-(-pixels // PIXELS), -(-channels // block))](
            x, dy, kept, dx, pixels, height // 2, width // 2, channels, stride, kept_stride, KEPT=kept is not None,
            BR=PIXELS, BC=block,
        )  # fmt: skip
        return dx
