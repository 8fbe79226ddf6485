"""How a method's one sharpness parameter grows from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ringfence.barrier import positive_number

Start: TypeAlias = float | Callable[[int], float]
"""Where a schedule starts; or the whole schedule, as a function of the number of steps taken."""


class Schedule:
    """v_{k+1} = min(mu · v_k, limit), or v_k = min(start(k), limit) where ``start`` is a function.

    Args:
        name: what the parameter is called, for messages.
        start: v_0 > 0, or a function from the number of steps taken to the value.
        mu: growth per step, >= 1; must be None with a function.
        limit: never exceeded.
        default_mu: what None means where ``start`` is a number.
    """

    def __init__(self, name: str, start: Start, mu: float | None, limit: float, default_mu: float) -> None:
        self.name = name
        self.limit = positive_number(f"max_{name}", limit)
        self._function = start if callable(start) else None
        if self._function is not None and mu is not None:
            raise ValueError(f"{name} is a function, so it decides the growth: leave out mu (got mu={mu})")
        self.mu = self._checked_mu(default_mu if mu is None else mu)
        self.value = self._at_start(start)

    def advance(self, steps: int) -> None:
        """Move on to the value after ``steps`` steps."""
        if self._function is None:
            self.value = min(self.value * self.mu, self.limit)
        else:
            self.value = min(positive_number(f"{self.name}({steps})", self._function(steps)), self.limit)

    def __str__(self) -> str:
        if self._function is not None:
            return f"{self.name}={self.value:g} (a function of the step, at most {self.limit:g})"
        if self.mu == 1.0:
            return f"{self.name}={self.value:g}"
        return f"{self.name}={self.value:g} (× {self.mu:g} per step, at most {self.limit:g})"

    def _at_start(self, start: Start) -> float:
        if callable(start):
            return min(positive_number(f"{self.name}(0)", start(0)), self.limit)
        value = positive_number(self.name, start)
        if value > self.limit:
            raise ValueError(f"{self.name}={value:g} is above max_{self.name}={self.limit:g}")
        return value

    @staticmethod
    def _checked_mu(mu: float) -> float:
        if positive_number("mu", mu) < 1.0:
            raise ValueError(f"mu must be at least 1 (a barrier is raised, not lowered), got mu={mu}")
        return float(mu)
