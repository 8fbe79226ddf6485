"""The log-barrier extension and its derivative: pure functions of a tensor, exact in every dtype."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from ringfence.numbers import positive_number

Sharpness: TypeAlias = float | Tensor
"""The barrier's ``t``: a positive number, or a tensor that broadcasts against the residuals."""


def log_barrier(z: Tensor, t: Sharpness) -> Tensor:
    """ψ_t(z) = -log(-z)/t if z <= -1/t², else t·z - log(1/t²)/t + 1/t, elementwise.

    ``z`` is a constraint's value under the convention ``z <= 0`` is satisfied. Unlike the standard barrier,
    ψ_t is finite everywhere, so training may start from an infeasible point.

    Smoothness: ψ_t is convex and C¹, but *not* twice differentiable (the paper says it is). At the junction
    z = -1/t² both branches have slope t, while the second derivative drops from t³ (log branch) to 0 (linear
    branch). At the junction itself this function answers with the log branch, so ψ'' = t³ there.

    Numbers: value and gradient are finite for every finite ``z`` whose true result fits the dtype (z = 0,
    denormals and ± the largest number included), for ``t`` from 1e-3 to 1e8, and NaN stays NaN.
    float16 and bfloat16 are computed, and returned, in float32: a sum of barriers overflows half precision long
    before it means anything.

    Args:
        z: residuals, any shape, floating point.
        t: how sharp the barrier is, > 0; a number, or a tensor that broadcasts against ``z``. A CUDA
            tensor's entries that are not positive give NaN rather than an error: looking would stall the GPU.

    Returns:
        ψ_t(z), shaped like ``z`` (broadcast with ``t``).
    """
    z, t = _prepare(z, t)
    inverse = 1.0 / t
    junction = -inverse * inverse
    # Both branches in one: the log branch up to the junction, and from there on the tangent, of slope t.
    # Selecting before the logarithm, not after it, keeps its gradient free of the NaN at z = 0.
    inside = z.clamp(max=junction)
    return torch.log(-inside) * -inverse + t * torch.relu(z - junction)


def log_barrier_dual(z: Tensor, t: Sharpness) -> Tensor:
    """λ = ψ_t'(z) = -1/(t·z) if z <= -1/t², else t, elementwise: the implicit dual variable.

    Positive for every finite ``z`` (short of underflow), equal bit for bit to what autograd gives for
    ``log_barrier``, and differentiable itself: λ'(z) = 1/(t·z²) up to the junction, 0 after it.

    Args:
        z: residuals (``<= 0`` is satisfied), any shape, floating point.
        t: as for ``log_barrier``.

    Returns:
        λ, shaped like ``z`` (broadcast with ``t``); float32 for half-precision ``z``.
    """
    z, t = _prepare(z, t)
    inverse = 1.0 / t
    junction = -inverse * inverse
    inside = torch.where(z > junction, junction, z)
    # (1/t)/(-z), not 1/(-t·z): t·z overflows where the quotient is still representable. And a division of tensors:
    # number / tensor would be reciprocal() times the number, rounded twice.
    dividend = inverse if isinstance(inverse, Tensor) else z.new_full((), inverse)
    return torch.where(z > junction, t, dividend / -inside)


def log_barrier_both(z: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Σ ψ_t(z) and ψ_t'(z) of a float32 or wider ``z``, from the same passes and without a graph.

    The numbers are those of ``log_barrier`` and ``log_barrier_dual``; only the order of the sum may differ.
    """
    inverse = 1.0 / t
    junction = -inverse * inverse
    inside = z.clamp(max=junction).neg_()
    beyond = torch.relu(z - junction)
    total = beyond.sum().mul_(t)
    dual = torch.div(z.new_full((), inverse), inside, out=beyond)
    total -= inside.log_().sum().mul_(inverse)
    # exactly t on the linear branch, where the quotient is t but for rounding
    return total, dual.masked_fill_(z > junction, t)


def standard_log_barrier(z: Tensor, t: Sharpness) -> Tensor:
    """-log(-z)/t if z < 0, else +inf, elementwise: the textbook barrier, for comparison.

    It needs a strictly feasible start: where ``z >= 0`` the value is infinite and the gradient zero, so nothing
    pulls an infeasible point back. That is what ``log_barrier`` mends.

    Args:
        z: residuals (``<= 0`` is satisfied), any shape, floating point.
        t: as for ``log_barrier``.

    Returns:
        The barrier, shaped like ``z`` (broadcast with ``t``); float32 for half-precision ``z``.
    """
    z, t = _prepare(z, t)
    inside = torch.where(z < 0, z, -1.0)
    return torch.where(z < 0, -torch.log(-inside) * (1.0 / t), math.inf)


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that residuals of ``dtype`` are computed in: never less than float32."""
    return torch.promote_types(dtype, torch.float32)


def _prepare(z: Tensor, t: Sharpness) -> tuple[Tensor, Sharpness]:
    """``z`` and ``t`` checked, and both in the computing dtype."""
    if not isinstance(z, Tensor):
        raise TypeError(f"z must be a tensor, got {type(z).__name__}: wrap it with torch.tensor(...)")
    if not z.is_floating_point():
        raise TypeError(f"z must be a floating-point tensor, got {z.dtype}: convert it with z.float()")
    dtype = computing_dtype(z.dtype)
    return z.to(dtype), _positive_tensor(t, dtype) if isinstance(t, Tensor) else positive_number("t", t)


def _positive_tensor(t: Tensor, dtype: torch.dtype) -> Tensor:
    if not torch.compiler.is_compiling() and t.device.type == "cpu":
        try:
            bad = bool(((t > 0) & (t < math.inf)).logical_not().any())
        except RuntimeError:  # under vmap over t its values cannot be looked at; NaN below tells instead
            bad = False
        if bad:
            raise ValueError(f"t must be positive and finite, got a tensor from {t.min():g} to {t.max():g}")
    return torch.where((t > 0) & (t < math.inf), t, math.nan).to(dtype)
