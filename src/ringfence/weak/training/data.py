"""A whole data set in memory, on the device that trains: no workers, no copies, the same order on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

Batch = dict[str, Tensor]


class Batches:
    """Rows of tensors, a batch at a time, with their numbers as ``index``.

    A data loader for sets that fit into memory: rows are gathered where they are, by one kernel a tensor, which is
    fastest on the device that trains. The order of an epoch depends on the seed and the epoch's number alone, so a
    resumed run sees what it would have seen.

    Args:
        rows: tensors of equal length by name.
        batch_size: rows a batch; the last one may have fewer.
        seed: shuffles; None keeps the order.
        epoch: asked for the number of the epoch at the beginning of each.
        device: where batches go, if not where the rows are.
    """

    def __init__(
        self,
        rows: Mapping[str, Tensor],
        batch_size: int,
        seed: int | None = None,
        epoch: Callable[[], int] = lambda: 0,
        device: torch.device | None = None,
    ) -> None:
        self.rows = dict(rows)
        self._device = device
        self.batch_size = batch_size
        self._seed, self._epoch = seed, epoch
        self._count = len(next(iter(self.rows.values())))

    def __len__(self) -> int:
        return -(-self._count // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        here = next(iter(self.rows.values())).device
        for index in self._order().to(here).split(self.batch_size):
            batch = {name: tensor[index] for name, tensor in self.rows.items()} | {"index": index}
            yield {name: tensor.to(self._device or here) for name, tensor in batch.items()}

    def _order(self) -> Tensor:
        if self._seed is None:
            return torch.arange(self._count)
        # on the CPU: the same numbers whatever trains
        shuffler = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch())
        return torch.randperm(self._count, generator=shuffler)
