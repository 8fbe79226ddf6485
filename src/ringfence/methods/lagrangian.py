"""The textbook method: explicit multipliers and projected dual ascent."""

from __future__ import annotations

from typing import final

from torch import Tensor

from ringfence.barrier import not_negative
from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions


@final
class Lagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n λ_i^n f_i^n, with ``f <= 0`` satisfied; λ ← max(0, λ + dual_lr·f̄) at each ``step()``.

    f̄ is the mean residual seen since the last step (see ``DualMethod``). A satisfied constraint lowers its
    multiplier, a violated one raises it; at a saddle point λ are the problem's true multipliers. With
    ``shared=True`` only the *mean* residual of each constraint is held to ``<= 0``.

    Args:
        dual_lr: the dual learning rate, >= 0.
        **options: initial, samples, shared, process_group: see ``DualMethod``; weights, reduction, shapes,
            validate: see ``Method``.
    """

    def __init__(self, dual_lr: float = 0.01, **options: Unpack[DualOptions]) -> None:
        super().__init__(**options)
        self.dual_lr = not_negative("dual_lr", dual_lr)

    def extra_repr(self) -> str:
        """Learning rate and layout, for ``print(fence)``."""
        return f"dual_lr={self.dual_lr:g}, {self.layout}"

    @property
    def _rate(self) -> float:
        return self.dual_lr

    def _term(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return self._multiplier(name, f, index) * f

    def _slope(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return self._multiplier(name, f, index)
