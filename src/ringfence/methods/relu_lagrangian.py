"""Nandwani et al. (2019): multipliers on the violation alone, updated at growing intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from ringfence.barrier import not_negative
from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions
from ringfence.residuals import Residual


@final
class ReLULagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n λ_i max(f_i^n, 0), with ``f <= 0`` satisfied; λ ← λ + dual_lr·mean max(f, 0).

    The multipliers never fall, so λ ends at or above the true multiplier: an exact linear penalty that finds
    its own weight. As the authors do it, a multiplier is shared by all data points, and a dual step is taken
    after ``interval`` calls, from that call's mini-batch, then after ``interval + growth``, and so on. (Compile the
    model, not this call: its counter would recompile the graph each time.)

    Args:
        dual_lr: the dual learning rate, >= 0.
        interval: calls before the first dual step; None takes one at each ``step()`` instead, from everything
            seen since the last (``DualMethod``). ``observe()`` and then ``step()`` always takes one.
        growth: how much longer each interval is than the one before it.
        warmup: training calls (with ``interval=None``: steps) before dual updates begin; λ is ``initial`` then.
        **options: initial, samples, shared (here the default unless ``samples`` is given), process_group: see
            ``DualMethod``; weights, reduction, shapes, validate: see ``Method``.
    """

    def __init__(
        self,
        dual_lr: float = 0.01,
        interval: int | None = 10,
        growth: int = 1,
        warmup: int = 0,
        **options: Unpack[DualOptions],
    ) -> None:
        options.setdefault("shared", options.get("samples") is None)
        super().__init__(**options)
        self.dual_lr = not_negative("dual_lr", dual_lr)
        self.growth = int(not_negative("growth", growth))
        self.warmup = int(not_negative("warmup", warmup))
        if interval is not None and (not isinstance(interval, int) or interval < 1):
            raise ValueError(
                f"interval must be at least 1 call, or None for one dual step a step(), got {interval}"
            )
        self._by_calls = interval is not None
        self.interval = interval or 0
        self._calls = -self.warmup if self._by_calls else 0

    def summary(self) -> dict[str, float]:
        """The multipliers, and how many calls the current interval has."""
        return super().summary() | ({"interval": float(self.interval)} if self._by_calls else {})

    def extra_repr(self) -> str:
        """Learning rate, interval and layout, for ``print(fence)``."""
        every = (
            f"dual step every {self.interval} calls, +{self.growth} each" if self._by_calls else "dual step a step"
        )
        return f"dual_lr={self.dual_lr:g}, {every}, warm-up {self.warmup}, {self.layout}"

    @property
    def _rate(self) -> float:
        return self.dual_lr

    def _climb(self, f: Tensor) -> Tensor:
        return torch.relu(f)

    def _term(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return self._multiplier(name, f, index) * torch.relu(f)

    def _slope(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return self._multiplier(name, f, index) * (f > 0)

    def _remember(self, residuals: Mapping[str, Residual], index: Tensor | None) -> None:
        if not self._by_calls:
            super()._remember(residuals, index)
            return
        self._calls += 1
        if self._calls >= self.interval:  # the loss of this call was computed with the old multipliers
            self._record(residuals, index)
            self._dual_step()
            self._calls = 0
            self.interval += self.growth

    def _advance(self) -> None:
        if self._explicit:
            self._dual_step()
        elif not self._by_calls:
            if self.steps >= self.warmup:
                self._dual_step()
            else:
                self._forget()

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"by_calls": self._by_calls}

    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        if header["by_calls"] != self._by_calls:
            ways = {True: "after intervals of calls", False: "at each step()"}
            return (
                f"the state's dual steps come {ways[header['by_calls']]}, this method's {ways[self._by_calls]}: "
                "give the same interval="
            )
        return super()._refusal(header, tensors)

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | {"interval": float(self.interval), "calls": float(self._calls)}

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self.interval, self._calls = int(numbers["interval"]), int(numbers["calls"])
