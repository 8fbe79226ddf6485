"""From values and bounds to residuals f, under one sign convention: ``f <= 0`` is satisfied."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ringfence.barrier import computing_dtype, is_number, positive_number
from ringfence.checks import Check, not_finite

Bound: TypeAlias = float | Tensor


@dataclass(frozen=True, eq=False)
class Residual:
    """The values f of one named constraint, ``f <= 0`` satisfied, in units of its ``scale``.

    Made by ``between``, ``at_most``, ``at_least``, ``equal``, or from a plain tensor handed to
    a method. The first dimension counts data points ("rows").

    Attributes:
        f: the residuals; two-sided constraints have a last dimension of 2 (below low, above high). Where
            nothing is constrained (a masked entry, an infinite bound) ``f`` is -inf.
        two_sided: whether the last dimension of ``f`` is (low, high).
        ragged: False promises that ``f`` has no such -inf, which saves looking.
        checks: value checks not made yet; whoever consumes the residual makes them, and knows its name.
    """

    f: Tensor
    two_sided: bool = False
    ragged: bool = False
    checks: tuple[Check, ...] = ()

    @property
    def present(self) -> Tensor:
        """True where there is a constraint at all."""
        return self.f > -math.inf if self.ragged else torch.ones_like(self.f, dtype=torch.bool)

    @property
    def violation(self) -> Tensor:
        """max(f, 0), shaped like ``f``; 0 where nothing is constrained."""
        return torch.relu(self.f)

    def satisfied(self, tol: float = 0.0) -> Tensor:
        """``f <= tol``, shaped like ``f``; True where nothing is constrained."""
        return self.f <= tol

    def __str__(self) -> str:
        shape = list(self.f.shape)
        f = self.f.detach()
        count = int(self.present.sum())
        if count == 0:
            return f"Residual {shape}: nothing constrained"
        held = count - int((~self.satisfied()).sum())
        text = f"Residual {shape}: {held} of {count} constraint{'s' * (count > 1)} satisfied"
        if held == count:
            return f"{text}, closest to its bound by {-float(f.max()):.4g}"
        # nan_to_num: a NaN is neither satisfied nor comparable; show it as the worst there is
        flat = int(f.nan_to_num(nan=math.inf).argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(flat), f.shape)]
        side = ""
        if self.two_sided:
            side = " (below low)" if place.pop() == 0 else " (above high)"
        return f"{text}, worst violation {float(f.reshape(-1)[flat]):.4g} at {place}{side}"

    __repr__ = __str__


Constraint: TypeAlias = Tensor | Residual
"""What a method accepts under a name: a residual, or a plain tensor that should be ``<= 0``."""


def between(value: Tensor, low: Bound, high: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (low - value, value - high) / scale, stacked on a new last dimension: low <= value <= high.

    Args:
        value: what the network's output measures, any shape, rows first; floating point.
        low: numbers or tensors that broadcast to ``value``'s shape; -inf is "no lower bound".
        high: likewise; inf is "no upper bound".
        mask: bool, broadcast to ``value``'s shape: False where there is no constraint (ragged sets).
        scale: the unit to measure in, > 0: residuals are divided by it, so that sizes in thousands of pixels
            and centroids in tens weigh alike.

    Returns:
        A residual of shape ``[*value.shape, 2]``.

    Example:
        >>> import torch, ringfence as rf
        >>> rf.between(torch.tensor([3.0, 7.0]), 0.0, 5.0)
        Residual [2, 2]: 3 of 4 constraints satisfied, worst violation 2 at [1] (above high)
    """
    value = _measured("between", value)
    low, high = _bound("between", "low", low, value), _bound("between", "high", high, value)
    crossed = Check(
        "low > high, or a bound that is NaN or infinite on the wrong side",
        _crossed,
        {"low": low, "high": high},
        "Every row needs low <= high; use -inf or inf for a side without a bound.",
    )
    f = torch.stack((low - value, value - high), dim=-1)
    return _residual("between", value, f, (low, high), crossed, mask, scale, two_sided=True)


