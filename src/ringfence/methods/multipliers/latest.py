"""The latest residuals of each data point, added up: a mean over all of them that every mini-batch knows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ringfence.methods.multipliers.store import lengthened, require_sensible


class Latest:
    """Σ v and how many, over the entries of each data point's row, as they were when it was seen last.

    Args:
        name: the constraint's.
        sides: 2 where v's last dimension is (low, high), else 1.
        samples: how many data points there are, where that is declared; else the tables grow.
    """

    def __init__(self, name: str, sides: int, samples: int | None = None) -> None:
        self._name, self._sides, self._samples = name, sides, samples
        self._sums: Tensor | None = None  # [data points, sides]
        self._counts: Tensor | None = None

    def others(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Σ v and how many, each ``[sides]``, over everybody but the data points ``index``."""
        sums, counts = self._room(index)
        there = torch.ones(len(sums), 1, dtype=sums.dtype, device=sums.device).index_fill_(0, index, 0.0)
        return (sums * there).sum(dim=0), (counts * there).sum(dim=0)

    def put(self, index: Tensor, v: Tensor, there: Tensor | None) -> None:
        """Remember v ``[rows, ..., sides]`` of the data points ``index``; ``there`` is 1 where it counts."""
        sums, counts = self._room(index)
        rows = v.reshape(len(index), -1, self._sides)
        number = torch.ones_like(rows) if there is None else there.reshape(rows.shape)
        for table, values in ((sums, rows), (counts, number)):
            table.index_fill_(0, index, 0.0).index_add_(0, index, values.sum(dim=1, dtype=table.dtype))

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
        return {"last/sums": self._sums, "last/counts": self._counts}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._sums, self._counts = tensors.get("last/sums"), tensors.get("last/counts")
