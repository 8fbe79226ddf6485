"""One row of multipliers for each data point, spread over the ranks: each keeps its share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.methods.multipliers.exchange import Rows, merged, no_rows, swapped
from ringfence.methods.multipliers.indexed import Indexed
from ringfence.methods.multipliers.kinds import Kind
from ringfence.methods.multipliers.store import Climb, Multipliers, counts
from ringfence.residuals import Residual

SPARE: Final = 2**14
"""Rows that may wait before those that later calls have replaced are dropped."""


class Routes(NamedTuple):
    """Who has which of some data points: i is on rank i mod ranks, in its row i div ranks.

    Attributes:
        order: from their order by rank to that of the call.
        number: how many each rank has.
        rows: which of its rows, by rank.
    """

    order: Tensor
    number: list[int]
    rows: Tensor


def routes(index: Tensor, ranks: int) -> Routes:
    """Where to find ``index`` int64 ``[rows]``."""
    owner = index % ranks
    order = owner.argsort(stable=True)
    number: list[int] = torch.bincount(owner, minlength=ranks).tolist()
    return Routes(order, number, index.index_select(0, order).div(ranks, rounding_mode="floor"))


def shard_length(samples: int, rank: int, ranks: int) -> int:
    """How many of ``samples`` data points a rank keeps: equal to within one."""
    return (samples - rank + ranks - 1) // ranks


@final
class Sharded(Multipliers):
    """λ of shape ``[this rank's data points, *row]``: rank r of R keeps those with number i ≡ r modulo R.

    The rows of a call are asked for with ``fetch``, in which all ranks take part, and what was seen goes to its
    owners at a step. A step is then that of ``Indexed``: of each data point the latest call of a rank counts, and
    several ranks with their mean.

    Args:
        name: the constraint's.
        kind: of the constraint.
        pair: whether v's last dimension is (low, high).
        initial: the first value of every λ.
        samples: how many data points there are.
        rank: of this process.
        ranks: how many there are.
    """

    code = Indexed.code  # the same multipliers: a saved state serves both

    def __init__(
        self, name: str, kind: Kind, pair: bool, initial: float, samples: int, rank: int, ranks: int
    ) -> None:
        super().__init__(name, kind, pair, initial)
        self.samples, self.rank, self.ranks = samples, rank, ranks
        self.own = Indexed(name, kind, pair, initial, shard_length(samples, rank, ranks))
        self._calls: list[Rows] = []  # of any rank's data points; those of one call may repeat
        self._many = 0  # rows in there
        self._kept = 0  # rows in there when it was last tidied up
        self._fetched: Tensor | None = None

    def __str__(self) -> str:
        return f"a row of multipliers for each of {self.samples} samples, over {self.ranks} ranks"

    @property
    def ready(self) -> bool:
        """Since the first call."""
        return self.own.ready

    @property
    def value(self) -> Tensor:
        """λ of this rank's data points: r, r + R, r + 2R and so on."""
        return self.own.value

    def put(self, value: Tensor) -> None:
        """Replace this rank's."""
        self.own.put(value)

    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """The first call tells a row's shape."""
        if self.ready and self.own.value.device != like.device:
            self._calls = [Rows(*(one.to(like.device) for one in call)) for call in self._calls]
        self.own.fit(shape, like, None)

    def rows(self, v: Tensor, index: Tensor | None) -> Tensor:
        """Those that were fetched for this call."""
        assert self._fetched is not None  # noqa: S101  (by the method, before it asks)
        return self._fetched if self._fetched.dtype == v.dtype else self._fetched.to(v.dtype)

    def answer(self, rows: Tensor) -> Tensor:
        """λ ``[rows, width]`` for a rank that asks."""
        return self.own.value.index_select(0, rows).reshape(len(rows), self.width)

    def take_answer(self, answer: Tensor) -> None:
        """What was fetched for the rows of this call."""
        rows = answer.to(self.own.value.dtype).reshape(len(answer), *self.own.value.shape[1:])
        self._fetched = rows.contiguous()  # so that sums over it round as those over a table's rows

    @property
    def width(self) -> int:
        """Entries of a row."""
        return self.own.value.shape[1:].numel()

    # What was seen

    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Keep the call's rows, whoever has their λ."""
        assert index is not None  # noqa: S101  (the method has refused it already)
        with torch.inference_mode(False), torch.no_grad():
            seen, there = counts(v.detach().clone(), residual, sound)
            if there is None:
                there = seen.new_ones(len(seen), *[1] * (seen.ndim - 1))
            dtype = self.own.value.dtype
            self._calls.append(Rows(index.clone(), seen.to(dtype), there.to(dtype)))
            self._many += len(index)
            if self._many > 2 * self._kept + SPARE:
                self._tidy()

    def _tidy(self) -> None:
        """Each data point once, as its latest call had it."""
        self._calls = [latest(self._calls)] if self._calls else []
        self._many = self._kept = sum(len(one.which) for one in self._calls)

    def outgoing(self) -> Iterator[Rows]:
        """What was seen, for each rank those that it keeps, numbered as its rows."""
        self._tidy()
        seen = self._calls[0] if self._calls else no_rows(self.own.no_residual())
        way = routes(seen.which, self.ranks)
        parts = (way.rows, *(one.index_select(0, way.order) for one in seen[1:]))
        for pieces in zip(*(one.split(way.number) for one in parts), strict=True):
            yield Rows(*pieces)

    @property
    def seen(self) -> bool:
        """Whether this rank had a call, or was told of somebody's."""
        return bool(self._calls) or self.own.seen

    def step(self, climb: Climb) -> Tensor:
        """This rank's rows that anybody saw move."""
        self._drop()
        return self.own.step(climb)

    def forget(self) -> None:
        """Drop what was seen."""
        self._drop()
        self.own.forget()

    def _drop(self) -> None:
        self._calls, self._many, self._kept, self._fetched = [], 0, 0, None

    def used(self) -> tuple[Tensor, Tensor | None]:
        """Of this rank's, those that had a dual step."""
        return self.own.used()

    # Between ranks

    def fingerprint(self) -> Tensor:
        """Nothing to compare: each row is on one rank."""
        return torch.zeros((), dtype=torch.int64, device=self.value.device)

    def sums(self) -> list[Tensor]:
        """Not for these: rows go to their owners, see ``outgoing``."""
        raise NotImplementedError

    def take_sums(self, sums: list[Tensor]) -> None:
        """Not for these."""
        raise NotImplementedError

    def size(self) -> list[int]:
        """A row's shape."""
        return self.own.size()

    # State: this rank's; ``whole_tables`` and ``own_rows`` lead to and from everybody's

    def tensors(self) -> dict[str, Tensor]:
        """This rank's λ, and what it saw."""
        self._tidy()
        found = self.own.tensors()
        for call in self._calls:
            found |= dict(zip(_CALL, call, strict=True))
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As ``tensors`` gave it, or ``own_rows``, where what was seen is a table."""
        self._drop()
        self.own.restore({name: one for name, one in tensors.items() if name not in (*_CALL, "sums", "counts")})
        if _CALL[0] in tensors:
            self._calls = [Rows(*(tensors[name] for name in _CALL))]
        elif "sums" in tensors:
            sums, number = tensors["sums"], tensors["counts"]
            rows = (number > 0).reshape(len(number), number.shape[1:].numel()).any(dim=1).nonzero()[:, 0]
            self._calls = [Rows(rows * self.ranks + self.rank, sums[rows], number[rows])]
        self._tidy()

    def seen_by_owner(self, group: dist.ProcessGroup | None) -> dict[str, Tensor]:
        """What all ranks saw of this one's data points since the last step, as tables: for a saved state."""
        out = list(self.outgoing())
        index = swapped([one.which for one in out], group)
        sums = swapped([one.sums for one in out], group)
        number = swapped([one.counts.expand_as(one.sums) for one in out], group)
        news = merged([Rows(*one) for one in zip(index, sums, number, strict=True)])
        tables = [one.new_zeros(len(self), *one.shape[1:]).index_copy_(0, news.which, one) for one in news[1:]]
        return dict(zip(("sums", "counts"), tables, strict=True))


_CALL: Final = ("seen/index", "seen/sums", "seen/counts")


def latest(calls: Sequence[Rows]) -> Rows:
    """Each data point of some calls once: what its latest call saw of it, added up."""
    wide = any(one.wide for one in calls)
    index, sums = torch.cat([one.which for one in calls]), torch.cat([one.sums for one in calls])
    number = torch.cat([one.counts.expand(one.sums.shape) if wide else one.counts for one in calls])
    rows, where = torch.unique(index, return_inverse=True)
    call = torch.cat([torch.full_like(one.which, when) for when, one in enumerate(calls)])
    last = torch.zeros_like(rows).scatter_reduce_(0, where, call, "amax")
    now = call == last[where]
    found = [one.new_zeros(len(rows), *one.shape[1:]).index_add_(0, where[now], one[now]) for one in (sums, number)]
    return Rows(rows, *found)