def at_most(value: Tensor, high: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (value - high) / scale: value <= high. Arguments as for ``between``; shaped like ``value``."""
    value = _measured("at_most", value)
    high = _bound("at_most", "high", high, value)
    check = Check("high is NaN or -inf", _below_everything, {"high": high}, "Use inf for no bound.")
    return _residual("at_most", value, value - high, (high,), check, mask, scale)


def at_least(value: Tensor, low: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (low - value) / scale: value >= low. Arguments as for ``between``; shaped like ``value``."""
    value = _measured("at_least", value)
    low = _bound("at_least", "low", low, value)
    check = Check("low is NaN or inf", _above_everything, {"low": low}, "Use -inf for no bound.")
    return _residual("at_least", value, low - value, (low,), check, mask, scale)


def equal(
    value: Tensor, target: Bound, tolerance: Bound = 0.0, *, mask: Tensor | None = None, scale: Bound = 1.0
) -> Residual:
    """f = (target - tolerance - value, value - target - tolerance) / scale: |value - target| <= tolerance.

    With ``tolerance=0`` the feasible set has no interior: Lagrangians take that as it is; a barrier sits on its
    linear branch there, at slope t on both sides, so a positive tolerance serves it better.

    Args:
        value: as for ``between``.
        target: a finite number, or a tensor that broadcasts to ``value``'s shape.
        tolerance: >= 0, likewise.
        mask: as for ``between``.
        scale: as for ``between``.

    Returns:
        A residual of shape ``[*value.shape, 2]``.
    """
    value = _measured("equal", value)
    target, tolerance = (
        _bound("equal", "target", target, value),
        _bound("equal", "tolerance", tolerance, value),
    )
    check = Check(
        "a target that is not finite, or a tolerance that is negative or not finite",
        _no_band,
        {"target": target, "tolerance": tolerance},
        "Mask out the rows without a target.",
    )
    f = torch.stack((target - tolerance - value, value - target - tolerance), dim=-1)
    return _residual("equal", value, f, (), check, mask, scale, two_sided=True)


def as_residual(name: str, constraint: Constraint) -> Residual:
    """``constraint`` itself, or a plain tensor taken as the residual of the constraint called ``name``."""
    if isinstance(constraint, Residual):
        return constraint
    if not isinstance(constraint, Tensor):
        raise TypeError(
            f"constraint '{name}' must be a tensor or what rf.between and its kin return, "
            f"got {type(constraint).__name__}"
        )
    _require_floating(f"constraint '{name}'", constraint)
    f = constraint.to(computing_dtype(constraint.dtype))
    return Residual(f, checks=() if torch.compiler.is_compiling() else tuple(_finite(f, f, False, None)))


def _residual(
    maker: str,
    value: Tensor,
    f: Tensor,
    bounds: tuple[Bound, ...],
    check: Check,
    mask: Tensor | None,
    scale: Bound,
    *,
    two_sided: bool = False,
) -> Residual:
    """``f`` scaled and masked, with the checks of its bounds made (CPU) or carried along (GPU)."""
    checks = [check]
    mask = None if mask is None else _checked_mask(maker, mask, value)
    if isinstance(scale, Tensor):
        unit = torch.as_tensor(_bound(maker, "scale", scale, value))
        checks.append(Check("scale <= 0 or NaN", _not_positive, {"scale": unit}, "A scale must be positive."))
        if mask is not None:  # dividing by a masked row's 0 would put NaN into its gradient
            unit = torch.where(mask, unit, 1.0)
        f = f / (unit.unsqueeze(-1) if two_sided else unit)
    elif positive_number("scale", scale) != 1.0:
        f = f / scale
    ragged = any(isinstance(bound, Tensor) or math.isinf(bound) for bound in bounds)
    if mask is not None:
        f = torch.where(mask.unsqueeze(-1) if two_sided else mask, f, -math.inf)
        ragged = True
    if torch.compiler.is_compiling():
        return Residual(f, two_sided, ragged)
    # The name is known only where the residual is used, so what a GPU holds is looked at there, by name.
    later = _finite(value, f, ragged, mask)
    for one in checks:
        one = replace(one, shape=value.shape, mask=mask)
        if one.on_cpu:
            one.enforce(maker)
        else:
            later.append(one)
    return Residual(f, two_sided, ragged, tuple(later))


def _finite(value: Tensor, f: Tensor, ragged: bool, mask: Tensor | None) -> list[Check]:
    advice = "Look at the network's output there: a diverging step, or a division by zero."
    if not ragged:  # f is finite only if the value is
        return [Check("residual is NaN or infinite", not_finite, {"residual": f.detach()}, advice)]
    # f = -inf says "no constraint", so a value that is -inf must be caught as such
    return [
        Check("value is NaN or infinite", not_finite, {"value": value.detach()}, advice, mask=mask),
        Check("residual overflows", _overflows, {"residual": f.detach()}, "Use a larger scale="),
    ]


def _measured(maker: str, value: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{maker}: value must be a tensor, got {type(value).__name__}")
    _require_floating(f"{maker}: value", value)
    return value.to(computing_dtype(value.dtype))


def _require_floating(what: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise TypeError(
            f"{what} must be floating point, got {tensor.dtype}: an integer tensor carries no gradient; "
            "constrain the network's output before it is rounded, or convert it with .float()"
        )


def _bound(maker: str, name: str, bound: Bound, value: Tensor) -> Bound:
    """``bound`` in the dtype of ``value``; a tensor must broadcast *to* its shape, never widen it."""
    if not isinstance(bound, Tensor):
        if not is_number(bound):
            raise TypeError(f"{maker}: {name} must be a number or a tensor, got {type(bound).__name__}")
        # beyond the dtype's range is no bound at all
        return math.copysign(math.inf, bound) if abs(bound) > torch.finfo(value.dtype).max else float(bound)
    if bound.ndim and bound.device != value.device:
        raise ValueError(
            f"{maker}: {name} is on {bound.device} but value is on {value.device}: move it with .to(...)"
        )
    if not _broadcasts_to(bound.shape, value.shape):
        raise ValueError(
            f"{maker}: {name} of shape {list(bound.shape)} does not broadcast to value of shape "
            f"{list(value.shape)}; "
            + (
                f"it has more dimensions than the value: drop some, as in {name}.squeeze(-1)"
                if bound.ndim > value.ndim
                else f"add dimensions of size 1 where it should repeat, as in {name}[:, None]"
            )
        )
    return bound.to(value.dtype)


def _checked_mask(maker: str, mask: Tensor, value: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{maker}: mask must be a bool tensor, got {kind}")
    if not _broadcasts_to(mask.shape, value.shape):
        raise ValueError(
            f"{maker}: mask of shape {list(mask.shape)} does not broadcast to value of shape "
            f"{list(value.shape)}; give it one entry per value, or dimensions of size 1 where it should repeat"
        )
    return mask


def _broadcasts_to(shape: torch.Size, target: torch.Size) -> bool:
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(size in (1, wanted) for size, wanted in pairs)


# A NaN counts as broken, hence "not fine". `^ True` is "not" for plain bools and bool tensors alike, so that
# bounds that are plain numbers are looked at without a single tensor operation.
def _crossed(low: Bound, high: Bound) -> Tensor | bool:
    return ((low <= high) & (low < math.inf) & (high > -math.inf)) ^ True


def _below_everything(high: Bound) -> Tensor | bool:
    return (high > -math.inf) ^ True


def _above_everything(low: Bound) -> Tensor | bool:
    return (low < math.inf) ^ True


def _no_band(target: Bound, tolerance: Bound) -> Tensor | bool:
    return ((target > -math.inf) & (target < math.inf) & (tolerance >= 0) & (tolerance < math.inf)) ^ True


def _overflows(residual: Tensor) -> Tensor:
    return residual == math.inf


def _not_positive(scale: Tensor) -> Tensor | bool:
    return ((scale > 0) & (scale < math.inf)) ^ True
