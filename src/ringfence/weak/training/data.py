"""Samples in memory as batches: a DataModule for any Trainer, or a Dataset for a DataLoader of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ringfence.weak.tasks.task import Task

Batch = dict[str, Tensor]
VALIDATION_BATCH: Final = 50
"""Slices at once in validation; volumes are large, and go in batches as in training."""


class Samples(Dataset[Batch]):
    """Samples as a torch Dataset: a dictionary of tensors each, with its number as ``index``.

    Args:
        rows: tensors of equal length by name, such as ``task.train``.
    """

    def __init__(self, rows: Mapping[str, Tensor]) -> None:
        self.rows = dict(rows)

    def __len__(self) -> int:
        return len(self.rows["image"])

    def __getitem__(self, number: int) -> Batch:
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        row = {name: tensor[number] for name, tensor in self.rows.items()}
        return row | {"index": torch.tensor(number % len(self))}


class SegmentationData(pl.LightningDataModule):
    """A task's samples in batches: kept on the device that trains, if half of what is free there holds them.

    Args:
        task: whose samples.
        batch_size: images a step.
        seed: of the order of images, which depends on it and on the epoch's number alone: a resumed run sees what
            it would have seen.
        masks: give the masks of training images, too: for full supervision alone.
    """

    def __init__(self, task: Task, batch_size: int = 8, *, seed: int = 0, masks: bool = False) -> None:
        super().__init__()
        self.task, self.batch_size, self.seed, self.masks = task, batch_size, seed, masks
        self._placed: dict[str, Mapping[str, Tensor]] = {}

    def train_dataloader(self) -> Batches:
        """The training set in a new order each epoch; without its masks, unless they are what it learns from."""
        rows = {name: tensor for name, tensor in self.task.train.items() if self.masks or name != "mask"}
        return Batches(
            self._near("train", rows), self.batch_size, seed=self.seed, epoch=self._epoch, device=self._device
        )

    def val_dataloader(self) -> Batches:
        """The validation set."""
        rows = self.task.validation
        many = VALIDATION_BATCH if rows["image"].ndim == 4 else self.batch_size
        return Batches(self._near("validation", rows), many, device=self._device)

    @property
    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")

    def _epoch(self) -> int:
        return self.trainer.current_epoch if self.trainer is not None else 0

    def _near(self, what: str, rows: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Rows on the device if there is room for them; else where they are."""
        if self._device.type != "cuda":
            return rows
        if what not in self._placed:  # once, for what is placed takes from what is free
            needed = sum(tensor.nbytes for tensor in rows.values())
            fits = needed < torch.cuda.mem_get_info(self._device)[0] // 2
            self._placed[what] = {name: tensor.to(self._device) for name, tensor in rows.items()} if fits else rows
        return self._placed[what]


class Batches:
    """Rows of tensors, a batch at a time, with their numbers as ``index``.

    A data loader for sets that fit into memory: rows are gathered where they are, by one kernel a tensor, which is
    fastest on the device that trains.

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
