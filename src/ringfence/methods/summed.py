"""Σ φ(f), and for many residuals its slope from the same pass: a third of the memory traffic of autograd's way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

MANY: Final = 2**14
"""From so many residuals on, what counts is memory traffic, not the time to launch an operation."""


class Phi(NamedTuple):
    """φ of one constraint in one call.

    Attributes:
        total: Σ φ(f), differentiable.
        slope: φ'(f), elementwise and differentiable.
        both: Σ φ(f), and a tensor that times ``factor`` is φ'(f): new ones, computed together without a graph.
        factor: see ``both``.
        held: what ``slope`` reads beside f, so that nobody changes it while gradients may still be asked for.
    """

    total: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    both: Callable[[Tensor], tuple[Tensor, Tensor]]
    factor: float = 1.0
    held: Tensor | None = None


def summed(phi: Phi, f: Tensor, many: int = MANY) -> Tensor:
    """Σ φ(f), whose gradient is φ'(f); gradients of gradients work, too. ``many``: where ``both`` begins to pay."""
    if f.numel() < many or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return phi.total(f)  # a compiler fuses by itself, and torch.func knows plain operations
    total: Tensor = _Summed.apply(f, phi)  # type: ignore[no-untyped-call]
    return total


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Tensor, phi: Phi) -> Tensor:
        total, slope = phi.both(f)
        ctx.phi = phi
        ctx.save_for_backward(f, slope, phi.held)
        ctx.save_for_forward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        f, slope, _ = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the slope must remember where it comes from
            return gradient * ctx.phi.slope(f), None
        factor = ctx.phi.factor
        return slope * (gradient if factor == 1.0 else factor * gradient), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (slope,) = ctx.saved_tensors
        change: Tensor = ctx.phi.factor * (slope * tangent).sum()
        return change
