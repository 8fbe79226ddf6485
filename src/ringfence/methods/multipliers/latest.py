"""The latest residuals of each data point, added up: a mean over all of them that every mini-batch knows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ringfence.methods.multipliers.store import lengthened, require_sensible


class Latest:
    """Σ v and how many, over the entries of each data point's row, as they were when it was seen last.

    The totals are kept along, so that a call costs what its rows do; they are added up anew as often as the whole
    table has been replaced, before rounding adds up.

    Args:
        name: the constraint's.
        sides: 2 where v's last dimension is (low, high), else 1.
        samples: how many data points there are, where that is declared; else the tables grow.
    """

    def __init__(self, name: str, sides: int, samples: int | None = None) -> None:
        self._name, self._sides, self._samples = name, sides, samples
        self._sums: Tensor | None = None  # [data points, sides]
        self._counts: Tensor | None = None
        self._totals: Tensor | None = None  # [2, sides]: of sums and counts
        self._replaced = 0  # rows since these were added up

    def others(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Σ v and how many, each ``[sides]``, over everybody but the data points ``index``."""
        tables = self._room(index)
        once = _once(index)
        sums, counts = self._added_up(tables) - torch.stack([_sum_of(one, index, once) for one in tables])
        return torch.where(counts > 0, sums, 0.0), counts  # of nobody, exactly nothing

    def put(self, index: Tensor, v: Tensor, there: Tensor | None) -> None:
        """Remember v ``[rows, ..., sides]`` of the data points ``index``; ``there`` is 1 where it counts."""
        tables = self._room(index)
        totals = self._added_up(tables)
        rows = v.reshape(len(index), v.shape[1:].numel() // self._sides, self._sides)
        number = torch.ones_like(rows) if there is None else there.reshape(rows.shape)
        once = _once(index)
        for total, table, values in zip(totals, tables, (rows, number), strict=True):
            total -= _sum_of(table, index, once)
            table.index_fill_(0, index, 0.0).index_add_(0, index, values.sum(dim=1, dtype=table.dtype))
            total += _sum_of(table, index, once)
        self._replaced += len(index)

    def _added_up(self, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Σ over all rows of both tables, ``[2, sides]``."""
        if self._totals is None or self._replaced > len(tables[0]):
            self._totals, self._replaced = torch.stack([table.sum(dim=0) for table in tables]), 0
        elif self._totals.device != tables[0].device:
            self._totals = self._totals.to(tables[0].device)
        return self._totals

    def _room(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The tables, where ``index`` is, and as long as it asks for."""
        if self._sums is None or self._counts is None:
            empty = torch.zeros(self._samples or 0, self._sides, dtype=torch.float64, device=index.device)
            self._sums, self._counts = empty, empty.clone()
        if self._sums.device != index.device:
            self._sums, self._counts = self._sums.to(index.device), self._counts.to(index.device)
        if self._samples is None and index.numel():
            rows, known = int(index.max()) + 1, len(self._sums)
            if rows > known:
                require_sensible(self._name, rows, self._sides)
                rows = max(rows, 2 * known)  # room is doubled, so that growing one by one costs little
                self._sums, self._counts = lengthened(self._sums, rows), lengthened(self._counts, rows)
        return self._sums, self._counts

    def tensors(self) -> dict[str, Tensor]:
        """For a saved state."""
        if self._sums is None or self._counts is None:
            return {}
        found = {"last/sums": self._sums, "last/counts": self._counts}
        if self._totals is not None:  # as they are, so that a resumed training rounds alike
            found |= {"last/totals": self._totals, "last/replaced": torch.tensor(self._replaced)}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._sums, self._counts = tensors.get("last/sums"), tensors.get("last/counts")
        self._totals = tensors.get("last/totals")
        self._replaced = int(tensors["last/replaced"]) if "last/replaced" in tensors else 0


def _once(index: Tensor) -> Tensor:
    """1 for one of the places of each data point in ``index``, 0 for the others: ``[rows, 1]``; no GPU is asked."""
    ordered, order = index.sort(stable=True)
    first = torch.cat([torch.ones_like(ordered[:1]), (ordered[1:] != ordered[:-1]).long()])
    return torch.zeros_like(index).scatter(0, order, first).double().unsqueeze(1)


def _sum_of(table: Tensor, index: Tensor, once: Tensor) -> Tensor:
    return (table.index_select(0, index) * once).sum(dim=0)
