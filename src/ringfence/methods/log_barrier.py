"""The paper's method: the log-barrier extension, raised from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

from ringfence.barrier import log_barrier, log_barrier_dual
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.schedule import Schedule, Start
from ringfence.residuals import Residual


@final
class LogBarrier(Method):
    """loss = Σ_i w_i Σ_n ψ_t(f_i^n), with ``f <= 0`` satisfied; t ← min(mu·t, max_t) at each ``step()``.

    ψ_t is ``ringfence.log_barrier``: finite everywhere, so no feasible start is needed, and never flat, so
    a satisfied constraint is pushed back before it breaks. Its derivative λ = -1/(t f) (t beyond the junction)
    is the implicit dual variable: ``duals()``. There is no dual step and no extra pass over the data.

    Low t is a soft barrier that pulls on everything, high t a hard one that acts near the boundary alone. λ never
    exceeds t (times the weight), so a constraint whose true multiplier is larger cannot be held until t has grown
    past it: start low to find a good region, and let mu take t there.
    Constraints are in the units of their residuals: what matters is f against 1/t², so bring them to a common
    scale (``scale=`` of ``ringfence.between``) before turning t.

    Args:
        t: the first t > 0, or a function from the number of steps taken to t.
        mu: growth of t per step, >= 1; 1.1 unless given, and not to be given when ``t`` is a function.
        max_t: t never exceeds it.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        t: Start = 5.0,
        mu: float | None = None,
        max_t: float = 1e8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._schedule = Schedule("t", t, mu, max_t, default_mu=1.1)

    @property
    def t(self) -> float:
        """How sharp the barrier is now."""
        return self._schedule.value

    def summary(self) -> dict[str, float]:
        """The current t."""
        return {"t": self.t}

    def extra_repr(self) -> str:
        """The schedule, for ``print(fence)``."""
        return str(self._schedule)

    def _term(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return log_barrier(f, self.t)

    def _slope(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return log_barrier_dual(f, self.t)

    def _advance(self) -> None:
        self._schedule.advance(self.steps + 1)

    def _bound(self, residuals: Mapping[str, Residual]) -> float:
        # each -w λ f <= w/t, so the gap is at most PN/t for unit weights
        coefficients = self._coefficients(residuals)
        return sum(float(coefficients[name]) * int(r.present.sum()) for name, r in residuals.items()) / self.t

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | {"t": self.t}

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._schedule.value = numbers["t"]
