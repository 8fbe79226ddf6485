"""Batch norm and the ReLU after it in one module; and the bias of the convolution before it, which it undoes."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ringfence.weak.networks.fast.rows import is_ours, rows_of

PARTS: Final = 256
"""Sums are made in so many parts at most: two a multiprocessor of a large GPU; one program adds them up."""
STEPS: Final = 4
"""Tiles of a part, at least: less is not worth a program."""
TILE: Final = 2048
"""Numbers that a program looks at at once."""
WARPS: Final = 8
"""Of the programs that make sums: 16 bytes a thread and load."""
LOADS: Final = {"moments": {"UNROLL": 8, "STAGES": 1}, "slopes": {"UNROLL": 1, "STAGES": 4}}
"""How loads are kept on their way while others are added: side by side, or ahead."""


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
    tickets: Tensor

    def __init__(self, norm: nn.BatchNorm2d | nn.BatchNorm3d, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.momentum = norm.eps, norm.momentum
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        # programs that have finished, forward and back: 0 between launches; here before any CUDA graph is recorded
        blocks = -(-len(norm.weight) // _block(len(norm.weight)))
        tickets = torch.zeros(2, blocks, dtype=torch.int32, device=norm.weight.device)
        self.register_buffer("tickets", tickets, persistent=False)
        self._before = [bias]  # in a list: it is the convolution's, and must not be a parameter of two
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """relu(batch norm(x + b))."""
        bias = self._before[0]
        learning = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if not is_ours(x) or (learning and not self.training):
            return self._plainly(x, bias)
        if not self.training:
            assert self.running_mean is not None and self.running_var is not None  # noqa: S101, PT018 - see fits
            mean = self.running_mean if bias is None else self.running_mean - bias
            return _normalised(x, mean, (self.running_var + self.eps).rsqrt(), self.weight, self.bias)
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
        and norm.num_batches_tracked is not None
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
        block = _block(channels)
        each, parts = _parts(rows, block)
        part_mean, part_squares = x.new_empty(2, parts, channels, dtype=torch.float32)
        mean, scale = x.new_empty(2, channels, dtype=torch.float32)
        kernels.moments[(parts, -(-channels // block))](
            x, part_mean, part_squares, own.tickets[0], rows, channels, parts, each, mean, scale, own.running_mean,
            own.running_var, own.num_batches_tracked, before, own.eps, own.momentum, BR=TILE // block, BC=block,
            BP=_power(PARTS), BIASED=before is not None, num_warps=WARPS, **LOADS["moments"],
        )  # fmt: skip
        ctx.tickets = own.tickets[1]
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return _normalised(x, mean, scale, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from ringfence.weak.networks.fast import norm_kernels as kernels

        x, weight, bias, mean, scale = ctx.saved_tensors
        channels = x.shape[1]
        rows = x.numel() // channels
        dy, stride = rows_of(dy)
        block = _block(channels)
        each, parts = _parts(rows, block)
        part_bias, part_weight = x.new_empty(2, parts, channels, dtype=torch.float32)
        d_bias, d_weight = x.new_empty(2, channels, dtype=torch.float32)
        kernels.slopes[(parts, -(-channels // block))](
            x, dy, mean, scale, weight, bias, part_bias, part_weight, ctx.tickets, rows, channels, stride, parts,
            each, d_bias, d_weight, BR=TILE // block, BC=block, BP=_power(PARTS), num_warps=WARPS,
            **LOADS["slopes"],
        )  # fmt: skip
        dx = torch.empty_like(x)
        kernels.spread[(-(-rows * block // TILE), -(-channels // block))](
            x, dy, dx, mean, scale, weight, bias, d_bias, d_weight, rows, channels, stride,
            BR=TILE // block, BC=block,
        )  # fmt: skip
        return dx, d_weight.to(weight.dtype), d_bias.to(bias.dtype), None, None


def _normalised(x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from ringfence.weak.networks.fast import norm_kernels as kernels

    channels = x.shape[1]
    rows, block, y = x.numel() // channels, _block(channels), torch.empty_like(x)
    kernels.normalise[(-(-rows * block // TILE), -(-channels // block))](
        x, y, mean, scale, weight, bias, rows, channels, BR=TILE // block, BC=block
    )
    return y


def _parts(rows: int, block: int) -> tuple[int, int]:
    """Rows of a part, a multiple of what a program does at least, and how many parts there are."""
    least = STEPS * TILE // block
    each = -(-rows // PARTS)
    each = -(-each // least) * least
    return each, -(-rows // each)


def _block(channels: int) -> int:
    """Channels that a program looks at: a power of two, 8 to 32."""
    return min(32, max(8, _power(channels)))


def _power(number: int) -> int:
    """The smallest power of two from it on."""
    return 1 << math.ceil(math.log2(number))
