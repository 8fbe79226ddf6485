"""Checks that look at tensor values: made at once on the CPU, in batches on a GPU so that no step stalls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

ROWS_SHOWN: Final = 8
CALLS_HELD: Final = 64
"""A GPU is asked after this many calls at the latest: one synchronisation in 64 is not felt."""


@dataclass(eq=False, slots=True)
class Check:
    """A fault that must hold nowhere: ``broken(*inputs.values())`` is True at the entries where it does.

    Attributes:
        fault: what is wrong, in words: "low > high".
        broken: from the inputs to a bool (tensor); on a GPU it must not wait for an answer.
        inputs: the numbers to look at, by the name the message shows them under.
        advice: what the user should do about it.
        shape: the shape that the inputs broadcast to, so that rows are counted right.
        mask: entries to look at (all of them if None).
        sound: from the inputs to True where they are surely well, for less than ``broken`` costs; asked first.
        overflow: whether float16 may fail it by itself, which is no fault of the caller's.
    """

    fault: str
    broken: Callable[..., Tensor | bool]
    inputs: dict[str, Tensor | float]
    advice: str = ""
    shape: torch.Size | None = None
    mask: Tensor | None = None
    sound: Callable[..., bool] | None = None
    overflow: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether the answer can be read without waiting for a GPU."""
        return all(not isinstance(value, Tensor) or value.is_cpu for value in self.inputs.values())

    def entries(self) -> Tensor:
        """True where the fault holds."""
        with torch.no_grad():
            broken = torch.as_tensor(self.broken(*self.inputs.values()))
            if self.shape is not None and broken.ndim:
                broken = broken.expand(self.shape)
            return broken if self.mask is None else broken & self.mask

    def enforce(self, where: str) -> None:
        """Raise a ValueError naming ``where``, the rows and the first values at fault, if there are any."""
        if self._surely_holds():
            return
        entries = self.entries()
        if bool(entries.any()):
            raise ValueError(f"{where}: {self._describe(entries)}")

    def holds(self) -> bool:
        """Whether there is no fault anywhere."""
        return self._surely_holds() or not bool(self.entries().any())

    def _surely_holds(self) -> bool:
        return self.sound is not None and self.sound(*self.inputs.values())

    def _describe(self, entries: Tensor) -> str:
        if entries.ndim == 0:
            values = ", ".join(f"{name}={_shown(value)}" for name, value in self.inputs.items())
            return f"{self.fault} ({values}). {self.advice}".rstrip()
        places = entries.nonzero()
        first = tuple(places[0].tolist())
        values = ", ".join(
            f"{name}={_shown(torch.as_tensor(value).expand(entries.shape)[first])}"
            for name, value in self.inputs.items()
        )
        return (
            f"{self.fault} in {_rows_in_words(places[:, 0])} ({len(places)} of {entries.numel()} entries; "
            f"first at {list(first)}: {values}). {self.advice}"
        ).rstrip()


@dataclass(frozen=True)
class _Noted:
    """The answer of a check that nobody has read yet: one bool per row, still on the GPU."""

    where: str
    fault: str
    advice: str
    rows: Tensor

    def report(self) -> str:
        words = _rows_in_words(self.rows.nonzero()[:, 0]) if self.rows.ndim else "it"
        return f"{self.where}: {self.fault} in {words}. {self.advice} (validate=True shows the values at once.)"


class Ledger:
    """The checks a method still has to read.

    On the CPU, or with ``validate=True``, a check is made as it is added; with ``validate=False`` never. On a GPU
    reading its answer would stall the stream at every step, so the answer is computed there, without waiting, and
    read by ``settle``: at the fence's ``step()``, or after ``CALLS_HELD`` calls, whichever comes first. Only the
    answer is kept (a bool per row): the tensors themselves may be changed in place before it is read, or be large.
    """

    def __init__(self, validate: bool | None = None) -> None:
        self.validate = validate
        self._noted: list[_Noted] = []
        self._calls = 0

    def add(self, where: str, check: Check) -> None:
        """Make ``check`` and read it now, or leave the reading to ``settle``."""
        if self.validate is False:
            return
        if self.validate or check.on_cpu:
            check.enforce(where)
            return
        entries = check.entries()
        rows = entries.flatten(1).any(dim=1) if entries.ndim > 1 else entries
        call = f"{where} (call {self._calls + 1} since the last check)"
        self._noted.append(_Noted(call, check.fault, check.advice, rows))

    def close_call(self) -> None:
        """Mark the end of one call of the fence; settles when enough of them are waiting."""
        self._calls += 1
        if self._calls >= CALLS_HELD:
            self.settle()

    def settle(self) -> None:
        """Read every waiting answer, with one synchronisation if all is well; forget them either way."""
        noted, self._noted, self._calls = self._noted, [], 0
        if not noted:
            return
        rows = torch.cat([one.rows.reshape(-1) for one in noted]).cpu()  # in one copy
        for one, broken in zip(noted, rows.split([one.rows.numel() for one in noted]), strict=True):
            if bool(broken.any()):
                raise ValueError(one.report())


def finite(what: str, value: Tensor, advice: str, mask: Tensor | None = None) -> Check:
    """The check that ``value`` is neither NaN nor infinite (where ``mask`` is True)."""
    return Check(
        f"{what} is NaN or infinite",
        not_finite,
        {what: value.detach()},
        advice,
        None,
        mask,
        surely_finite,
        overflow=True,
    )


def surely_finite(value: Tensor) -> bool:
    """True only if every entry is finite, by one sum: NaN and infinities do not leave it."""
    return math.isfinite(value.sum().item())


def batched(tensor: Tensor) -> bool:
    """Whether ``tensor`` is one of ``torch.vmap``'s, whose values cannot be looked at."""
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):  # vmap may be outside of a torch.func.grad
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def unwrapped(tensor: Tensor) -> Tensor:
    """``tensor`` as it is outside of ``torch.func.grad``, where it may be kept."""
    if torch._C._are_functorch_transforms_active():
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def not_finite(value: Tensor) -> Tensor:
    """True where ``value`` is NaN or infinite: exactly where x - x is not 0 (and cheaper than isfinite)."""
    return (value - value) != 0


def _rows_in_words(rows: Tensor) -> str:
    numbers = rows.unique().tolist()
    shown = ", ".join(str(row) for row in numbers[:ROWS_SHOWN]) + (", ..." if len(numbers) > ROWS_SHOWN else "")
    return f"row{'s' * (len(numbers) > 1)} {shown}"


def _shown(value: Tensor | float) -> str:
    number = value.item() if isinstance(value, Tensor) else value
    return str(number) if isinstance(number, int) else f"{number:g}"
