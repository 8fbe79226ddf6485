"""Batch norm and the ReLU after it in one module; and the bias of the convolution before it, which it undoes."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.extras import installed

PARTS: Final = 1024
"""Sums are made in so many parts at most: a few for each multiprocessor of a large GPU."""


class NormWithReLU(nn.Module):
    """y = relu(batch norm(x + b)), with the weights of a batch norm and the bias b of the convolution before it.

    What batch norm subtracts again needs not be added: b moves the running mean, and nothing else. Names and values
    of weights and buffers are those of the batch norm.

    Args:
        norm: whose weights, buffers and settings it takes.
        bias: b, or None.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, norm: nn.BatchNorm2d | nn.BatchNorm3d, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum = norm.eps, norm.momentum
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self._before = [bias]  # in a list: it is the convolution's, and must not be a parameter of two
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """relu(batch norm(x + b))."""
        bias = self._before[0]
        layout = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        ours = x.is_cuda and installed("triton") and x.is_contiguous(memory_format=layout)
        if not ours or x.dtype == torch.float64 or not x.numel():
            return self._plainly(x, bias)
        if not self.training:
            assert self.running_mean is not None and self.running_var is not None  # noqa: S101, PT018 - see fits
            mean = self.running_mean if bias is None else self.running_mean - bias
            return _normalised(x, mean, (self.running_var + self.eps).rsqrt(), self.weight, self.bias)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        result: Tensor = _NormWithReLU.apply(x, self.weight, self.bias, bias, self)  # type: ignore[no-untyped-call]
        return result

    def _plainly(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if bias is not None:
            x = x + bias.to(x.dtype).view(1, -1, *[1] * (x.ndim - 2))
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        normed = F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum or 0.0,
            self.eps,
        )
        return F.relu(normed)

    def extra_repr(self) -> str:
        """As a batch norm's."""
        return f"{len(self.weight)}, eps={self.eps}, momentum={self.momentum}"


def fits(norm: nn.Module) -> bool:
    """Whether a batch norm has all that the fused one needs: weights, running statistics, a momentum."""
    return (
        type(norm) in (nn.BatchNorm2d, nn.BatchNorm3d)
        and norm.weight is not None
        and norm.running_mean is not None
        and norm.momentum is not None
    )


class _NormWithReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, before: Tensor | None, own: NormWithReLU
    ) -> Tensor:
        from ringfence.weak.networks.fast import norm_kernels as kernels

        channels = x.shape[1]
        rows = x.numel() // channels
        each, parts = _parts(rows)
        block = _block(channels)
        part_mean, part_squares = x.new_empty(2, parts, channels, dtype=torch.float32)
        kernels.moments[(parts, -(-channels // block))](
            x, part_mean, part_squares, rows, channels, each, BR=2048 // block, BC=block
        )
        mean, scale = x.new_empty(2, channels, dtype=torch.float32)
        kernels.settle[(-(-channels // 4),)](
            part_mean, part_squares, parts, each, rows, channels, mean, scale, own.running_mean, own.running_var,
            before, own.eps, own.momentum, BP=1024, BC=4, TRACKED=True, BIASED=before is not None,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return _normalised(x, mean, scale, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from ringfence.weak.networks.fast import norm_kernels as kernels

        x, weight, bias, mean, scale = ctx.saved_tensors
        channels = x.shape[1]
        rows = x.numel() // channels
        dy, stride = _rows_of(dy, x)
        each, parts = _parts(rows)
        block = _block(channels)
        part_bias, part_weight = x.new_empty(2, parts, channels, dtype=torch.float32)
        kernels.slopes[(parts, -(-channels // block))](
            x, dy, mean, scale, weight, bias, part_bias, part_weight, rows, channels, stride, each,
            BR=2048 // block, BC=block,
        )  # fmt: skip
        d_bias, d_weight = x.new_empty(2, channels, dtype=torch.float32)
        kernels.add_up[(-(-channels // 4),)](
            part_bias, part_weight, parts, channels, d_bias, d_weight, BP=1024, BC=4
        )
        dx = torch.empty_like(x)
        kernels.spread[(-(-rows * block // 2048), -(-channels // block))](
            x, dy, dx, mean, scale, weight, bias, d_bias, d_weight, rows, channels, stride,
            BR=2048 // block, BC=block,
        )  # fmt: skip
        return dx, d_weight.to(weight.dtype), d_bias.to(bias.dtype), None, None


def _normalised(x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from ringfence.weak.networks.fast import norm_kernels as kernels

    channels = x.shape[1]
    rows, block, y = x.numel() // channels, _block(channels), torch.empty_like(x)
    kernels.normalise[(-(-rows * block // 2048), -(-channels // block))](
        x, y, mean, scale, weight, bias, rows, channels, BR=2048 // block, BC=block
    )
    return y


def _rows_of(dy: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """A gradient whose rows can be walked over, and how far apart they are: part of a join's is, where it lies."""
    channels = x.shape[1]
    strides, wide = dy.stride(), dy.stride(dy.ndim - 1)
    expected = wide
    for axis in reversed([0, *range(2, dy.ndim)]):
        if dy.shape[axis] != 1 and strides[axis] != expected:
            break
        expected *= dy.shape[axis]
    else:
        if strides[1] == 1 and wide >= channels:
            return dy, wide
    layout = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    return dy.contiguous(memory_format=layout), channels


def _parts(rows: int) -> tuple[int, int]:
    """Rows of a part, a multiple of 64, and how many parts there are."""
    each = -(-rows // PARTS)
    each = -(-each // 64) * 64
    return each, -(-rows // each)


def _block(channels: int) -> int:
    """Channels that a program looks at: a power of two, 8 to 32."""
    return min(32, max(8, 1 << math.ceil(math.log2(channels))))
