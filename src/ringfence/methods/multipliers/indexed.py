"""One row of multipliers for each data point, found by its index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

import torch
from torch import Tensor

from ringfence.methods.multipliers.exchange import Rows, no_rows
from ringfence.methods.multipliers.fingerprint import fingerprint
from ringfence.methods.multipliers.kinds import INEQUALITY, Kind
from ringfence.methods.multipliers.store import (
    Climb,
    Multipliers,
    counts,
    first,
    lengthened,
    require_sensible,
    shape_changed,
)
from ringfence.residuals import Residual

FEW: Final = 4096
"""Up to so many rows, sorting them to find repeated ones is cheaper than two tables."""


@final
class Indexed(Multipliers):
    """λ of shape ``[data points, *row]``; the table grows as indices appear, or has ``samples`` rows at once.

    Of each data point the latest call counts; a data point that stands in several rows of one call counts with
    their mean. A step touches the rows that were seen and no others, so its cost does not depend on the table; nor
    does what ranks send each other.
    """

    code = "sample"

    def __init__(self, name: str, kind: Kind, pair: bool, initial: float, samples: int | None) -> None:
        super().__init__(name, kind, pair, initial)
        self._samples = samples
        self._rows = 0  # in use; the table may have room for more
        self._table: Tensor | None = None
        self._met: Tensor | None = None  # bool, like the counts
        self._sum: Tensor | None = None
        self._count: Tensor | None = None  # one a row, until a residual is ragged: then one an entry
        self._seen: list[Tensor] = []  # the rows of each call since the last step
        self._many = 0  # how many these are
        self._last: tuple[Tensor, Tensor] | None = None  # the only call since then, if its rows are few
        self._news: Rows | None = None  # what all ranks saw, in place of all this
        self._print: tuple[int, Tensor] | None = None  # the table's version, and its fingerprint then
        self._all: Tensor | None = None  # every row, while a graph writes to the tables

    def __str__(self) -> str:
        return (
            "a row of multipliers for each data point"
            if self._samples is None
            else f"a row of multipliers for each of {self._samples} samples"
        )

    @property
    def ready(self) -> bool:
        """Since the first call."""
        return self._table is not None

    @property
    def value(self) -> Tensor:
        """λ of the data points so far."""
        assert self._table is not None  # noqa: S101  (made by the first fit)
        return self._table[: self._rows]

    def put(self, value: Tensor) -> None:
        """Replace λ."""
        self.value.copy_(value)

    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """The first call tells a row's shape; a new index makes the table longer."""
        row = self.kind.shape(shape)[1:]
        if self._table is None:
            self._rows = self._samples or 0
            self._table = first(like, (self._rows, *row), self.initial)
        elif self._table.shape[1:] != row:
            advice = "Rows must keep their shape: pad ragged ones to a common size and use mask="
            raise shape_changed(self, shape, advice)
        elif self._table.device != like.device:
            self.restore({name: one.to(like.device) for name, one in self.tensors().items()})
        if self._samples is None and index is not None and index.numel():
            self.grow(int(index.max()) + 1)

    def grow(self, rows: int) -> None:
        """Have at least so many rows; room is doubled, so that growing one by one costs little."""
        if rows <= self._rows:
            return
        table = self._table
        assert table is not None  # noqa: S101
        if rows > len(table):
            require_sensible(self.name, rows, math.prod(table.shape[1:]))
            longer = first(table, (max(rows, 2 * len(table), 16), *table.shape[1:]), self.initial)
            longer[: self._rows] = self.value
            printed = self._known_print()
            self._table = longer
            self._remember_print(printed)
        self._rows = rows

    def rows(self, v: Tensor, index: Tensor | None) -> Tensor:
        """Those of ``index``: a copy, so that a step may change the table under a graph."""
        assert self._table is not None  # noqa: S101
        rows = self._table.index_select(0, _given(index))
        return rows if rows.dtype == v.dtype else rows.to(v.dtype)

    def table(self, index: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Those of ``index``."""
        assert self._table is not None  # noqa: S101
        return self._table, _given(index)

    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Put the call's v in place of what was seen of these data points before."""
        index = _given(index)
        if self._all is not None:
            with torch.no_grad():
                self._add(index, *counts(v.detach(), residual, sound))
        elif torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                self._put(index.clone(), *counts(v.detach().clone(), residual, sound))
        elif self._seen or self._last is not None or residual.ragged or sound is not True or len(index) > FEW:
            with torch.no_grad():
                self._put(index, *counts(v.detach(), residual, sound))
        else:  # perhaps the step comes next, and a few rows need no tables
            self._last = (index.clone(), v.detach().clone())

    def _put(self, index: Tensor, v: Tensor, there: Tensor | None) -> None:
        """Into the tables, and note of which data points."""
        self._settle()
        total = self._add(index, v, there)
        self._seen.append(index.clone())  # the caller's may be a buffer
        self._many += len(index)
        if self._many > 2 * len(total):  # many calls and no step: the counts tell which rows, when it comes
            self._seen = [torch.arange(self._rows, device=total.device)]
            self._many = self._rows

    def _add(self, index: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
        """Into the tables; what was there of the same data points is taken out first."""
        total, count = self._room(ragged=there is not None)
        total.index_fill_(0, index, 0.0).index_add_(0, index, v.to(total.dtype))
        if there is None:
            there = count.new_ones((len(index), *count.shape[1:]))
        count.index_fill_(0, index, 0.0).index_add_(0, index, there.to(count.dtype))
        return total

    def follow(self) -> list[Tensor] | None:
        """The sums and counts of a declared table, one an entry: rows may be ragged from call to call."""
        if self._samples is None or self._table is None:
            return None
        self._settle()
        total, count = self._room(ragged=True)
        self._all = torch.arange(self._rows, device=total.device)
        return [total, count]

    def leave(self) -> None:
        """Rows are noted by each call again."""
        self._all = None

    def saw(self) -> None:
        """Any row: the counts tell which, when a step comes."""
        assert self._all is not None  # noqa: S101 - see follow
        self._seen, self._many = [self._all], self._rows

    def _room(self, ragged: bool) -> tuple[Tensor, Tensor]:
        """Zeros to add up in, as long as the table."""
        table = self._table
        assert table is not None  # noqa: S101
        shape = self.kind.residual_shape(table.shape)
        if self._sum is None or self._count is None:
            self._sum = table.new_zeros(shape)
            self._count = table.new_zeros(shape if ragged else (len(table), *[1] * (len(shape) - 1)))
        self._sum, self._count = lengthened(self._sum, len(table)), lengthened(self._count, len(table))
        if ragged and self._count.shape != self._sum.shape:
            self._count = self._count.expand(self._sum.shape).clone()
        return self._sum, self._count

    @property
    def seen(self) -> bool:
        """Whether there was a call."""
        return self._last is not None or bool(self._seen) or self._news is not None

    def step(self, climb: Climb) -> Tensor:
        """The rows that were seen move."""
        table = self._table
        assert table is not None  # noqa: S101
        if self._news is not None:
            return self._step_together(table, self._news, climb)
        self._print = None  # between ranks alone it is kept up to date
        if self._last is not None:
            rows, mean = self._last
            if _distinct(rows):
                self._last = None
                mean = mean if mean.dtype == table.dtype else mean.to(table.dtype)
                return self._move(table, rows, table.index_select(0, rows), mean, None, climb)
            self._settle()
        total, count = self._sum, self._count
        assert total is not None and count is not None  # noqa: S101, PT018
        rows = self._seen[0] if len(self._seen) == 1 else torch.cat(self._seen)
        if len(rows) >= self._rows:  # as many as there are: without looking each of them up
            rows = torch.arange(self._rows, device=table.device)
            there, before = count[: self._rows], self.value.clone()
            mean = total[: self._rows] / there.clamp(min=1.0)
        else:  # a row that stands here twice is computed twice, to the same result
            there, before = count.index_select(0, rows), table.index_select(0, rows)
            mean = total.index_select(0, rows) / there.clamp(min=1.0)
        seen = self.kind.where_seen(there.expand_as(mean))
        self._move(table, rows, before, mean, seen, climb, there)
        self.forget()
        return mean

    def _step_together(self, table: Tensor, news: Rows, climb: Climb) -> Tensor:
        """The rows that any rank saw move, each once."""
        before = table.index_select(0, news.which)
        mean = news.sums / news.counts.clamp(min=1.0)
        seen = self.kind.where_seen(news.counts.expand_as(mean))
        printed = self._known_print()
        if printed is not None:
            printed = printed - fingerprint(before, self.initial, news.which)
        self._move(table, news.which, before, mean, seen, climb, news.counts)
        if printed is not None:
            after = table.index_select(0, news.which)
            self._remember_print(printed + fingerprint(after, self.initial, news.which))
        self._news = None
        return mean

    def _move(
        self,
        table: Tensor,
        rows: Tensor,
        before: Tensor,
        mean: Tensor,
        seen: Tensor | None,
        climb: Climb,
        count: Tensor | None = None,
    ) -> Tensor:
        """Write λ after the step, and note which have had one; ``before`` is a copy, free to be overwritten."""
        table.index_copy_(0, rows, climb(before, mean, seen, rows, self.kind is INEQUALITY))
        self._meet(rows, count)
        return mean

    def _meet(self, rows: Tensor, count: Tensor | None) -> None:
        """Note which multipliers have had a dual step: whole rows, unless some entries had nothing to see."""
        table = self._table
        assert table is not None  # noqa: S101
        row = self.kind.residual_shape(table.shape)[1:]
        wide = count is not None and count.shape[1:] == row
        if self._met is None:
            self._met = torch.zeros(
                len(table), *(row if wide else [1] * len(row)), dtype=torch.bool, device=table.device
            )
        self._met = lengthened(self._met, len(table))
        if wide and self._met.shape[1:] != row:
            self._met = self._met.expand(len(self._met), *row).clone()
        if count is None:
            self._met.index_fill_(0, rows, True)
        else:
            self._met.index_copy_(0, rows, self._met.index_select(0, rows) | (count > 0))

    def _settle(self) -> None:
        """Put what is held back into the tables."""
        if self._last is not None:
            (index, v), self._last = self._last, None
            self._put(index, v, None)

    def forget(self) -> None:
        """Drop what was seen."""
        self._last = self._news = None
        if self._seen and self._sum is not None and self._count is not None:
            rows = slice(None) if self._many >= len(self._sum) else torch.cat(self._seen)
            self._sum[rows] = self._count[rows] = 0.0
        self._seen, self._many = [], 0

    def used(self) -> tuple[Tensor, Tensor | None]:
        """Those of data points that had a dual step; without padding."""
        if self._met is None:
            return self.value, None
        met = lengthened(self._met, self._rows)[: self._rows]
        met = met.expand(self.kind.residual_shape(self.value.shape))
        return self.value, met[..., 0] if met.ndim > self.value.ndim else met

    # Between ranks: the rows that were seen, or, where most were, whole tables

    def news(self) -> Rows:
        """What was seen since the last step, each row once."""
        table = self._table
        assert table is not None  # noqa: S101
        if self._last is not None and _distinct(self._last[0]):
            rows, v = self._last
            return Rows(rows, v.to(table.dtype), table.new_ones(len(rows), *[1] * (v.ndim - 1)))
        self._settle()
        if not self._seen:
            return no_rows(self.no_residual())
        total, count = self._room(ragged=False)
        rows = torch.cat(self._seen).unique()
        return Rows(rows, total.index_select(0, rows), count.index_select(0, rows))

    def take_news(self, news: Rows) -> None:
        """Replace what was seen by what all ranks saw."""
        self.forget()
        self._news = news

    def no_residual(self) -> Tensor:
        """``[0, *residual]``, of the table's dtype and where it is."""
        assert self._table is not None  # noqa: S101
        return self._table.new_zeros(0, *self.kind.residual_shape(self._table.shape)[1:])

    def fingerprint(self) -> Tensor:
        """Of the whole table, unless only our own steps have changed it since the last time."""
        known = self._known_print()
        if known is None:
            known = fingerprint(self.value, self.initial)
            self._remember_print(known)
        return known

    def _known_print(self) -> Tensor | None:
        if self._print is None or self._table is None or self._print[0] != version(self._table):
            return None
        return self._print[1]

    def _remember_print(self, printed: Tensor | None) -> None:
        changes = None if self._table is None else version(self._table)
        self._print = None if printed is None or changes is None else (changes, printed)

    def sums(self) -> list[Tensor]:
        """Of every row in use."""
        self._settle()
        shape = self.kind.residual_shape(self.value.shape)
        if not self._seen or self._sum is None or self._count is None:
            return [self.value.new_zeros(shape), self.value.new_zeros(shape)]
        total, count = self._room(ragged=False)
        return [total[: self._rows], count[: self._rows].expand(shape)]

    def take_sums(self, sums: list[Tensor]) -> None:
        """Those of all ranks."""
        self._settle()
        total, count = self._room(ragged=True)
        total[: self._rows], count[: self._rows] = sums[0].to(total.dtype), sums[1].to(count.dtype)
        found = (sums[1] > 0).reshape(self._rows, -1).any(dim=1)
        self._seen = [found.nonzero()[:, 0]]
        self._many = len(self._seen[0])

    def size(self) -> list[int]:
        """A row's shape: lengths may differ, and the shorter tables grow."""
        return list(self.value.shape[1:])

    def _trim(self) -> None:
        """What was seen of another table is of no use."""
        self._sum = self._count = self._met = self._last = self._news = self._print = None
        self._seen, self._many = [], 0

    def tensors(self) -> dict[str, Tensor]:
        """λ, and what was seen."""
        if self._table is None:
            return {}
        self._settle()
        found = {"multipliers": self.value}
        if self._met is not None:
            found["met"] = lengthened(self._met, self._rows)[: self._rows]
        if self._seen and self._sum is not None and self._count is not None:
            self._room(ragged=False)
            found |= {"sums": self._sum[: self._rows], "counts": self._count[: self._rows]}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._trim()
        self._table = tensors.get("multipliers")
        self._rows = 0 if self._table is None else len(self._table)
        self._met = tensors.get("met")
        if "sums" in tensors:
            self._sum, self._count = tensors["sums"], tensors["counts"]
            self._seen = [(self._count > 0).reshape(self._rows, -1).any(dim=1).nonzero()[:, 0]]
            self._many = len(self._seen[0])


def version(table: Tensor) -> int | None:
    """How often a tensor was changed in place; None where torch does not count."""
    return None if table.is_inference() else table._version


def _distinct(rows: Tensor) -> bool:
    """Whether no row stands there twice."""
    if rows.is_cpu and len(rows) <= 256:  # so few are counted sooner than sorted
        return len(set(rows.tolist())) == len(rows)
    order = rows.sort().values
    return bool((order[1:] != order[:-1]).all())


def _given(index: Tensor | None) -> Tensor:
    if index is None:  # the method has refused it already
        raise ValueError("index= is missing")
    return index
