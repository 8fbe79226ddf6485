"""Multipliers and a quadratic term together: converges where either alone does not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.methods.admission import Call
from ringfence.methods.base import Unpack
from ringfence.methods.dual import DualMethod, DualOptions, Rates
from ringfence.methods.multipliers import Multipliers, Shared
from ringfence.methods.multipliers.exchange import reduced
from ringfence.methods.multipliers.gathering import gathered_term
from ringfence.methods.multipliers.kinds import INEQUALITY, Kind, climbed, inner
from ringfence.methods.schedule import Schedule, Starts
from ringfence.methods.summed import Phi, summed
from ringfence.numbers import not_negative
from ringfence.residuals import Residual


@final
class AugmentedLagrangian(DualMethod):
    """loss = Σ_i w_i Σ_n (max(0, λ + ρ f)² - λ²) / 2ρ, ``f <= 0`` satisfied; λ ← max(0, λ + dual_lr·f) at a step.

    The Powell-Hestenes-Rockafellar form. The quadratic term makes the inner problem convex enough to settle; the
    multipliers remove the bias that a penalty would need ρ → ∞ for. ``duals()`` is max(0, λ + ρ f). For an equality
    (``ringfence.equal``), λ f + ρ f²/2 with one λ of either sign. With ``shared=True`` f is
    the mean over all data points, in the term as in the dual step: with ``index=`` those that a call does not
    have count as they were seen last. Without it a call's rows are all there are, and several calls a step get a
    warning. A residual without rows is what it is in each call: of a rate over mini-batches the quadratic term sees
    the noise, too, and ``Lagrangian`` does not.

    ρ grows by ``mu`` at a step only while the worst violation does not fall: while it is above ``tolerance``, and
    not below ``enough`` times that of the step before. Where the loss is minimised between steps, ``enough=0.5``
    asks for more.

    Args:
        rho: ρ > 0, the quadratic term's weight; or a function from the number of steps taken to ρ; or a mapping
            from constraint names to such.
        mu: growth of ρ, >= 1; constant unless given.
        max_rho: ρ never exceeds it.
        dual_lr: the dual learning rate, >= 0; by constraint name, if you like. ρ unless given, which is right when
            the loss is minimised between steps; when stepping once an iteration it should be far smaller.
        enough: to which share of the last step's a violation must fall for ρ to stay.
        tolerance: a violation up to this, in units of the residual, makes nothing grow.
        **options: initial, samples, shared, same_rows, multiplier, dual_optimiser, max_multiplier, restart,
            process_group, sharded: see ``DualMethod``; weights, reduction, shapes, validate: see ``Method``.
    """

    def __init__(
        self,
        rho: Starts = 1.0,
        mu: float | None = None,
        max_rho: float = 1e6,
        dual_lr: Rates | None = None,
        enough: float = 1.0,
        tolerance: float = 1e-4,
        **options: Unpack[DualOptions],
    ) -> None:
        self._schedule = Schedule("rho", rho, mu, max_rho, default_mu=1.0)
        self.enough, self.tolerance = not_negative("enough", enough), not_negative("tolerance", tolerance)
        self._violations: dict[str, float] = {}
        self._calls, self._warned = 0, False
        super().__init__(dual_lr, **options)

    @property
    def rho(self) -> float | dict[str, float]:
        """ρ now; by name where it was given so."""
        return self._schedule.value

    def summary(self) -> dict[str, float]:
        """The multipliers, and ρ."""
        return super().summary() | self._schedule.summary()

    def extra_repr(self) -> str:
        """Schedule, what moves λ and whose it is, for ``print(fence)``."""
        return f"{self._schedule}, {super().extra_repr()}"

    def _mover(self) -> str:
        return "dual_lr=rho" if self._dual_lr is None and self._make_optimiser is None else super()._mover()

    _rule = "augmented"

    def _tells(self, name: str) -> bool:
        store = self._stores.get(name)  # see _both: even ν = 0 times what is not a number is none
        return store is not None and store.kind is INEQUALITY and not isinstance(store, Shared)

    def _by_name(self) -> Iterable[Any]:
        return (*super()._by_name(), self._schedule)

    def _rate(self, name: str) -> float:
        return self._schedule[name] if self._dual_lr is None else self._dual_lr[name]

    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        store, rho = self._stores[name], self._schedule.read(name)
        in_one = None if isinstance(store, Shared) else gathered_term(store, residual, index, "augmented", rho)
        if in_one is not None:
            return in_one
        v = self._measure(residual)
        multiplier = store.rows(v, index)
        if isinstance(store, Shared):
            mean, number = store.everyone(v, residual, index)
            pushed = store.kind.shifted(multiplier, mean, rho)
            return (number * (pushed - multiplier) * (pushed + multiplier)).sum() / (2.0 * rho)
        if store.kind is not INEQUALITY:
            pushed = store.kind.shifted(multiplier, v, rho)
            return ((pushed - multiplier) * (pushed + multiplier)).sum() / (2.0 * rho)
        return summed(
            Phi(
                lambda f: _difference(_pushed(multiplier, f, rho), multiplier) / (2.0 * rho),
                lambda f: _pushed(multiplier, f, rho),
                lambda f: _both(multiplier, f, rho),
                held=multiplier,
            ),
            v,
            many=0,
        )

    def follow(self, device: torch.device | None) -> bool:
        """See ``Method.follow``: ρ, too."""
        following = super().follow(device)
        self._schedule.follow(device if following else None)
        return following

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        store = self._stores[name]
        v = self._measure(residual)
        multiplier = store.rows(v, index)
        if isinstance(store, Shared):
            v, _ = store.everyone(v, residual, index)
        return store.kind.sides(store.kind.shifted(multiplier, v, self._schedule[name]))

    def _store(self, name: str, kind: Kind, pair: bool, has_rows: bool) -> Multipliers:
        store = super()._store(name, kind, pair, has_rows)
        if isinstance(store, Shared):
            store.remember(self.whose.samples)
        return store

    def _see(self, call: Call) -> None:
        super()._see(call)
        self._calls += self.whose.shared and call.index is None and any(r.has_rows for r in self._stores.values())
        if self._calls == 2 and not self._warned:
            self._warned = True
            warnings.warn(
                "AugmentedLagrangian(shared=True): several calls since the last step, and no index=, so that the "
                "quadratic term is about the mean of each call, not of all, and will end at another point. Pass "
                "index=, step after each call, or use rf.Lagrangian",
                stacklevel=6,
            )

    def _advance(self) -> None:
        self._calls = 0
        means = self._dual_step()  # at the ρ of the epoch that just ended
        stalled = self._stalled(means) if self._schedule.mu > 1.0 else []
        self._schedule.advance(self.steps + 1, only=stalled)

    def _stalled(self, means: dict[str, Tensor]) -> list[str]:
        """The constraints whose worst violation has not fallen enough since the last step."""
        stalled = []
        for name, mean in means.items():
            violation = self._stores[name].kind.infeasibility(mean)
            worst = violation.max().item() if violation.numel() else 0.0
            if self._stores[name].ranks > 1:  # this rank has only seen its own
                (worst,) = reduced([worst], dist.ReduceOp.MAX, self._process_group)
            if worst > self.tolerance and worst >= self.enough * self._violations.get(name, math.inf):
                stalled.append(name)
            self._violations[name] = worst
        return stalled

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | self._schedule.numbers()

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"violations": self._violations}

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._schedule.restore(numbers)
        self._violations = dict(header["violations"])


def _pushed(multiplier: Tensor, f: Tensor, rho: float | Tensor) -> Tensor:
    return torch.relu(climbed(multiplier, f, rho))


def _difference(pushed: Tensor, multiplier: Tensor) -> Tensor:
    return inner(pushed, pushed) - inner(multiplier, multiplier)


def _both(multiplier: Tensor, f: Tensor, rho: float | Tensor) -> tuple[Tensor, Tensor]:
    """The value and the slope max(0, λ + ρf) =: ν, by ν f - (ν - λ)²/2ρ: no difference of large sums."""
    pushed = climbed(multiplier, f, rho).relu_()
    step = pushed - multiplier
    return inner(pushed, f) - inner(step, step) / (2.0 * rho), pushed
