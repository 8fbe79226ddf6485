"""The common baseline: violations cost, satisfaction is free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, final

import torch
from torch import Tensor

from ringfence.fused.launch import can_be_one, square
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.schedule import Schedule, Starts
from ringfence.methods.summed import Phi, summed
from ringfence.residuals import Residual


@final
class Penalty(Method):
    """loss = γ Σ_i w_i Σ_n max(f_i^n, 0)^p, with ``f <= 0`` satisfied; p = 2 (quadratic) or 1 (linear).

    λ = γ p max(f, 0)^(p-1): nothing at all acts on a satisfied constraint, so it is the violated side that the
    minimiser approaches the boundary from. The quadratic penalty is infeasible by about λ*/(2γ) at its minimum;
    the linear one is exact once γ exceeds every multiplier λ*, but has a kink there. Of an equality
    (``ringfence.equal``) it charges the distance from the target beyond the tolerance, on either side.

    Args:
        strength: γ > 0, or a function from the number of steps taken to γ; or a mapping from constraint names to
            such.
        mu: growth of γ per step, >= 1; constant unless given.
        max_strength: γ never exceeds it.
        power: p, 1 or 2.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        strength: Starts = 1.0,
        mu: float | None = None,
        max_strength: float = 1e8,
        *,
        power: Literal[1, 2] = 2,
        **options: Unpack[Options],
    ) -> None:
        if power not in (1, 2):
            raise ValueError(f"power must be 1 (linear) or 2 (quadratic), got {power}")
        self.power = power
        self._schedule = Schedule("strength", strength, mu, max_strength, default_mu=1.0)
        super().__init__(**options)

    @property
    def strength(self) -> float | dict[str, float]:
        """γ now; by name where it was given so."""
        return self._schedule.value

    def summary(self) -> dict[str, float]:
        """The current γ."""
        return self._schedule.summary()

    def extra_repr(self) -> str:
        """Power and schedule, for ``print(fence)``."""
        return f"power={self.power}, {self._schedule}"

    def _by_name(self) -> Iterable[Schedule]:
        return (self._schedule,)

    # f = -inf, nothing constrained, costs nothing and has slope 0 by itself

    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        strength = self._schedule.read(name)
        if self.power == 1:
            return strength * torch.relu(residual.f).sum()
        if can_be_one(residual.f):
            return summed(
                Phi(
                    lambda f: strength * _square(torch.relu(f)),
                    lambda f: 2.0 * strength * torch.relu(f),
                    lambda f: square(f, strength),
                ),
                residual.f,
                many=0,
            )
        if isinstance(strength, Tensor):
            return strength * _square(torch.relu(residual.f))
        return summed(
            Phi(
                lambda f: strength * _square(torch.relu(f)),
                lambda f: 2.0 * strength * torch.relu(f),
                lambda f: _square_and_root(torch.relu(f), strength),
                2.0 * strength,
            ),
            residual.f,
        )

    def follow(self, device: torch.device | None) -> bool:
        """See ``Method.follow``."""
        self._schedule.follow(device)
        return True

    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        f, strength = residual.f, self._schedule[name]
        return strength * (2.0 * torch.relu(f) if self.power == 2 else (f > 0).to(f.dtype))

    def _advance(self) -> None:
        self._schedule.advance(self.steps + 1)

    def _numbers(self) -> dict[str, float]:
        return super()._numbers() | self._schedule.numbers()

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._schedule.restore(numbers)


def _square(violation: Tensor) -> Tensor:
    flat = violation.reshape(-1)
    return torch.dot(flat, flat)


def _square_and_root(violation: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    return strength * _square(violation), violation
