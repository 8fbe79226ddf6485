"""How a method's sharpness grows from step to step, the same for all constraints or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ringfence.methods.by_name import ByName
from ringfence.numbers import positive_number

Start: TypeAlias = float | Callable[[int], float]
"""Where a schedule starts; or the whole schedule, as a function of the number of steps taken."""

Starts: TypeAlias = Start | Mapping[str, Start]
"""The same for all constraints, or one for each by name."""

ALL = ""
"""The key of a value that is the same for all constraints."""


class Schedule:
    """v_{k+1} = min(mu · v_k, limit), or v_k = min(start(k), limit) where ``start`` is a function.

    Args:
        name: what the parameter is called, for messages.
        start: v_0 > 0, or a function from the number of steps taken to the value; or a mapping from constraint
            names to such.
        mu: growth per step, >= 1; must be None with a function.
        limit: never exceeded.
        default_mu: what None means where ``start`` is a number.
    """

    def __init__(self, name: str, start: Starts, mu: float | None, limit: float, default_mu: float) -> None:
        self.name = name
        self.limit = positive_number(f"max_{name}", limit)
        self._starts: ByName[Start] = ByName(name, start, self._checked)
        given = self._starts.value
        self._by_name = isinstance(given, dict)
        starts = given if isinstance(given, dict) else {ALL: given}
        self._functions = {key: one for key, one in starts.items() if callable(one)}
        if self._functions and mu is not None:
            raise ValueError(f"{name} is a function, so it decides the growth: leave out mu (got mu={mu})")
        self.mu = self._checked_mu(default_mu if mu is None else mu)
        self.values: dict[str, float] = {
            key: self._at(key, 0) if callable(one) else float(one) for key, one in starts.items()
        }
        self._tensors: dict[str, Tensor] = {}

    def follow(self, device: torch.device | None) -> None:
        """Keep the values in tensors on ``device`` as well, always the same ones: CUDA graphs read them anew.

        None ends that.
        """
        self._tensors = {}
        if device is not None:
            self._tensors = {key: torch.tensor(value, device=device) for key, value in self.values.items()}

    def read(self, name: str) -> float | Tensor:
        """The value of a constraint: a tensor, where they are kept in tensors."""
        key = name if self._by_name else ALL
        return self._tensors.get(key, self.values[key])

    def __getitem__(self, name: str) -> float:
        return self.values[name if self._by_name else ALL]

    @property
    def value(self) -> float | dict[str, float]:
        """Where it stands: one number, or one by name."""
        return dict(self.values) if self._by_name else self.values[ALL]

    def advance(self, steps: int, only: Sequence[str] | None = None) -> None:
        """Move on to the value after ``steps`` steps; of the constraints ``only``, where given."""
        for key in self.values:
            if key in self._functions:
                self.values[key] = self._at(key, steps)
            elif only is None or key in only or (key == ALL and only):
                self.values[key] = min(self.values[key] * self.mu, self.limit)
        self._tell()

    def check_names(self, names: Iterable[str]) -> None:
        """Raise unless this schedule speaks of exactly the constraints ``names``."""
        self._starts.check_names(names)

    def numbers(self) -> dict[str, float]:
        """The values as a saved state holds them: ``t``, or ``t.size`` and so on."""
        return {f"{self.name}.{key}" if key else self.name: value for key, value in self.values.items()}

    def summary(self) -> dict[str, float]:
        """The values as they are logged: ``t``, or ``t/size`` and so on."""
        return {f"{self.name}/{key}" if key else self.name: value for key, value in self.values.items()}

    def restore(self, numbers: Mapping[str, float]) -> None:
        """Take over a saved state's values."""
        self.values = {key: numbers[f"{self.name}.{key}" if key else self.name] for key in self.values}
        self._tell()

    def __str__(self) -> str:
        now = ", ".join(f"{key}: {value:g}" for key, value in self.values.items() if key)
        text = f"{self.name}={{{now}}}" if self._by_name else f"{self.name}={self.values[ALL]:g}"
        if self._functions:
            return f"{text} (a function of the step, at most {self.limit:g})"
        return text if self.mu == 1.0 else f"{text} (× {self.mu:g} per step, at most {self.limit:g})"

    def _tell(self) -> None:
        for key, tensor in self._tensors.items():
            tensor.fill_(self.values[key])

    def _at(self, key: str, steps: int) -> float:
        what = f"{self.name} of '{key}'" if key else self.name
        return min(positive_number(f"{what}({steps})", self._functions[key](steps)), self.limit)

    def _checked(self, what: str, start: Start) -> Start:
        if callable(start):
            return start
        value = positive_number(what, start)
        if value > self.limit:
            raise ValueError(f"{what}={value:g} is above max_{self.name}={self.limit:g}")
        return value

    @staticmethod
    def _checked_mu(mu: float) -> float:
        if positive_number("mu", mu) < 1.0:
            raise ValueError(f"mu must be at least 1 (a barrier is raised, not lowered), got mu={mu}")
        return float(mu)
