"""What loaders share: the numbers of each batch's samples, and where patches are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.weak.training import draws
from ringfence.weak.training.loading.patches import Batch, Patches, aims_of
from ringfence.weak.training.loading.shards import Order, Share


@dataclass(frozen=True)
class Plan:
    """An epoch's samples in their order.

    Attributes:
        index: int64 ``[count]``.
        key: int64 ``[count]``, what their random numbers depend on; None where nothing is random.
        start: int64 ``[count, axes]``, where patches of them begin; None where there are none.
    """

    index: Tensor
    key: Tensor | None = None
    start: Tensor | None = None

    @classmethod
    def of(cls, order: Order, targets: Mapping[str, Tensor], patches: Patches | None) -> Plan:
        """This epoch's, on the CPU: the same for whoever trains."""
        index = order.numbers()
        key = None if order.seed is None else draws.keys(order.seed, order.epoch(), index)
        if patches is None or key is None:
            return cls(index, key)
        extent, aims = targets["volume_size"].cpu()[index], aims_of(targets)
        return cls(index, key, patches.starts(key, extent, None if aims is None else aims.cpu()[index]))

    def to(self, device: torch.device) -> Plan:
        """The same, there."""
        return Plan(*(None if one is None else one.to(device) for one in (self.index, self.key, self.start)))  # type: ignore[arg-type]

    def batches(self, order: Order) -> Iterator[tuple[Share, Batch]]:
        """For each batch this rank's share, and ``index``, ``key``, ``rows`` and, of a ghost, ``ghost``."""
        rows: dict[int, Tensor] = {}
        for one in order.shares():
            batch = {"index": self.index[one.part]}
            if self.key is not None:
                batch["key"] = self.key[one.part]
            if one.rows not in rows:
                # filled there: a copy from here would wait for all that a GPU has to do
                rows[one.rows] = torch.full((), one.rows, device=self.index.device)
            batch["rows"] = rows[one.rows]
            if one.ghost:
                batch["ghost"] = torch.ones((), dtype=torch.bool, device=self.index.device)
            yield one, batch
