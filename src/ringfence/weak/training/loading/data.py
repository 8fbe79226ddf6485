"""Samples as batches: a DataModule for any Trainer, or a Dataset for a DataLoader of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import PIXELS, StreamedRows, count_of, pixels_of
from ringfence.weak.training.loading.around import WithAround
from ringfence.weak.training.loading.loader import Plan
from ringfence.weak.training.loading.patches import Batch, Patches, most_in_patch
from ringfence.weak.training.loading.shards import Order
from ringfence.weak.training.loading.streaming import StreamedBatches

__all__ = ["VALIDATION_BATCH", "Batch", "Batches", "Samples", "SegmentationData"]

VALIDATION_BATCH: Final = 50
"""Slices at once in validation; volumes are large, and go in batches as in training."""
Part: TypeAlias = Literal["train", "validation"]


class Samples(Dataset[Batch]):
    """Samples as a torch Dataset: a dictionary of tensors each, with its number as ``index``.

    Args:
        rows: tensors of equal length by name, such as ``task.train``; of a streamed set, images are read when they
            are asked for.
    """

    def __init__(self, rows: Mapping[str, Tensor]) -> None:
        if isinstance(rows, StreamedRows) and "volume_size" in rows:
            raise ValueError(
                "of volumes on the disk, patches are read: by SegmentationData(task).train_dataloader()"
            )
        self.rows = rows if isinstance(rows, StreamedRows) else dict(rows)

    def __len__(self) -> int:
        return count_of(self.rows)

    def __getitem__(self, number: int) -> Batch:
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        row = {name: tensor[number] for name, tensor in self.rows.items()}
        if isinstance(self.rows, StreamedRows):
            row |= {name: one[0] for name, one in pixels_of(self.rows, torch.tensor([number])).items()}
        return row | {"index": torch.tensor(number % len(self))}


class SegmentationData(pl.LightningDataModule):
    """A task's samples in batches: kept on the device that trains, if half of what is free there holds them.

    Those of a streamed task are read from the disk, and are the same, in the same order. Batches are dictionaries:
    what the samples have, ``index`` (their numbers), ``rows`` (how many all ranks have) and, of training batches,
    ``key`` (what their random numbers depend on). A rank for which no row of a batch is left gets the first one,
    and ``ghost``, so that it can take part.

    Args:
        task: whose samples.
        batch_size: images a step, of all ranks together.
        seed: of the order of images, which depends on it and on the epoch's number alone: a resumed run sees what
            it would have seen.
        masks: give the masks of training images, too: for full supervision alone.
        around: give batches of validation the slices before and after them, too (``WithAround``).
        rank: of this process, where several share each batch.
        ranks: how many do.
        accumulate: parts that a training batch comes in, one after the other.

    Attributes:
        numbers_only: training batches have ``index``, ``key``, ``rows`` and ``ghost`` alone: for who gathers the
            rest from ``resident``.
    """

    def __init__(
        self,
        task: Task,
        batch_size: int = 8,
        *,
        seed: int = 0,
        masks: bool = False,
        around: bool = False,
        rank: int = 0,
        ranks: int = 1,
        accumulate: int = 1,
    ) -> None:
        super().__init__()
        self.task, self.batch_size, self.seed, self.masks = task, batch_size, seed, masks
        self.rank, self.ranks, self.accumulate = rank, ranks, accumulate
        self.numbers_only, self.around = False, around
        self._placed: dict[str, Mapping[str, Tensor]] = {}
        self._streams: dict[str, StreamedBatches] = {}

    def train_dataloader(self) -> Batches | StreamedBatches:
        """The training set in a new order each epoch; without its masks, unless they are what it learns from."""
        order = self._order("train", self.batch_size, self.seed)
        patches = self._patches if "volume_size" in self.task.train else None
        if isinstance(self.task.train, StreamedRows):
            names = self.task.train.names if self.masks else PIXELS[:1]
            return self._streamed("train", order, names, patches)
        empty: dict[str, Tensor] = {}
        rows = empty if self.numbers_only else self._near("train")
        return Batches(rows, order, patches=patches, device=self._device)

    @cached_property
    def _patches(self) -> Patches:
        boxes = self.task.train.get("box")
        most = None if boxes is None else most_in_patch(boxes, self.task.space[0])
        return Patches(self.task.space, self.task.constraints, most)

    def val_dataloader(self) -> Batches | StreamedBatches | WithAround:
        """The validation set."""
        batches = self._validation()
        if not self.around:
            return batches
        return WithAround(batches, batches.rows)

    def _validation(self) -> Batches | StreamedBatches:
        rows = self.task.validation
        order = self._order("validation", VALIDATION_BATCH if len(self.task.space) == 2 else self.batch_size)
        if isinstance(rows, StreamedRows):
            return self._streamed("validation", order, rows.names)
        return Batches(self._near("validation"), order, device=self._device)

    def teardown(self, stage: str) -> None:
        """Let the processes go that read ahead; Lightning calls it at the end."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def resident(self, what: Part) -> Mapping[str, Tensor] | None:
        """All rows on the device that trains, if they are there; not of volumes, of which patches are cut."""
        rows = getattr(self.task, what)
        if isinstance(rows, StreamedRows) or "volume_size" in rows:
            return None
        placed = self._near(what)
        return placed if all(tensor.device == self._device for tensor in placed.values()) else None

    def _order(self, what: Part, batch_size: int, seed: int | None = None) -> Order:
        count, parts = count_of(getattr(self.task, what)), self.accumulate if what == "train" else 1
        return Order(count, batch_size, seed, self._epoch, self.rank, self.ranks, parts)

    def _streamed(
        self, what: Part, order: Order, names: Sequence[str], patches: Patches | None = None
    ) -> StreamedBatches:
        """One loader for all epochs, whose workers stay."""
        rows = getattr(self.task, what)
        if what not in self._streams:
            self._streams[what] = StreamedBatches(
                rows, order, workers=self.task.workers, names=names, patches=patches, device=self._device
            )
        return self._streams[what]

    @property
    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")

    def _epoch(self) -> int:
        return self.trainer.current_epoch if self.trainer is not None else 0

    def _near(self, what: Part) -> Mapping[str, Tensor]:
        """Rows on the device if there is room for them; else where they are."""
        rows: Mapping[str, Tensor] = getattr(self.task, what)
        if what == "train" and not self.masks:
            rows = {name: tensor for name, tensor in rows.items() if name not in ("mask", "unsure")}
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
        order: which come when; or rows a batch, of which the last may have fewer.
        seed: shuffles, where no order is given; None keeps the order.
        epoch: asked for the number of the epoch at the beginning of each, where no order is given.
        patches: cut these from volumes; None for whole samples.
        device: where batches go, if not where the rows are.
    """

    def __init__(
        self,
        rows: Mapping[str, Tensor],
        order: Order | int,
        seed: int | None = None,
        epoch: Callable[[], int] = lambda: 0,
        *,
        patches: Patches | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.rows = dict(rows)
        self.order = order if isinstance(order, Order) else Order(count_of(rows), order, seed, epoch)
        self._patches, self._device = patches, device

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        there = next((tensor.device for tensor in self.rows.values()), self._device or torch.device("cpu"))
        plan = Plan.of(self.order, self.rows, self._patches).to(there)
        for share, batch in plan.batches(self.order):
            start = None if plan.start is None else plan.start[share.part]
            found = {**self._gathered(batch["index"], start), **batch}
            yield {name: tensor.to(self._device or there) for name, tensor in found.items()}

    def _gathered(self, index: Tensor, start: Tensor | None) -> Mapping[str, Tensor]:
        if self._patches is None or start is None:
            return {name: tensor[index] for name, tensor in self.rows.items()}
        pixels: dict[str, Tensor] = {
            name: self._patches.cut(self.rows[name], index, start) for name in PIXELS if name in self.rows
        }
        targets = {name: tensor[index] for name, tensor in self.rows.items() if name not in pixels}
        return {**pixels, **self._patches.moved(targets, start)}
