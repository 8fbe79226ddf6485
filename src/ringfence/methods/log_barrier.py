"""The paper's method: the log-barrier extension, raised from step to step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor

from ringfence.barrier import log_barrier, log_barrier_both, log_barrier_dual
from ringfence.fused.launch import barrier, can_be_one
from ringfence.methods.admission import Call, transformed
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.schedule import Schedule, Starts
from ringfence.methods.summed import Phi, summed
from ringfence.residuals import Constraint, Residual


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
    scale (``scale=`` of ``ringfence.between``) before turning t. Once 1/t² is below the rounding of a residual of 1
    (t of 2,900 in float32), the barrier has become a linear penalty of slope t; a ``step()`` that takes it there
    warns. When stepping once an iteration, choose mu accordingly: mu^(iterations) is what t grows by.

    Args:
        t: the first t > 0, or a function from the number of steps taken to t; or a mapping from constraint names
            to such.
        mu: growth of t per step, >= 1; 1.1 unless given, and not to be given when ``t`` is a function.
        max_t: t never exceeds it.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        t: Starts = 5.0,
        mu: float | None = None,
        max_t: float = 1e8,
        **options: Unpack[Options],
    ) -> None:
        self._schedule = Schedule("t", t, mu, max_t, default_mu=1.1)
        self._rounding = torch.finfo(torch.float32).eps
        self._warned: set[str] = set()
        self._looked: set[str] = set()
        super().__init__(**options)

    @property
    def t(self) -> float | dict[str, float]:
        """How sharp the barrier is now; by name where it was given so."""
        return self._schedule.value

    def summary(self) -> dict[str, float]:
        """The current t."""
        return self._schedule.summary()

    def extra_repr(self) -> str:
        """The schedule, for ``print(fence)``."""
        return str(self._schedule)

    def _tells(self, name: str) -> bool:
        return True

    def _by_name(self) -> Iterable[Schedule]:
        return (self._schedule,)

    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        t, f = self._schedule.read(name), residual.f
        if can_be_one(f):
            return summed(_fused(t), f, many=0)
        if residual.ragged:
            return torch.where(residual.present, log_barrier(residual.filled(-1.0), t), 0.0).sum()
        if isinstance(t, Tensor):
            return log_barrier(f, t).sum()
        return summed(
            Phi(
                lambda f: log_barrier(f, t).sum(),
                lambda f: log_barrier_dual(f, t),
                lambda f: log_barrier_both(f, t),
            ),
            f,
        )

    def follow(self, device: torch.device | None) -> bool:
        """See ``Method.follow``."""
        self._schedule.follow(device)
        return True

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        if can_be_one(residual.f):
            return barrier(residual.f, self._schedule[name])[1]
        return log_barrier_dual(residual.filled(-1.0), self._schedule[name])

    def _admit(self, constraints: Mapping[str, Constraint], index: Tensor | None, look: bool = True) -> Call:
        call = super()._admit(constraints, index, look)
        for name, residual in call.residuals.items():
            self._rounding = torch.finfo(residual.f.dtype).eps
            if residual.two_sided and name not in self._looked and not transformed():
                self._look_for_room(name, residual)
        return call

    def _look_for_room(self, name: str, residual: Residual) -> None:
        """Warn if the two sides of a limit meet; at the first call, where looking does not stall a GPU."""
        self._looked.add(name)
        if not residual.f.is_cpu or "room" in self._warned:
            return
        there = residual.present.all(dim=-1)
        meet = (residual.f.detach().sum(dim=-1) == 0.0) & there
        # some rows of a `between` may be exact (an image without an object has a size of 0): no mistake
        if bool(meet.any()) and (residual.equality or torch.equal(meet, there)):
            self._warned.add("room")
            warnings.warn(
                f"constraint '{name}' is an equality with tolerance 0, which leaves a barrier no room: it acts as "
                "a linear penalty of slope t. Give rf.equal a tolerance, or use a Lagrangian",
                stacklevel=7,
            )

    def _advance(self) -> None:
        self._schedule.advance(self.steps + 1)
        largest = max(self._schedule.values.values())
        if largest**-2 < self._rounding and "t" not in self._warned:
            self._warned.add("t")
            warnings.warn(
                f"LogBarrier: t reached {largest:g} at step {self.steps + 1}, and 1/t² is below the rounding of a "
                f"residual of 1 ({self._rounding:.2g}): from here on the barrier is a linear penalty. Lower mu, or "
                "set max_t; when stepping once an iteration, t grows by mu to the number of iterations",
                stacklevel=3,
            )

    def _bound(self, residuals: Mapping[str, Residual]) -> float:
        # each -w λ f <= w/t, so the gap is at most PN/t for unit weights
        divisor = float(self._divisor(residuals))
        return sum(
            self.weights.get(name, 1.0) * int(residual.present.sum()) / (divisor * self._schedule[name])
            for name, residual in residuals.items()
        )

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | self._schedule.numbers()

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._schedule.restore(numbers)


def _fused(t: float | Tensor) -> Phi:
    """ψ_t for residuals on a GPU: value and slope by one kernel; f = -inf costs nothing, and has slope 0."""
    return Phi(
        lambda f: torch.where(f == -math.inf, 0.0, log_barrier(f.clamp(min=_LOWEST), t)).sum(),
        lambda f: log_barrier_dual(f, t),
        lambda f: barrier(f, t),
    )


_LOWEST: Final = torch.finfo(torch.float32).min
