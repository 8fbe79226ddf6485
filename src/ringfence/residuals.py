"""From values and bounds to residuals f, under one sign convention: ``f <= 0`` is satisfied."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
from torch import Tensor

from ringfence.barrier import computing_dtype, is_number, positive_number
from ringfence.checks import Check, batched, finite

Bound: TypeAlias = float | Tensor
LOOK_AT_THE_OUTPUT: Final = "Look at the network's output there: a diverging step, or a division by zero."


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
    maker = _Maker("between", value, mask)
    low, high = maker.bound("low", low), maker.bound("high", high)
    maker.require(
        "low > high, or a bound that is NaN or infinite on the wrong side",
        _crossed,
        {"low": low, "high": high},
        "Every row needs low <= high; use -inf or inf for a side without a bound.",
        _apart,
    )
    value = maker.value
    return maker.residual(torch.stack((low - value, value - high), dim=-1), (low, high), scale, two_sided=True)


def at_most(value: Tensor, high: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (value - high) / scale: value <= high. Arguments as for ``between``; shaped like ``value``."""
    maker = _Maker("at_most", value, mask)
    high = maker.bound("high", high)
    maker.require("high is NaN or -inf", _below_everything, {"high": high}, "Use inf for no bound.")
    return maker.residual(maker.value - high, (high,), scale)


def at_least(value: Tensor, low: Bound, *, mask: Tensor | None = None, scale: Bound = 1.0) -> Residual:
    """f = (low - value) / scale: value >= low. Arguments as for ``between``; shaped like ``value``."""
    maker = _Maker("at_least", value, mask)
    low = maker.bound("low", low)
    maker.require("low is NaN or inf", _above_everything, {"low": low}, "Use -inf for no bound.")
    return maker.residual(low - maker.value, (low,), scale)


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
    maker = _Maker("equal", value, mask)
    target, tolerance = maker.bound("target", target), maker.bound("tolerance", tolerance)
    maker.require(
        "a target that is not finite, or a tolerance that is negative or not finite",
        _no_band,
        {"target": target, "tolerance": tolerance},
        "Mask out the rows without a target.",
    )
    off = maker.value - target  # the two sides are exact opposites of it, so that their sum tells the tolerance
    f = torch.stack((-off - tolerance, off - tolerance), dim=-1)
    residual = maker.residual(f, (), scale, two_sided=True)
    return replace(residual, equality=True, tolerance=tolerance)


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
    _require_real(f"constraint '{name}'", constraint)
    f, half = _computed(constraint)
    return Residual(f, half=half)


