"""The textbook method: explicit multipliers and projected dual ascent."""

from __future__ import annotations

from typing import final

from torch import Tensor

from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions, Rates
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
            process_group, sharded: see ``DualMethod``; weights, reduction, shapes, validate: see ``Method``.
    """

    def __init__(self, dual_lr: Rates | None = None, **options: Unpack[DualOptions]) -> None:
        super().__init__(dual_lr, **options)

    _rule = "product"

    def _tells(self, name: str) -> bool:
        return True  # even λ = 0 times what is not a number is none

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        store = self._stores[name]
        return store.kind.sides(store.rows(residual.f, index))
