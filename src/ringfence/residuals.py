"""From values and bounds to residuals f, under one sign convention: ``f <= 0`` is satisfied."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ringfence.bounds import LOOK_AT_THE_OUTPUT, Bound, Bounded, computed, require_real
from ringfence.checks import Check, batched, finite


@dataclass(eq=False, slots=True)  # not frozen, which would make it five times as slow to make; nobody changes one
class Residual:
    """The values f of one named constraint, ``f <= 0`` satisfied, in units of its ``scale``.

    Made by ``between``, ``at_most``, ``at_least``, ``equal``, ``surrogate``, or from a plain tensor handed to
    a method. The first dimension counts data points ("rows").

    Attributes:
        f: the residuals; two-sided constraints have a last dimension of 2 (below low, above high). Where
            nothing is constrained (a masked entry, an infinite bound) ``f`` is -inf.
        two_sided: whether the last dimension of ``f`` is (low, high).
        ragged: False promises that ``f`` has no such -inf, which saves looking.
        checks: checks of bounds not made yet; see ``all_checks``.
        equality: made by ``equal``: methods with multipliers keep one signed one for the two sides.
        tolerance: that of ``equal``, in units of its value; None for inequalities.
        strict: what is really limited, where ``f`` is its differentiable ``surrogate``.
        half: measured in float16, whose overflows are a ``GradScaler``'s business and no error.
    """

    f: Tensor
    two_sided: bool = False
    ragged: bool = False
    checks: tuple[Check, ...] = ()
    equality: bool = False
    tolerance: Bound | None = None
    strict: Residual | None = None
    half: bool = False

    def all_checks(self) -> tuple[Check, ...]:
        """What has not been looked at yet; whoever consumes the residual does, and knows its name."""
        checks = self.checks if self.strict is None else self.checks + self.strict.all_checks()
        # a ragged one is -inf here and there, so that its value was noted when it was made
        return checks if self.ragged else (finite("residual", self.f, LOOK_AT_THE_OUTPUT), *checks)

    @property
    def judged(self) -> Residual:
        """What decides whether the constraint holds: this residual, or the strict one it stands for."""
        return self if self.strict is None else self.strict

    @property
    def present(self) -> Tensor:
        """True where there is a constraint at all."""
        return self.f > -math.inf if self.ragged else torch.ones_like(self.f, dtype=torch.bool)

    @property
    def violation(self) -> Tensor:
        """max(f, 0) of what is judged, shaped like ``f``; 0 where nothing is constrained."""
        return torch.relu(self.judged.f)

    def satisfied(self, tol: float = 0.0) -> Tensor:
        """``f <= tol`` of what is judged, shaped like ``f``; True where nothing is constrained."""
        return self.judged.f <= tol

    def filled(self, number: float) -> Tensor:
        """f with ``number`` where nothing is constrained."""
        return torch.where(self.present, self.f, number) if self.ragged else self.f

    def __str__(self) -> str:
        shape = list(self.f.shape)
        f = self.judged.f.detach()
        count = int(self.judged.present.sum())
        if count == 0:
            return f"Residual {shape}: nothing constrained"
        held = count - int((~self.satisfied()).sum())
        text = f"Residual {shape}: {held} of {count} constraint{'s' * (count > 1)} satisfied"
        if held == count:
            return f"{text}, closest to its bound by {0.0 - float(f.max()):.4g}"
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
    maker = Bounded("between", value, mask)
    low, high = maker.bound("low", low), maker.bound("high", high)
    maker.require(
        "low > high, or a bound that is NaN or infinite on the wrong side",
        _crossed,
        {"low": low, "high": high},
        "Every row needs low <= high; use -inf or inf for a side without a bound.",
        _apart,
    )
    return _made(maker, low, high, scale)


def at_most(value: Tensor, high: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (value - high) / scale: value <= high. Arguments as for ``between``; shaped like ``value``."""
    maker = Bounded("at_most", value, mask)
    high = maker.bound("high", high)
    maker.require("high is NaN or -inf", _below_everything, {"high": high}, "Use inf for no bound.")
    return _made(maker, None, high, scale)


