"""The textbook method: explicit multipliers and projected dual ascent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from torch import Tensor

from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions, Rates, dual_rate
from ringfence.residuals import Residual


@final
class Lagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n λ_i^n f_i^n, with ``f <= 0`` satisfied; λ ← max(0, λ + dual_lr·f) at each ``step()``.

    A satisfied constraint lowers its multiplier, a violated one raises it; at a saddle point λ are the problem's
    true multipliers. ``DualMethod`` says whose λ is whose, and which f a step goes by; ``shared=True`` limits
    the mean residual of each constraint. An equality (``ringfence.equal``) has one λ of either sign.

    Args:
        dual_lr: the dual learning rate, >= 0; by constraint name, if you like. 1 unless given.
        **options: initial, samples, shared, same_rows, multiplier, dual_optimiser, max_multiplier, restart,
            process_group: see ``DualMethod``; weights, reduction, shapes, validate: see ``Method``.
    """

    def __init__(self, dual_lr: Rates | None = None, **options: Unpack[DualOptions]) -> None:
        self.dual_lr = dual_rate(dual_lr, options)
        super().__init__(**options)

    def extra_repr(self) -> str:
        """Learning rate and whose λ, for ``print(fence)``."""
        return f"dual_lr={self.dual_lr}, {self.whose}"

    def _tells(self, name: str) -> bool:
        return True  # even λ = 0 times what is not a number is none

    def _by_name(self) -> Iterable[Any]:
        return (*super()._by_name(), self.dual_lr)

    def _rate(self, name: str) -> float:
        return self.dual_lr[name]

    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        store, v = self._stores[name], self._measure(residual)
        return store.kind.product(store.rows(v, index), store.measured(v, residual)[0])

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        store = self._stores[name]
        return store.kind.sides(store.rows(residual.f, index))
