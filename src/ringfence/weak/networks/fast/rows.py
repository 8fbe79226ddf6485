"""Maps whose channels are last, as rows of channels: where they lie, and what computes in what."""

from __future__ import annotations

import torch
from torch import Tensor

from ringfence.extras import installed

MOST_PIXELS = 2**31
"""Kernels count pixels in 32 bits."""


def is_ours(x: Tensor) -> bool:
    """Whether kernels can work on a map: on a GPU, channels last, of float32 or less."""
    layout = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    return (
        x.is_cuda
        and installed("triton")
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=layout)
        and 0 < x.numel() // max(1, x.shape[1]) < MOST_PIXELS
    )


def computing_in(x: Tensor) -> torch.dtype:
    """What autocast would compute in."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def empty_rows(like: Tensor, channels: int, *space: int) -> Tensor:
    """``[batch, channels, *space]``, the channels last in memory."""
    return like.new_empty(like.shape[0], *space, channels).movedim(-1, 1)


def rows_of(gradient: Tensor) -> tuple[Tensor, int]:
    """A gradient whose rows can be walked over, and how far apart they are: part of a join's is, where it lies."""
    channels = gradient.shape[1]
    strides, wide = gradient.stride(), gradient.stride(gradient.ndim - 1)
    expected = wide
    for axis in reversed([0, *range(2, gradient.ndim)]):
        if gradient.shape[axis] != 1 and strides[axis] != expected:
            break
        expected *= gradient.shape[axis]
    else:
        if strides[1] == 1 and wide >= channels:
            return gradient, wide
    layout = torch.channels_last if gradient.ndim == 4 else torch.channels_last_3d
    return gradient.contiguous(memory_format=layout), channels
