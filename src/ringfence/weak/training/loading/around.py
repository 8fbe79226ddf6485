"""The slices before and after a batch of validation: who averages over neighbours needs them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor

from ringfence.weak.tasks.windows import PIXELS, StreamedRows
from ringfence.weak.training.loading.patches import Batch

AROUND: Final = "around"
"""In a batch: the images before its first and after its last, ``[2, C, *space]``."""
AROUND_CASE: Final = "around_case"
"""In a batch: the cases that they are of, ``[2]``."""


class Loader(Protocol):
    """Batches, one after the other."""

    def __len__(self) -> int:
        """How many."""

    def __iter__(self) -> Iterator[Batch]:
        """An epoch's."""


class WithAround:
    """Batches of rows in their order, each with the rows around it; the first and the last stand in for none.

    Args:
        batches: a loader of such batches, with ``index``.
        rows: all of them: ``image`` and ``case``.
    """

    def __init__(self, batches: Loader, rows: Mapping[str, Tensor]) -> None:
        self.batches, self._rows = batches, rows

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        rows, case = self._rows, self._rows["case"]
        for batch in self.batches:
            index = batch["index"]
            ends = torch.stack([index[0] - 1, index[-1] + 1]).clamp(0, len(case) - 1).to(case.device)
            pixels = rows.pixels(ends, PIXELS[:1]) if isinstance(rows, StreamedRows) else {}
            images = pixels["image"] if pixels else rows["image"][ends]
            yield {**batch, AROUND: images.to(index.device), AROUND_CASE: case[ends].to(index.device)}
