"""Batch normalisation over the batches of all ranks, as if one process had all rows.

torch's SyncBatchNorm does that on GPUs alone. A rank that has a sample only to take part (a ghost) adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn.modules._functions import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm

from ringfence.barrier import computing_dtype

NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Ghost:
    """Whether this rank's rows of the batch under way count: ``ghost.here`` is set before each step."""

    here = False


@contextmanager
def norms_of_all_ranks(network: nn.Module) -> Iterator[Ghost]:
    """Let every BatchNorm of a network see all ranks' rows in training; afterwards it is as it was.

    The modules stay what they are, with their weights and names: a checkpoint or a saved model shows no difference.
    """
    ghost = Ghost()
    norms = [one for one in network.modules() if isinstance(one, NORMS) and type(one) in NORMS]
    for norm in norms:
        norm.forward = partial(_normed, norm, ghost)  # type: ignore[method-assign]
    try:
        yield ghost
    finally:
        for norm in norms:
            del norm.forward


def _normed(norm: _BatchNorm, ghost: Ghost, x: Tensor) -> Tensor:
    """What ``norm`` gives for this rank's rows of a batch that is spread over all ranks."""
    if not norm.training:
        return type(norm).forward(norm, x)  # as it was
    if not ghost.here:
        return _over_all_ranks(norm, x)
    nothing = _over_all_ranks(norm, x[:0])  # the others wait for that
    if norm.running_mean is not None and norm.running_var is not None:  # so that nothing grows without bounds
        x = (x - _along(norm.running_mean, x)) * _along((norm.running_var + norm.eps).rsqrt(), x)
    return x + nothing.sum()


def _along(values: Tensor, x: Tensor) -> Tensor:
    """One for each channel of x."""
    return values.to(x.dtype).view(1, -1, *[1] * (x.ndim - 2))


def _over_all_ranks(norm: _BatchNorm, x: Tensor) -> Tensor:
    """γ(x - mean) / √(variance + ε) + β, by the mean and the variance of all ranks' rows; perhaps none here."""
    momentum = norm.momentum or 0.0
    if norm.num_batches_tracked is not None and norm.track_running_stats:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:
            momentum = 1.0 / float(norm.num_batches_tracked)
    running = (norm.running_mean, norm.running_var)
    if x.is_cuda:
        found: Any = SyncBatchNorm.apply(
            x, norm.weight, norm.bias, *running, norm.eps, momentum, dist.group.WORLD, dist.get_world_size()
        )
    else:
        over: Any = _OverAllRanks
        found = over.apply(x, norm.weight, norm.bias, *running, norm.eps, momentum)
    result: Tensor = found
    return result


class _OverAllRanks(torch.autograd.Function):
    """The same on CPUs. Ranks tell each other count, mean and Σ(x - mean)², which are put together in float64."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        eps: float,
        momentum: float,
    ) -> Tensor:
        """Normalise this rank's rows, and move the running mean and variance as one process would."""
        ctx.given, x = x.dtype, x.to(computing_dtype(x.dtype))  # bfloat16 would round a mean to three digits
        axes = [axis for axis in range(x.ndim) if axis != 1]
        rows = x.numel() // x.shape[1]
        if rows:
            variance, mean = torch.var_mean(x.double(), axes, correction=0)
        else:
            variance = mean = torch.zeros(x.shape[1], dtype=torch.float64)
        mine = torch.cat([torch.tensor([float(rows)], dtype=torch.float64), mean, variance * rows])
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, mine)
        counts, means, squares = torch.stack(everyones).split([1, x.shape[1], x.shape[1]], dim=1)
        count = counts.sum()
        mean = (counts * means).sum(dim=0) / count
        variance = (squares + counts * (means - mean) ** 2).sum(dim=0) / count
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            unbiased = variance * (count / (count - 1.0).clamp(min=1.0))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        inverse = _along((variance + eps).rsqrt(), x)
        normal = (x - _along(mean, x)) * inverse
        ctx.save_for_backward(normal, inverse, weight)
        ctx.count, ctx.axes, ctx.has_bias = float(count), axes, bias is not None
        if weight is None:
            return normal.clone().to(ctx.given)
        return (normal * _along(weight, x) + (0.0 if bias is None else _along(bias, x))).to(ctx.given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """dx = γ/σ (dy - mean dy - x̂ mean(dy x̂)), means over all ranks' rows; those of γ and β are this rank's."""
        normal, inverse, weight = ctx.saved_tensors
        gradient = gradient.to(normal.dtype)
        to_bias = gradient.sum(ctx.axes)
        to_weight = (gradient * normal).sum(ctx.axes)
        sums = torch.stack([to_bias, to_weight]).double()
        dist.all_reduce(sums)
        mean, along = (sums / ctx.count).to(gradient.dtype).view(2, *inverse.shape)
        to_x = (gradient - mean - normal * along) * inverse
        if weight is None:
            return to_x.to(ctx.given), None, None, None, None, None, None
        to_x = (to_x * weight.view(inverse.shape)).to(ctx.given)
        return to_x, to_weight, to_bias if ctx.has_bias else None, None, None, None, None
