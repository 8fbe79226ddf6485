"""The last convolution of a network on a GPU: 1 × 1, from many channels to the few logits of a pixel."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ringfence.weak.networks.fast.branches import gradient_of_weight
from ringfence.weak.networks.fast.rows import computing_in, empty_rows, is_ours, rows_of

MOST_OUTPUTS: Final = 8
"""From there on, matrix products pay."""
MOST_CHANNELS: Final = 128
"""All of a pixel's are looked at at once."""
PARTS: Final = 528
"""Sums over pixels are made in so many parts at most: four for each multiprocessor of a large GPU."""
TILE: Final = 4096
"""Numbers that a program looks at at once."""


def is_narrow(convolution: nn.Conv2d | nn.Conv3d) -> bool:
    """Whether it makes a few numbers of each pixel's channels, and of nothing else."""
    ones, zeros = (1,) * len(convolution.kernel_size), (0,) * len(convolution.kernel_size)
    return (
        convolution.out_channels <= MOST_OUTPUTS
        and convolution.in_channels <= MOST_CHANNELS
        and convolution.kernel_size == convolution.stride == ones
        and convolution.padding in (zeros, "valid", "same")
        and convolution.groups == 1
    )


def projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Σ over channels of x weight, and the bias; None where the kernels do not fit."""
    dtype = computing_in(x)
    if not is_ours(x) or torch.float64 in (dtype, weight.dtype):
        return None
    result: Tensor = _Projected.apply(x.to(dtype), weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        from ringfence.weak.networks.fast import last_kernels as kernels

        channels, outputs = x.shape[1], len(weight)
        rows, block = x.numel() // channels, _block(channels)
        out = empty_rows(x, outputs, *x.shape[2:])
        kernels.project[(-(-rows * block // TILE),)](
            x, weight.contiguous(), bias, out, rows, channels, OUTPUTS=outputs, BR=TILE // block, BC=block,
            BIASED=bias is not None,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        from ringfence.weak.networks.fast import last_kernels as kernels

        x, weight, bias = ctx.saved_tensors
        channels, outputs = x.shape[1], len(weight)
        rows, block = x.numel() // channels, _block(channels)
        tile = TILE // block
        each = -(-rows // PARTS // tile) * tile
        count, dx = -(-rows // each), torch.empty_like(x)
        dy, stride = rows_of(dy)
        # a part's sums for the weights, then those for the bias: one addition for both
        parts = x.new_empty(count, outputs * (channels + 1), dtype=torch.float32)
        kernels.project_back[(count,)](
            x, weight.contiguous(), dy, dx, parts, rows, channels, stride, each, OUTPUTS=outputs, BR=tile, BC=block,
        )  # fmt: skip

        def summed() -> tuple[Tensor, ...]:
            sums = parts.sum(dim=0)
            d_weight = sums[: outputs * channels].as_strided(weight.shape, weight.stride()).to(weight.dtype)
            return (d_weight,) if bias is None else (d_weight, sums[outputs * channels :].to(bias.dtype))

        d_weight, *rest = gradient_of_weight(summed, parts)
        return dx, d_weight, rest[0] if rest else None


def _block(channels: int) -> int:
    """A power of two, 16 at least: what a matrix product of the GPU takes."""
    return max(16, 1 << math.ceil(math.log2(channels)))