def at_least(value: Tensor, low: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (low - value) / scale: value >= low. Arguments as for ``between``; shaped like ``value``."""
    maker = Bounded("at_least", value, mask)
    low = maker.bound("low", low)
    maker.require("low is NaN or inf", _above_everything, {"low": low}, "Use -inf for no bound.")
    return _made(maker, low, None, scale)


def equal(
    value: Tensor, target: Bound, tolerance: Bound = 0.0, *, mask: Tensor | None = None, scale: Bound = 1.0
) -> Residual:
    """f = (target - tolerance - value, value - target - tolerance) / scale: |value - target| <= tolerance.

    To methods with multipliers this is an equality: one signed λ per entry, which pushes either way (with a
    tolerance, it is 0 inside). A penalty charges the distance beyond the tolerance. A barrier needs room between
    its two sides: with ``tolerance=0`` it sits on its linear branch at slope t on both of them, which is a linear
    penalty of strength t and never more, so give it a positive tolerance; it says so once.

    Args:
        value: as for ``between``.
        target: a finite number, or a tensor that broadcasts to ``value``'s shape.
        tolerance: >= 0, likewise.
        mask: as for ``between``.
        scale: as for ``between``.

    Returns:
        A residual of shape ``[*value.shape, 2]``.
    """
    maker = Bounded("equal", value, mask)
    target, tolerance = maker.bound("target", target), maker.bound("tolerance", tolerance)
    maker.require(
        "a target that is not finite, or a tolerance that is negative or not finite",
        _no_band,
        {"target": target, "tolerance": tolerance},
        "Mask out the rows without a target.",
    )
    off = maker.value - target  # the two sides are exact opposites of it, so that their sum tells the tolerance
    f = torch.stack((-off - tolerance, off - tolerance), dim=-1)
    f, ragged, checks = maker.finished(f, (), scale, two_sided=True)
    return Residual(f, True, ragged, checks, half=maker.half, equality=True, tolerance=tolerance)


def surrogate(soft: Constraint, strict: Constraint) -> Residual:
    """f = that of ``soft``, for the loss; whether it holds, and where λ climbs, is decided by ``strict``.

    For limits on what has no gradient, such as a rate of decisions: the loss pulls at a smooth stand-in, while
    multipliers, ``satisfied``, ``Monitor`` and certificates go by what is really limited. Barrier and penalty have
    no multipliers, so with them only what is *reported* is strict.

    Args:
        soft: the differentiable residual.
        strict: the residual that counts, of the same shape; it needs no gradient.

    Returns:
        A residual shaped like both.
    """
    soft, strict = as_residual("soft", soft), as_residual("strict", strict)
    if soft.f.shape != strict.f.shape or soft.two_sided != strict.two_sided or soft.equality != strict.equality:
        raise ValueError(
            f"surrogate: soft and strict must be the same kind of constraint and have the same shape, got "
            f"{_kind(soft)} and {_kind(strict)}"
        )
    if strict.strict is not None:
        raise ValueError("surrogate: strict is itself a surrogate; give the residual that really counts")
    sighted = soft.f.is_cpu and not torch.compiler.is_compiling() and not batched(soft.f)
    if sighted and (soft.ragged or strict.ragged) and not torch.equal(soft.present, strict.present):
        raise ValueError("surrogate: soft and strict must constrain the same entries: give both the same mask")
    strict = replace(strict, f=strict.f.detach())
    return replace(soft, strict=strict)


def as_residual(name: str, constraint: Constraint) -> Residual:
    """``constraint`` itself, or a plain tensor taken as the residual of the constraint called ``name``."""
    if isinstance(constraint, Residual):
        return constraint
    if not isinstance(constraint, Tensor):
        raise TypeError(
            f"constraint '{name}' must be a tensor or what rf.between and its kin return, "
            f"got {type(constraint).__name__}"
        )
    require_real(f"constraint '{name}'", constraint)
    f, half = computed(constraint)
    return Residual(f, half=half)


def _made(maker: Bounded, low: Bound | None, high: Bound | None, scale: Bound) -> Residual:
    f, ragged, checks = maker.sides(low, high, scale)
    return Residual(f, low is not None and high is not None, ragged, checks, half=maker.half)


def _kind(residual: Residual) -> str:
    sides = "an equality" if residual.equality else "two-sided" if residual.two_sided else "one-sided"
    return f"{sides} {list(residual.f.shape)}"


# A NaN counts as broken, hence "not fine". `^ True` is "not" for plain bools and bool tensors alike, so that
# bounds that are plain numbers are looked at without a single tensor operation.
def _crossed(low: Bound, high: Bound) -> Tensor | bool:
    return ((low <= high) & (low < math.inf) & (high > -math.inf)) ^ True


def _apart(low: Bound, high: Bound) -> bool:
    width = torch.as_tensor(high - low)  # NaN if both are infinite on the same side
    return width.numel() == 0 or width.amin().item() >= 0


def _below_everything(high: Bound) -> Tensor | bool:
    return (high > -math.inf) ^ True


def _above_everything(low: Bound) -> Tensor | bool:
    return (low < math.inf) ^ True


def _no_band(target: Bound, tolerance: Bound) -> Tensor | bool:
    return ((target > -math.inf) & (target < math.inf) & (tolerance >= 0) & (tolerance < math.inf)) ^ True