class _Maker:
    """A value with its mask, and the bounds' checks: made at once on the CPU, carried along from a GPU.

    Where values cannot be looked at (inside ``torch.compile`` and ``torch.vmap``) nothing is checked.
    """

    __slots__ = ("_checks", "_half", "_mask", "_name", "_sighted", "value")

    def __init__(self, name: str, value: Tensor, mask: Tensor | None) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: value must be a tensor, got {type(value).__name__}")
        _require_real(f"{name}: value", value)
        self.value, self._half = _computed(value)
        self._name, self._checks = name, []
        self._mask = None if mask is None else _checked_mask(name, mask, value)
        self._sighted = not (torch.compiler.is_compiling() or batched(value))

    _checks: list[Check]

    def bound(self, name: str, bound: Bound) -> Bound:
        """``bound`` in the dtype of the value; a tensor must broadcast *to* its shape, never widen it."""
        maker, value = self._name, self.value
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
        self._sighted = self._sighted and not batched(bound)
        return bound.to(value.dtype)

    def require(
        self,
        fault: str,
        broken: Callable[..., Tensor | bool],
        inputs: dict[str, Bound],
        advice: str,
        sound: Callable[..., bool] | None = None,
    ) -> None:
        """Raise if ``broken`` anywhere, or leave the looking to whoever knows the constraint's name."""
        if not self._sighted:
            return
        if not any(isinstance(one, Tensor) for one in inputs.values()) and not broken(*inputs.values()):
            return
        check = Check(fault, broken, inputs, advice, self.value.shape, self._mask, sound)
        if check.on_cpu:
            check.enforce(self._name)
        else:
            self._checks.append(check)

    def residual(self, f: Tensor, bounds: tuple[Bound, ...], scale: Bound, two_sided: bool = False) -> Residual:
        """``f`` scaled and masked; ``bounds`` are those that may be infinite."""
        mask = self._mask
        if isinstance(scale, Tensor):
            unit = torch.as_tensor(self.bound("scale", scale))
            self.require("scale <= 0 or NaN", _not_positive, {"scale": unit}, "A scale must be positive.")
            if mask is not None:  # dividing by a masked row's 0 would put NaN into its gradient
                unit = torch.where(mask, unit, 1.0)
            f = f / (unit.unsqueeze(-1) if two_sided else unit)
        elif positive_number("scale", scale) != 1.0:
            f = f / scale
        ragged = any(self._may_be_infinite(bound) for bound in bounds)
        if mask is not None:
            f = torch.where(mask.unsqueeze(-1) if two_sided else mask, f, -math.inf)
            ragged = True
        if not self._sighted:
            return Residual(f, two_sided, ragged)
        if ragged:  # f = -inf says "no constraint", so a value that is -inf must be caught as such
            self._checks += (
                finite("value", self.value, LOOK_AT_THE_OUTPUT, mask),
                Check(
                    "residual overflows",
                    _overflows,
                    {"residual": f.detach()},
                    "Use a larger scale=",
                    sound=_below_infinity,
                ),
            )
        return Residual(f, two_sided, ragged, tuple(self._checks), half=self._half)

    def _may_be_infinite(self, bound: Bound) -> bool:
        if not isinstance(bound, Tensor):
            return math.isinf(bound)
        if not (self._sighted and bound.is_cpu):  # looking is cheap on the CPU, and a stall on a GPU
            return True
        return bound.numel() > 0 and math.isinf(bound.abs().amax().item())


def _computed(tensor: Tensor) -> tuple[Tensor, bool]:
    """``tensor`` in float32 or wider, and whether what it comes from may have overflowed float16."""
    dtype = tensor.dtype
    half = dtype is torch.float16
    if torch._C._is_any_autocast_enabled():
        device = tensor.device.type
        half = half or (torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.float16)
    if dtype is not torch.float32:
        tensor = tensor.to(computing_dtype(dtype))
    return tensor, half


def _require_real(what: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise TypeError(
            f"{what} must be floating point, got {tensor.dtype}: "
            + (
                "a complex number has no order; constrain its .real, .imag or .abs()"
                if tensor.is_complex()
                else "an integer tensor carries no gradient; constrain the network's output before it is rounded, "
                "or convert it with .float()"
            )
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{what} must be a dense tensor, got {tensor.layout}: convert it with .to_dense()")


def _kind(residual: Residual) -> str:
    sides = "an equality" if residual.equality else "two-sided" if residual.two_sided else "one-sided"
    return f"{sides} {list(residual.f.shape)}"


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


def _apart(low: Bound, high: Bound) -> bool:
    width = torch.as_tensor(high - low)  # NaN if both are infinite on the same side
    return width.numel() == 0 or width.amin().item() >= 0


def _below_everything(high: Bound) -> Tensor | bool:
    return (high > -math.inf) ^ True


def _above_everything(low: Bound) -> Tensor | bool:
    return (low < math.inf) ^ True


def _no_band(target: Bound, tolerance: Bound) -> Tensor | bool:
    return ((target > -math.inf) & (target < math.inf) & (tolerance >= 0) & (tolerance < math.inf)) ^ True


def _overflows(residual: Tensor) -> Tensor:
    return residual == math.inf


def _below_infinity(residual: Tensor) -> bool:
    return residual.numel() == 0 or residual.amax().item() < math.inf


def _not_positive(scale: Tensor) -> Tensor | bool:
    return ((scale > 0) & (scale < math.inf)) ^ True
