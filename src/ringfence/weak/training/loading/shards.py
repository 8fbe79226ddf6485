"""Which samples come when: an order that depends on seed and epoch alone, in batches that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


def share(batch_numbers: Tensor, rank: int, ranks: int) -> Tensor:
    """A rank's part of a batch: contiguous, of sizes that differ by one at most; it may be empty."""
    return batch_numbers.tensor_split(ranks)[rank]


@dataclass(frozen=True)
class Share:
    """A rank's part of one batch.

    Attributes:
        part: where it is in the epoch's order.
        rows: of the whole batch.
        ghost: nothing is left for this rank, and the batch's first sample stands in for it.
    """

    part: slice
    rows: int
    ghost: bool


@dataclass(frozen=True)
class Order:
    """Samples in batches: all of them once an epoch.

    Attributes:
        count: how many there are.
        batch_size: rows of a batch, of all ranks together; the last one may have fewer.
        seed: shuffles; None keeps the order.
        epoch: asked for the number of the epoch at the beginning of each.
        rank: of this process.
        ranks: how many share each batch.
        accumulate: parts that each batch comes in, one after the other, whose gradients are added up.
    """

    count: int
    batch_size: int
    seed: int | None = None
    epoch: Callable[[], int] = lambda: 0
    rank: int = 0
    ranks: int = 1
    accumulate: int = 1

    def __len__(self) -> int:
        return -(-self.count // self.batch_size) * self.accumulate

    def numbers(self) -> Tensor:
        """The epoch's order: int64 ``[count]``."""
        if self.seed is None:
            return torch.arange(self.count)
        # on the CPU: the same numbers whatever trains
        shuffler = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch())
        return torch.randperm(self.count, generator=shuffler)

    def shares(self) -> Iterator[Share]:
        """This rank's part of each batch, or of each part of it."""
        for batch in torch.arange(self.count).split(self.batch_size):
            for part in range(self.accumulate):
                mine = share(share(batch, part, self.accumulate), self.rank, self.ranks)
                some = mine if len(mine) else batch[:1]
                yield Share(slice(int(some[0]), int(some[-1]) + 1), len(batch), ghost=not len(mine))
