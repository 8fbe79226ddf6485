"""Convolutions that leave their bias to others, that make a few channels, or whose weights were rounded before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.weak.networks.fast.first import convolved, is_small
from ringfence.weak.networks.fast.last import is_narrow, projected


class Unbiased2d(nn.Conv2d):
    """A convolution that leaves its bias to others."""

    rounded: Tensor | None = None
    """Its weight, as ``rounded_together`` left it for the next call."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's, without the bias."""
        found = convolved(input, self.weight) if is_small(self) else None
        return self._conv_forward(input, _weight(self), None) if found is None else found


class Unbiased3d(nn.Conv3d):
    """A convolution that leaves its bias to others."""

    rounded: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's, without the bias."""
        return self._conv_forward(input, _weight(self), None)  # type: ignore[no-any-return]


class Narrow2d(nn.Conv2d):
    """A 1 × 1 convolution to a few channels."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's."""
        found = projected(input, self.weight, self.bias)
        return super().forward(input) if found is None else found


class Narrow3d(nn.Conv3d):
    """A 1 × 1 × 1 convolution to a few channels."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's."""
        found = projected(input, self.weight, self.bias)
        return super().forward(input) if found is None else found


def without_bias(module: nn.Module) -> Tensor | None:
    """The bias of a convolution, which from now on leaves it out; None if there is none."""
    for kind, unbiased in ((nn.Conv2d, Unbiased2d), (nn.Conv3d, Unbiased3d)):
        if type(module) is kind and module.bias is not None:
            module.__class__ = unbiased
            module.bias.requires_grad_(False)
            return module.bias
    return None


def narrow(module: nn.Module) -> None:
    """Let a convolution to a few channels be computed as such; leave any other module alone."""
    for kind, narrower in ((nn.Conv2d, Narrow2d), (nn.Conv3d, Narrow3d)):
        if type(module) is kind and is_narrow(module):
            module.__class__ = narrower


@contextmanager
def rounded_together(network: nn.Module) -> Iterator[None]:
    """Under autocast, round the weights of all convolutions without a bias at once, not one by one.

    Gradients still go to each weight on its own, as soon as they are there: ranks exchange some while others wait.
    """
    owners = [one for one in network.modules() if isinstance(one, (Unbiased2d, Unbiased3d)) and _is_rounded(one)]
    if owners:
        with torch.no_grad():
            copies = [torch.empty_like(one.weight, dtype=_autocast_dtype(one.weight)) for one in owners]
            torch._foreach_copy_(copies, [one.weight for one in owners])
        for one, copy in zip(owners, copies, strict=True):
            one.rounded = copy
    try:
        yield
    finally:
        for one in owners:  # those that were not called: their weight may be another one by the next call
            one.rounded = None


def _is_rounded(convolution: Unbiased2d | Unbiased3d) -> bool:
    weight = convolution.weight
    small = isinstance(convolution, nn.Conv2d) and is_small(convolution)
    return weight.dtype == torch.float32 and _autocast_dtype(weight) not in (None, torch.float32) and not small


def _autocast_dtype(weight: Tensor) -> torch.dtype | None:
    """What autocast rounds to where the weight is; None if it does not."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind) else None


def _weight(convolution: Unbiased2d | Unbiased3d) -> Tensor:
    rounded = convolution.rounded
    if rounded is None or rounded.dtype != _autocast_dtype(rounded):
        return convolution.weight
    result: Tensor = _Rounded.apply(convolution.weight, rounded)  # type: ignore[no-untyped-call]
    return result


class _Rounded(torch.autograd.Function):
    """A weight, by a copy that was rounded before; its gradient, in the weight's own precision."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rounded: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return rounded

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.to(ctx.dtype), None
