"""What every way of keeping multipliers can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor

from ringfence.methods.multipliers.fingerprint import fingerprint
from ringfence.methods.multipliers.kinds import Kind
from ringfence.residuals import Residual

TOO_MANY: Final = 2**28
"""Numbers in a table that was not declared."""

Climb: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, bool], Tensor]
"""(λ, mean v, where it was seen (None: everywhere), which rows (None: all), may λ be overwritten) -> λ"""


class Multipliers(ABC):
    """λ of one constraint, and what has been seen of its residuals since the last dual step.

    Residuals are measured as v (f itself, or the violation alone); where multipliers are shared, what counts is the
    mean of v. ``kind`` says whether λ has a sign.

    Args:
        name: the constraint's.
        kind: of the constraint.
        pair: whether v's last dimension is (low, high).
        initial: the first value of every λ.
    """

    code: str
    """The way in a word that never changes, for saved states."""

    has_rows = True
    """Whether its residuals have rows, or are one number for the whole call."""

    ranks = 1
    """Over how many processes λ is spread; 1 where each has all of it."""

    def __init__(self, name: str, kind: Kind, pair: bool, initial: float) -> None:
        self.name, self.kind, self.pair, self.initial = name, kind, pair, initial

    @abstractmethod
    def __str__(self) -> str:
        """The way in words, for messages."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether there are multipliers yet."""

    @property
    @abstractmethod
    def value(self) -> Tensor:
        """λ as it is stored."""

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.value) if self.value.ndim else 1

    def __bool__(self) -> bool:
        return True  # a store is a store, also one without rows

    @abstractmethod
    def put(self, value: Tensor) -> None:
        """Replace λ by a tensor of the same shape."""

    @abstractmethod
    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """Make room for λ of a v of that shape, beside ``like``; raise if it does not fit the calls before."""

    @abstractmethod
    def rows(self, v: Tensor, index: Tensor | None) -> Tensor:
        """λ for the rows of a call, broadcasting against ``measured``."""

    def table(self, index: Tensor | None) -> tuple[Tensor, Tensor | None] | None:
        """λ with the row of each of the call's, or λ over and over for all of them; None where it is elsewhere."""
        return None

    def measured(self, v: Tensor, residual: Residual) -> tuple[Tensor, Tensor | float | None]:
        """v as λ sees it; where it is shared a sum, and of how many."""
        return v, None

    @abstractmethod
    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Remember v for the next dual step."""

    @property
    @abstractmethod
    def seen(self) -> bool:
        """Whether anything was seen since the last dual step."""

    @abstractmethod
    def step(self, climb: Climb) -> Tensor:
        """Take the dual step by what was seen, and forget it; the mean v it went by, 0 where there was none."""

    def fault(self) -> str | None:
        """Why the dual step cannot be taken, if it cannot: asked before ranks wait for each other."""
        return None

    @abstractmethod
    def forget(self) -> None:
        """Drop what was seen."""

    @abstractmethod
    def used(self) -> tuple[Tensor, Tensor | None]:
        """λ, and which of them had a dual step; None for all, or while none had."""

    # In a CUDA graph

    def follow(self) -> list[Tensor] | None:
        """From now on keep λ, and what was seen, in tensors that stay where they are, and count on ``saw``.

        Those that ``see`` writes to; None where it cannot be done.
        """
        return None

    def leave(self) -> None:  # noqa: B027 - nothing to leave where nothing follows
        """As before ``follow``."""

    def saw(self) -> None:  # noqa: B027 - as above
        """Say that a ``see`` took place, which a graph did."""

    # Between ranks

    @abstractmethod
    def sums(self) -> list[Tensor]:
        """What was seen, as tensors that ranks add up; zeros where nothing was."""

    @abstractmethod
    def take_sums(self, sums: list[Tensor]) -> None:
        """Replace what was seen by what all ranks saw."""

    def size(self) -> list[int]:
        """What must be the same on all ranks before sums are added."""
        return list(self.value.shape)

    def fingerprint(self) -> Tensor:
        """An int64 that is the same on all ranks as long as λ is."""
        return fingerprint(self.value, self.initial)

    # State

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Everything that a saved state needs, by kind."""

    @abstractmethod
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what ``tensors`` gave."""


class Kept(Multipliers):
    """λ as one tensor, the same for every call."""

    def __init__(self, name: str, kind: Kind, pair: bool, initial: float) -> None:
        super().__init__(name, kind, pair, initial)
        self._value: Tensor | None = None

    @property
    def ready(self) -> bool:
        """Since the first call."""
        return self._value is not None

    @property
    def value(self) -> Tensor:
        """λ."""
        assert self._value is not None  # noqa: S101  (made by the first fit)
        return self._value

    def put(self, value: Tensor) -> None:
        """Replace λ."""
        self._value = value

    def table(self, index: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The same for every row."""
        return self.value, None

    def rows(self, v: Tensor, index: Tensor | None) -> Tensor:
        """All of them."""
        return self.value if self.value.dtype == v.dtype else self.value.to(v.dtype)


def first(like: Tensor, shape: tuple[int, ...], initial: float) -> Tensor:
    """A new λ beside ``like``; never an inference tensor, which no later training call could use."""
    with torch.inference_mode(False):
        return torch.full(shape, initial, dtype=like.dtype, device=like.device)


def tally(multipliers: Tensor, there: Tensor | None) -> Tensor:
    """Σ |λ|, how many these are, and the largest |λ| (0 of none): float64 ``[3]``; of those that are there alone.

    No GPU is asked which these are.
    """
    each = multipliers.detach().abs()
    if there is not None:
        each = torch.where(there, each, 0.0)
    total = each.sum(dtype=torch.float64)
    count = torch.full_like(total, each.numel()) if there is None else there.sum(dtype=torch.float64)
    return torch.stack([total, count, each.amax().double() if each.numel() else torch.zeros_like(total)])


def counts(v: Tensor, residual: Residual, sound: bool | Tensor) -> tuple[Tensor, Tensor | None]:
    """v with 0 where there is nothing to see, and 1 or 0 for each entry (None: 1 everywhere)."""
    if residual.ragged:
        there = residual.present
        if there.shape != v.shape:  # the violation of an equality, whose two sides come and go together
            there = there[..., 0]
        there = there & sound if isinstance(sound, Tensor) else there
        return torch.where(there, v, 0.0), there.to(v.dtype)
    if isinstance(sound, Tensor):
        return torch.where(sound, v, 0.0), sound.to(v.dtype).expand_as(v)
    return v, None


def lengthened(table: Tensor, rows: int) -> Tensor:
    """``table`` with zeros after its end, where it has fewer rows."""
    if len(table) >= rows:
        return table
    return torch.cat([table, table.new_zeros(rows - len(table), *table.shape[1:])])


def require_sensible(name: str, rows: int, width: int) -> None:
    """Raise before a table grows to what only a wrong index, such as a hash, would ask for."""
    if rows * max(width, 1) > TOO_MANY:
        raise ValueError(
            f"constraint '{name}': index {rows - 1} would need a table of {rows:,} rows. Number data points from 0 "
            "on, or, if there are so many, declare samples=N"
        )


def shape_changed(store: Multipliers, shape: torch.Size, advice: str) -> ValueError:
    """The error for a residual that does not fit."""
    return ValueError(
        f"constraint '{store.name}' changed its shape: {list(shape)} does not fit multipliers of shape "
        f"{list(store.value.shape)} ({store}). {advice}"
    )
