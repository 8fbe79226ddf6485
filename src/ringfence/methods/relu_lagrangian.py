"""Nandwani et al. (2019): multipliers on the violation alone, updated at growing intervals."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions, Rates
from ringfence.methods.multipliers.exchange import reduced, several
from ringfence.methods.multipliers.kinds import INEQUALITY, Kind
from ringfence.numbers import not_negative
from ringfence.residuals import Residual


@final
class ReLULagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n λ_i^n max(f_i^n, 0), with ``f <= 0`` satisfied; λ ← λ + dual_lr·max(f, 0) at a dual step.

    The multipliers never fall, so λ ends at or above the true multiplier: an exact linear penalty that finds
    its own weight, and ``shared=True`` still limits every data point: the mean *violation* is 0 only if each is. An
    equality (``ringfence.equal``) has one λ, on its distance beyond the tolerance.

    A dual step is taken at every ``step()``. As the authors do it, one multiplier is shared by all data points,
    ``step()`` comes once an iteration, and dual steps at growing intervals, each from the mini-batch just seen:
    ``ReLULagrangian(dual_lr, interval=10, growth=1, shared=True)``.

    Args:
        dual_lr: the dual learning rate, >= 0; by constraint name, if you like. 1 unless given.
        interval: a dual step at every so many calls of ``step()``, from what was seen since the call before.
        growth: how much longer each interval is than the one before it.
        warmup: calls of ``step()`` before the first interval begins; λ is ``initial`` then. (``observe()`` and then
            ``step()`` takes a dual step whatever the interval.)
        **options: initial, samples, shared, same_rows, multiplier, dual_optimiser, max_multiplier, restart,
            process_group, sharded: see ``DualMethod``; weights, reduction, shapes, validate: see ``Method``.
    """

    def __init__(
        self,
        dual_lr: Rates | None = None,
        interval: int = 1,
        growth: int = 0,
        warmup: int = 0,
        **options: Unpack[DualOptions],
    ) -> None:
        self.growth = int(not_negative("growth", growth))
        self.warmup = int(not_negative("warmup", warmup))
        if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
            raise ValueError(f"interval must be a whole number of steps, at least 1, got {interval!r}")
        self.interval = interval
        self._waited = -self.warmup
        super().__init__(dual_lr, **options)

    def summary(self) -> dict[str, float]:
        """The multipliers, and how many steps the current interval has."""
        return super().summary() | ({"interval": float(self.interval)} if self.interval > 1 else {})

    def extra_repr(self) -> str:
        """Learning rate, interval and whose λ, for ``print(fence)``."""
        every = f"dual step every {self.interval} steps, +{self.growth} each, " if self.interval > 1 else ""
        return f"{every}warm-up {self.warmup}, {super().extra_repr()}"

    _falls = False
    _rule = "violation"

    def _layout(self, residual: Residual) -> tuple[Kind, bool, torch.Size]:
        if residual.equality:
            return INEQUALITY, False, residual.f.shape[:-1]
        return super()._layout(residual)

    def _measure(self, residual: Residual) -> Tensor:
        violation = torch.relu(residual.f)  # 0 also where f = -inf, nothing constrained
        return violation.sum(dim=-1) if residual.equality else violation

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        multiplier = self._stores[name].rows(residual.f[..., 0] if residual.equality else residual.f, index)
        return (multiplier.unsqueeze(-1) if residual.equality else multiplier) * (residual.f > 0)

    def _advance(self) -> None:
        observing = self._observing
        if several(self._process_group):  # one rank that observes is enough: they step together
            observing = bool(reduced([float(observing)], dist.ReduceOp.MAX, self._process_group)[0])
        if observing:
            self._dual_step()
            return
        self._waited += 1
        if self._waited >= self.interval:
            self._dual_step()
            self._waited = 0
            self.interval += self.growth
        else:
            self._forget()

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | {"interval": float(self.interval), "waited": float(self._waited)}

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self.interval, self._waited = int(numbers["interval"]), int(numbers["waited"])
