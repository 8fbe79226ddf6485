"""The 3 × 3 convolutions of large maps with few channels on a GPU: there is more to read than to multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ringfence.weak.networks.fast.branches import gradient_of_weight
from ringfence.weak.networks.fast.rows import computing_in, is_ours, rows_of

CHANNELS: Final = (16, 32, 48, 64)
"""That a convolution may have, and make: from there on, and between, cuDNN."""
MOST_NUMBERS: Final = 2**29
"""Of a map in an image: kernels count them in 32 bits, and a gradient may lie in a map a few times as wide."""
MOST_IMAGES: Final = 2**13
"""Programs have numbers of 16 bits along them."""


class Wins(NamedTuple):
    """Where the kernels are faster than cuDNN: forward, for the gradient of what came in, and of the weight."""

    product: int
    """Channels in × channels out, at most."""
    pixels: int
    """Of all images, at least: below, nothing is large, and launches count."""


WINS: Final = (Wins(1024, 2**17), Wins(2048, 2**18))
"""As measured on an H200."""


@dataclass(frozen=True)
class Walk:
    """How ``convolve`` goes over a map: rows and columns of a program, its warps, and loads ahead."""

    rows: int = 16
    columns: int = 64
    warps: int = 4
    stages: int = 3
    outputs: int = 64
    """Of a program, at most."""


@dataclass(frozen=True)
class Sums:
    """How ``weigh`` sums: pixels at a time, channels and outputs of a program, its warps, loads ahead, programs."""

    pixels: int = 64
    channels: int = 32
    outputs: int = 32
    warps: int = 8
    stages: int = 3
    programs: int = 264


def walk(channels: int) -> Walk:
    """For a map of so many channels; as measured on an H200."""
    return Walk(warps=2, stages=2) if channels == 48 else Walk()


def sums(channels: int, outputs: int) -> Sums:
    """For the gradient of a weight of so many channels, to so many outputs; as measured on an H200."""
    if min(channels, outputs) == 16:
        return Sums(pixels=128, channels=16, outputs=16, warps=4, stages=1, programs=528)
    return Sums()


def is_thin(convolution: nn.Conv2d) -> bool:
    """Whether it is 3 × 3, of few channels to few, with zeros around the image, and nothing special."""
    return (
        convolution.in_channels in CHANNELS
        and convolution.out_channels in CHANNELS
        and convolution.kernel_size == (3, 3)
        and convolution.stride == convolution.dilation == convolution.padding == (1, 1)
        and convolution.groups == 1
        and convolution.padding_mode == "zeros"
    )


def walked(x: Tensor, weight: Tensor, rounded: Tensor | None) -> Tensor | None:
    """The convolution, without a bias; None where the kernels do not fit or cuDNN is as fast.

    Args:
        x: a map.
        weight: in its own precision, which its gradient will have.
        rounded: the weight, in the precision that is computed in, if there is such a copy.
    """
    dtype = computing_in(x)
    if not is_ours(x) or dtype not in (torch.bfloat16, torch.float16) or not _counts(x, weight):
        return None
    if not any(weight.shape[0] * weight.shape[1] <= one.product and _pixels(x) >= one.pixels for one in WINS):
        return None
    if rounded is not None and rounded.dtype != dtype:
        rounded = None
    result: Tensor = _Walked.apply(x.to(dtype), weight, rounded)  # type: ignore[no-untyped-call]
    return result


def convolution(x: Tensor, weight: Tensor, how: Walk, flipped: bool = False) -> Tensor:
    """The kernel itself: ``x``, its rows apart by any stride, with a weight; ``flipped``, the way gradients go."""
    from ringfence.weak.networks.fast import middle_kernels as kernels

    x, stride = rows_of(x)
    batch, channels, height, width = x.shape
    along_n, along_k, along_y, along_x = weight.stride()
    outputs = weight.shape[0]
    if flipped:
        outputs, along_n, along_k = weight.shape[1], along_k, along_n
    out = x.new_empty(batch, height, width, outputs).permute(0, 3, 1, 2)
    block = min(how.outputs, _power(outputs))
    grid = (-(-width // how.columns), -(-height // how.rows), batch * -(-outputs // block))
    kernels.convolve[grid](
        x, weight, out, height, width, stride, along_k, along_n, along_y, along_x, outputs, CHANNELS=channels,
        FLIPPED=flipped, BH=how.rows, BW=how.columns, BK=_power(channels), BN=block, STAGES=how.stages,
        num_warps=how.warps,
    )  # fmt: skip
    return out


def weight_gradient(x: Tensor, dy: Tensor, like: Tensor, how: Sums) -> Tensor:
    """The kernels themselves: Σ over pixels of x[p + tap] dy[p], laid out as ``like`` is, in its precision."""
    from ringfence.weak.networks.fast import middle_kernels as kernels

    x, x_stride = rows_of(x)
    dy, dy_stride = rows_of(dy)
    batch, channels, height, width = x.shape
    outputs = dy.shape[1]
    bx, by = min(how.channels, _power(channels)), min(how.outputs, _power(outputs))
    blocks = -(-channels // bx) * -(-outputs // by)
    units = batch * height * -(-width // how.pixels)
    each = -(-units // max(1, how.programs // blocks))
    count = -(-units // each)
    parts = x.new_empty(count, 9 * channels * outputs, dtype=torch.float32)
    kernels.weigh[(count, blocks)](
        x, dy, parts, height, width, x_stride, dy_stride, units, each, channels, outputs, BP=how.pixels, BX=bx,
        BY=by, BM=_power(3 * bx), BN=_power(3 * by), STAGES=how.stages, num_warps=how.warps,
    )  # fmt: skip
    found = torch.empty_like(like)
    along_o, along_c, along_y, along_x = found.stride()
    kernels.gather[(-(-9 * channels * outputs // 32),)](
        parts, found, count, channels, outputs, along_c, along_o, along_y, along_x, BP=128, BE=32
    )
    return found


class _Walked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rounded: Tensor | None) -> Tensor:
        used = weight.detach().to(x.dtype) if rounded is None else rounded
        ctx.save_for_backward(x, used)
        ctx.like = weight
        return convolution(x, used, walk(x.shape[1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, used), weight = ctx.saved_tensors, ctx.like
        dx = convolution(dy, used, walk(dy.shape[1]), flipped=True) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return dx, None, None
        how = sums(x.shape[1], dy.shape[1])
        (dw,) = gradient_of_weight(lambda: (weight_gradient(x, dy, weight, how),), x, dy)
        return dx, dw, None


def _pixels(x: Tensor) -> int:
    return x.numel() // x.shape[1]


def _counts(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels' integers are enough."""
    pixels = x.shape[2] * x.shape[3]
    return max(weight.shape[:2]) * pixels < MOST_NUMBERS and len(x) <= MOST_IMAGES


def _power(number: int) -> int:
    """The smallest power of two from it on."""
    return 1 << (number - 1).bit_length()
