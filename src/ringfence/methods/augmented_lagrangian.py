"""Multipliers and a quadratic term together: converges where either alone does not."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions
from ringfence.methods.schedule import Schedule, Start


@final
class AugmentedLagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n (max(0, λ + ρ f)² - λ²) / 2ρ, ``f <= 0`` satisfied; λ ← max(0, λ + ρ f̄) at ``step()``.

    The Powell-Hestenes-Rockafellar form for inequalities. The quadratic term makes the inner problem convex
    enough to settle; the multipliers remove the bias that a penalty would need ρ → ∞ for. ``duals()`` is
    max(0, λ + ρ f), what λ would become if the step were taken now.

    Args:
        rho: ρ > 0, the quadratic term's weight and the dual step's length; or a function from the number of
            steps taken to ρ.
        mu: growth of ρ per step, >= 1; constant unless given.
        max_rho: ρ never exceeds it.
        **options: initial, samples, shared, process_group: see ``DualMethod``; weights, reduction, shapes,
            validate: see ``Method``.
    """

    def __init__(
        self,
        rho: Start = 1.0,
        mu: float | None = None,
        max_rho: float = 1e6,
        **options: Unpack[DualOptions],
    ) -> None:
        super().__init__(**options)
        self._schedule = Schedule("rho", rho, mu, max_rho, default_mu=1.0)

    @property
    def rho(self) -> float:
        """ρ now."""
        return self._schedule.value

    def summary(self) -> dict[str, float]:
        """The multipliers, and ρ."""
        return super().summary() | {"rho": self.rho}

    def extra_repr(self) -> str:
        """Schedule and layout, for ``print(fence)``."""
        return f"{self._schedule}, {self.layout}"

    @property
    def _rate(self) -> float:
        return self.rho

    def _term(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        multiplier = self._multiplier(name, f, index)
        pushed = torch.relu(torch.add(multiplier, f, alpha=self.rho))
        return (pushed.square() - multiplier.square()) / (2.0 * self.rho)

    def _slope(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return torch.relu(self._multiplier(name, f, index) + self.rho * f)

    def _advance(self) -> None:
        self._dual_step()  # at the ρ of the epoch that just ended
        self._schedule.advance(self.steps + 1)

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | {"rho": self.rho}

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._schedule.value = numbers["rho"]
