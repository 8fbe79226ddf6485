"""Values, bounds, masks and scales: checked, and in one dtype, before they become residuals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from ringfence.barrier import computing_dtype
from ringfence.checks import Check, batched, finite
from ringfence.fused.launch import can_be_one, residual
from ringfence.numbers import is_number, positive_number

Bound: TypeAlias = float | Tensor
LOOK_AT_THE_OUTPUT: Final = "Look at the network's output there: a diverging step, or a division by zero."


class Bounded:
    """A value with its mask, and the bounds' checks: made at once on the CPU, carried along from a GPU.

    Where values cannot be looked at (inside ``torch.compile`` and ``torch.vmap``) nothing is checked.
    """

    __slots__ = ("_checks", "_mask", "_name", "_sighted", "half", "value")

    def __init__(self, name: str, value: Tensor, mask: Tensor | None) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: value must be a tensor, got {type(value).__name__}")
        require_real(f"{name}: value", value)
        self.value, self.half = computed(value)
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

    def sides(self, low: Bound | None, high: Bound | None, scale: Bound) -> tuple[Tensor, bool, tuple[Check, ...]]:
        """(low - value, value - high) / scale, or that of the side which has a bound; and as ``finished``."""
        value, bounds = self.value, tuple(bound for bound in (low, high) if bound is not None)
        if can_be_one(value) and not any(isinstance(one, Tensor) and one.requires_grad for one in (*bounds, scale)):
            f = residual(value, low, high, self._unit(scale), self._mask)
            return self._looked_at(f, bounds)
        if low is None:
            assert high is not None  # noqa: S101 - one of them there is
            return self.finished(value - high, bounds, scale)
        if high is None:
            return self.finished(low - value, bounds, scale)
        return self.finished(torch.stack((low - value, value - high), dim=-1), bounds, scale, two_sided=True)

    def finished(
        self, f: Tensor, bounds: tuple[Bound, ...], scale: Bound, two_sided: bool = False
    ) -> tuple[Tensor, bool, tuple[Check, ...]]:
        """``f`` scaled and masked, whether it is ragged, and the checks still to be made.

        ``bounds`` are those that may be infinite.
        """
        mask, unit = self._mask, self._unit(scale)
        if isinstance(unit, Tensor):
            if mask is not None:  # dividing by a masked row's 0 would put NaN into its gradient
                unit = torch.where(mask, unit, 1.0)
            f = f / (unit.unsqueeze(-1) if two_sided else unit)
        elif unit != 1.0:
            f = f / unit
        if mask is not None:
            f = torch.where(mask.unsqueeze(-1) if two_sided else mask, f, -math.inf)
        return self._looked_at(f, bounds)

    def _unit(self, scale: Bound) -> Bound:
        if not isinstance(scale, Tensor):
            return positive_number("scale", scale)
        unit = self.bound("scale", scale)
        self.require("scale <= 0 or NaN", _not_positive, {"scale": unit}, "A scale must be positive.")
        return unit

    def _looked_at(self, f: Tensor, bounds: tuple[Bound, ...]) -> tuple[Tensor, bool, tuple[Check, ...]]:
        """``f``, whether it is ragged, and the checks still to be made."""
        ragged = self._mask is not None or any(self._may_be_infinite(bound) for bound in bounds)
        if not self._sighted:
            return f, ragged, ()
        if ragged:  # f = -inf says "no constraint", so a value that is -inf must be caught as such
            self._checks += (
                finite("value", self.value, LOOK_AT_THE_OUTPUT, self._mask),
                Check(
                    "residual overflows",
                    _overflows,
                    {"residual": f.detach()},
                    "Use a larger scale=",
                    sound=_below_infinity,
                    overflow=True,
                ),
            )
        return f, ragged, tuple(self._checks)

    def _may_be_infinite(self, bound: Bound) -> bool:
        if not isinstance(bound, Tensor):
            return math.isinf(bound)
        if not (self._sighted and bound.is_cpu):  # looking is cheap on the CPU, and a stall on a GPU
            return True
        return bound.numel() > 0 and math.isinf(bound.abs().amax().item())


def computed(tensor: Tensor) -> tuple[Tensor, bool]:
    """``tensor`` in float32 or wider, and whether what it comes from may have overflowed float16."""
    dtype = tensor.dtype
    half = dtype is torch.float16
    if torch._C._is_any_autocast_enabled():
        device = tensor.device.type
        half = half or (torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.float16)
    if dtype is not torch.float32:
        tensor = tensor.to(computing_dtype(dtype))
    return tensor, half


def require_real(what: str, tensor: Tensor) -> None:
    """Raise unless ``tensor`` is dense and its numbers can be ordered."""
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


def _overflows(residual: Tensor) -> Tensor:
    return residual == math.inf


def _below_infinity(residual: Tensor) -> bool:
    return residual.numel() == 0 or residual.amax().item() < math.inf


def _not_positive(scale: Tensor) -> Tensor | bool:
    return ((scale > 0) & (scale < math.inf)) ^ True
