"""Checks that look at tensor values: made at once on the CPU, in batches on a GPU so that no step stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

ROWS_SHOWN: Final = 8
CALLS_HELD: Final = 64
"""A GPU is asked after this many calls at the latest: one synchronisation in 64 is not felt."""


@dataclass(frozen=True, eq=False)
class Check:
    """A fault that must hold nowhere: ``broken(*inputs.values())`` is True at the entries where it does.

    Attributes:
        fault: what is wrong, in words: "low > high".
        broken: a module-level function (so that a check can be pickled) from the inputs to a bool (tensor).
        inputs: the numbers to look at, by the name the message shows them under.
        advice: what the user should do about it.
        mask: entries to look at (all of them if None).
    """

    fault: str
    broken: Callable[..., Tensor | bool]
    inputs: dict[str, Tensor | float]
    advice: str = ""
    mask: Tensor | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether the answer can be read without waiting for a GPU."""
        return all(not isinstance(value, Tensor) or value.device.type == "cpu" for value in self.inputs.values())

    def entries(self) -> Tensor:
        """True where the fault holds."""
        with torch.no_grad():
            broken = torch.as_tensor(self.broken(*self.inputs.values()))
            return broken if self.mask is None else broken & self.mask

    def enforce(self, where: str) -> None:
        """Raise a ValueError naming ``where``, the rows and the first values at fault, if there are any."""
        entries = self.entries()
        if bool(entries.any()):
            raise ValueError(f"{where}: {self._describe(entries)}")

    def _describe(self, entries: Tensor) -> str:
        if entries.ndim == 0:
            values = ", ".join(f"{name}={_shown(value)}" for name, value in self.inputs.items())
            return f"{self.fault} ({values}). {self.advice}".rstrip()
        places = entries.nonzero()
        rows = places[:, 0].unique().tolist()
        shown = ", ".join(str(row) for row in rows[:ROWS_SHOWN]) + (", ..." if len(rows) > ROWS_SHOWN else "")
        first = tuple(places[0].tolist())
        values = ", ".join(
            f"{name}={_shown(torch.as_tensor(value).expand(entries.shape)[first])}"
            for name, value in self.inputs.items()
        )
        return (
            f"{self.fault} in row{'s' * (len(rows) > 1)} {shown} ({len(places)} of {entries.numel()} entries; "
            f"first at {list(first)}: {values}). {self.advice}"
        ).rstrip()


class Ledger:
    """The checks a method still has to make.

    On the CPU, or with ``at_once``, a check is made as it is added. On a GPU reading its answer would stall the
    stream at every step, so it is written down and made by ``settle``: at the fence's ``step()``, or after
    ``CALLS_HELD`` calls, whichever comes first.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self._pending: list[tuple[str, Check]] = []
        self._calls = 0

    def add(self, where: str, check: Check) -> None:
        """Make ``check`` now, or write it down for ``settle``."""
        if self.at_once or check.on_cpu:
            check.enforce(where)
        else:
            self._pending.append((f"{where} (call {self._calls + 1} since the last check)", check))

    def close_call(self) -> None:
        """Mark the end of one call of the fence; settles when enough of them are waiting."""
        self._calls += 1
        if self._calls >= CALLS_HELD:
            self.settle()

    def settle(self) -> None:
        """Make every waiting check, with one synchronisation if all is well; forget them either way."""
        pending, self._pending, self._calls = self._pending, [], 0
        if not pending:
            return
        broken = torch.stack([check.entries().any() for _, check in pending]).tolist()
        for (where, check), failed in zip(pending, broken, strict=True):
            if failed:
                check.enforce(where)


def not_finite(value: Tensor) -> Tensor:
    """True where ``value`` is NaN or infinite."""
    return ~torch.isfinite(value)


def _shown(value: Tensor | float) -> str:
    number = value.item() if isinstance(value, Tensor) else value
    return str(number) if isinstance(number, int) else f"{number:g}"
