"""Convolutions that leave their bias to others, that make a few channels, or whose weights were rounded before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ringfence.weak.networks.fast.branches import gradient_of_weight
from ringfence.weak.networks.fast.first import convolved, is_small
from ringfence.weak.networks.fast.last import is_narrow, projected
from ringfence.weak.networks.fast.middle import is_thin, walked


class _Rounding:
    """Of a convolution: its weight and its bias, as ``rounded_together`` left them for the next call."""

    rounded: Tensor | None = None
    rounded_bias: Tensor | None = None


class Unbiased2d(_Rounding, nn.Conv2d):
    """A convolution that leaves its bias to others."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's, without the bias."""
        found = None
        if is_small(self):
            found = convolved(input, self.weight)
        elif is_thin(self):
            found = walked(input, self.weight, self.rounded)
        return _by_cudnn(self, input, None) if found is None else found


class Unbiased3d(_Rounding, nn.Conv3d):
    """A convolution that leaves its bias to others."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's, without the bias."""
        return _by_cudnn(self, input, None)


class Biased2d(_Rounding, nn.Conv2d):
    """A convolution with its bias."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's."""
        return _by_cudnn(self, input, self.bias)


class Biased3d(_Rounding, nn.Conv3d):
    """A convolution with its bias."""

    def forward(self, input: Tensor) -> Tensor:
        """As a convolution's."""
        return _by_cudnn(self, input, self.bias)


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


def compute_here(module: nn.Module) -> None:
    """Have a convolution computed by a class of this file, the one that fits; leave any other module alone."""
    for kind, narrower, biased in ((nn.Conv2d, Narrow2d, Biased2d), (nn.Conv3d, Narrow3d, Biased3d)):
        if type(module) is kind:
            module.__class__ = narrower if is_narrow(module) else biased


@contextmanager
def rounded_together(network: nn.Module) -> Iterator[None]:
    """Under autocast, round the weights of all convolutions at once, not one by one.

    Gradients still go to each weight on its own, as soon as they are there: ranks exchange some while others wait.
    """
    kinds = (Unbiased2d, Unbiased3d, Biased2d, Biased3d)
    owners = [one for one in network.modules() if isinstance(one, kinds) and _is_rounded(one)]
    biases = [(one, one.bias) for one in owners if isinstance(one, kinds[2:]) and one.bias is not None]
    if owners:
        with torch.no_grad():
            exact = [*(one.weight for one in owners), *(bias for _, bias in biases)]
            copies = [torch.empty_like(one, dtype=_autocast_dtype(one)) for one in exact]
            torch._foreach_copy_(copies, exact)
        for one, copy in zip(owners, copies, strict=False):
            one.rounded = copy
        for (owner, _), copy in zip(biases, copies[len(owners) :], strict=True):
            owner.rounded_bias = copy
    try:
        yield
    finally:
        for one in owners:  # those that were not called: their weight may be another one by the next call
            one.rounded = one.rounded_bias = None


def _is_rounded(convolution: Any) -> bool:
    weight = convolution.weight
    small = isinstance(convolution, Unbiased2d) and is_small(convolution)
    return weight.dtype == torch.float32 and _autocast_dtype(weight) not in (None, torch.float32) and not small


def _autocast_dtype(weight: Tensor) -> torch.dtype | None:
    """What autocast rounds to where the weight is; None if it does not."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind) else None


def _by_cudnn(convolution: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution, by weights that were rounded before, if there are any."""
    rounded, rounded_bias = convolution.rounded, convolution.rounded_bias
    ready = (
        rounded is not None and rounded.dtype == _autocast_dtype(rounded) and convolution.padding_mode == "zeros"
    )
    if not ready or isinstance(convolution.padding, str) or (bias is None) != (rounded_bias is None):
        return convolution._conv_forward(x, convolution.weight, bias)  # type: ignore[no-any-return]
    shape = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
    result: Tensor = _Convolved.apply(  # type: ignore[no-untyped-call]
        x.to(rounded.dtype), convolution.weight, bias, rounded, rounded_bias, shape
    )
    return result


class _Convolved(torch.autograd.Function):
    """A convolution by copies of weight and bias that were rounded before; their gradients, as exact as they are.

    That of the map comes first: the layer before waits for it, and for the others only the optimiser does.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rounded: Tensor,
        rounded_bias: Tensor | None,
        shape: tuple[Any, ...],
    ) -> Tensor:
        stride, padding, dilation, groups = shape
        ctx.shape, ctx.weight, ctx.bias = shape, weight, bias
        ctx.save_for_backward(x, rounded)
        transposed, output_padding = False, [0] * (x.ndim - 2)
        return torch.convolution(
            x, rounded, rounded_bias, stride, padding, dilation, transposed, output_padding, groups
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x, rounded), weight, bias = ctx.saved_tensors, ctx.weight, ctx.bias
        stride, padding, dilation, groups = ctx.shape

        def gradients(of_map: bool, of_weight: bool, of_bias: bool) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
                dy, x, rounded, None if bias is None else bias.shape, stride, padding, dilation, False,
                [0] * (x.ndim - 2), groups, [of_map, of_weight, of_bias],
            )  # fmt: skip
            return found

        def of_weights() -> tuple[Tensor, ...]:
            _, d_weight, d_bias = gradients(False, True, ctx.needs_input_grad[2])
            exact = torch.empty_like(weight).copy_(d_weight)
            return (exact,) if d_bias is None else (exact, d_bias.to(bias.dtype))

        dx = gradients(True, False, False)[0] if ctx.needs_input_grad[0] else None
        d_weight, *rest = gradient_of_weight(of_weights, x, dy) if ctx.needs_input_grad[1] else (None,)
        return dx, d_weight, rest[0] if rest else None, None, None, None
