"""Samples from the disk as batches: read ahead by other processes, in the order they would have in memory."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ringfence import memory
from ringfence.hints import first_line
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import StreamedRows, WindowReader, count_of
from ringfence.weak.training.loading.loader import Plan
from ringfence.weak.training.loading.patches import Batch, Patches
from ringfence.weak.training.loading.shards import Order

AHEAD: Final = 4
"""Batches that each worker reads ahead."""
SHARED: Final = Path("/dev/shm")  # noqa: S108 - Linux's shared memory, where workers put what they read
Places = list[list[int]]
"""For each sample its case, first slice, row and column."""


class ReadingFailed(OSError):  # noqa: N818 - as one says it
    """Samples that could not be read while training, and why, in a line."""


class StreamedBatches:
    """Rows whose pixels are on the disk, a batch at a time, with the same entries as ``Batches``.

    Workers read images and masks alone; the rest of the samples is in this process, and stays there.

    Args:
        rows: the samples.
        order: which come when.
        workers: processes that read ahead, at most one a core; 0 reads in this one.
        names: what of the pixels is read.
        patches: cut these from volumes; None for whole samples.
        device: where batches go.
    """

    def __init__(
        self,
        rows: StreamedRows,
        order: Order,
        *,
        workers: int = 0,
        names: Sequence[str] | None = None,
        patches: Patches | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.rows, self.order, self._patches = rows, order, patches
        self._device = torch.device("cpu") if device is None else device
        self._targets = {name: tensor.to(self._device) for name, tensor in rows.items()}
        self.names = rows.names if names is None else tuple(names)
        self.workers = min(workers, cores())
        self._wanted = _Wanted(len(order))
        self._loader: DataLoader[Any] | None = None
        self._begun = False

    def __len__(self) -> int:
        return len(self.order)

    @property
    def ahead_bytes(self) -> int:
        """What batches take that are read and not yet trained on."""
        rows = -(-self.order.batch_size // self.order.ranks)
        return (self.workers * AHEAD + 1) * self.rows.reader.windows.bytes_of(rows, self.names)

    def __iter__(self) -> Iterator[Batch]:
        plan = Plan.of(self.order, self.rows, self._patches)
        here = plan.to(self._device)
        self._wanted.places = lambda: self._places(plan)
        found = self._read()
        for share, batch in here.batches(self.order):
            pixels = {
                name: tensor.to(self._device, non_blocking=True) for name, tensor in self._next(found).items()
            }
            targets: Mapping[str, Tensor] = {name: tensor[batch["index"]] for name, tensor in self._targets.items()}
            if self._patches is not None and here.start is not None:
                targets = self._patches.moved(targets, here.start[share.part])
            yield {**pixels, **targets, **batch}

    def close(self) -> None:
        """Let the processes go that read ahead.

        They end at once if nothing else refers to their loader. Left to the garbage collector, which finds it
        in a circle with its sampler, their queues go first, and each is waited for in vain for five seconds.
        """
        self._loader = None

    def _places(self, plan: Plan) -> Iterator[Places]:
        """Of each batch: where its samples are. As it is asked for: a list of all would take more than tensors."""
        for one in self.order.shares():
            places = self.rows.places[plan.index[one.part]]
            if plan.start is not None:
                places = torch.cat([places[:, :1], places[:, 1:] + plan.start[one.part]], dim=1)
            yield places.tolist()

    def _read(self) -> Iterator[Any]:
        if self._loader is None:
            if self.workers:
                _check_shared_memory(self.ahead_bytes, self.workers)
            self._loader = DataLoader(
                _Pixels(self.rows.reader, self.names, share=self.workers > 0),
                batch_sampler=self._wanted,
                collate_fn=_as_it_is,
                num_workers=self.workers,
                multiprocessing_context=_context() if self.workers else None,
                persistent_workers=self.workers > 0,
                prefetch_factor=AHEAD if self.workers else None,
                pin_memory=self._device.type == "cuda",
                generator=torch.Generator(),  # it draws a seed, which must not be one of the training's numbers
            )
        try:
            return iter(self._loader)
        except (RuntimeError, OSError, EOFError) as error:
            raise self._failed(error) from None

    def _next(self, found: Iterator[Any]) -> dict[str, Tensor]:
        try:
            pixels = next(found)
        except (RuntimeError, OSError, EOFError) as error:
            self._loader = None
            raise self._failed(error) from None
        self._begun = True
        if isinstance(pixels, str):
            raise ReadingFailed(pixels)
        samples: dict[str, Tensor] = pixels
        return samples

    def _failed(self, error: Exception) -> ReadingFailed:
        if not self._begun:
            return ReadingFailed(
                f"the processes that read images could not begin ({first_line(error)[:200]}): a script of your own "
                'must train below `if __name__ == "__main__":`, for they import it; or read without them '
                "(data.workers: 0)"
            )
        return ReadingFailed(
            f"a process that reads images has died ({first_line(error)[:200]}): it was killed, perhaps for want of "
            "memory. Every finished epoch is kept: go on with --resume, and if it happens again with fewer "
            f"processes (data.workers, now {self.workers}; 0 reads without any), smaller batches, or more memory"
        )


class _Wanted:
    """What is to be read, batch by batch: what DataLoader calls a batch sampler."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.places: Callable[[], Iterator[Places]] = lambda: iter(())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Places]:
        return self.places()


class _Pixels(Dataset[Any]):
    """The pixels of whole batches; a problem comes as its line, not as a traceback of another process."""

    def __init__(self, reader: WindowReader, names: Sequence[str], *, share: bool) -> None:
        self.reader, self.names, self.share = reader, tuple(names), share

    def __getitems__(self, places: Places) -> dict[str, Tensor] | str:
        try:
            found = self.reader.read(places, self.names)
            if self.share:  # here, where a lack of room can be told; the queue would only print it, and wait
                for tensor in found.values():
                    tensor.share_memory_()
        except (OSError, ValueError) as error:
            return str(error)
        except (MemoryError, RuntimeError) as error:
            return f"a batch cannot be read ({first_line(error)[:200]}): make it smaller, or data.workers fewer"
        return found


def _as_it_is(batch: Any) -> Any:
    return batch


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _context() -> BaseContext:
    """How workers begin: not as copies of a process that has threads, and perhaps a GPU."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # torch is imported once, not by every worker
    return context


def _check_shared_memory(needed: int, workers: int) -> None:
    """Refuse where what is read ahead does not fit: the system would kill the workers."""
    if not SHARED.is_dir():
        return
    free = shutil.disk_usage(SHARED).free
    if needed > free:
        raise ReadingFailed(
            f"{workers} processes that read ahead need {memory.in_words(needed)} of shared memory, and {SHARED} "
            f"has {memory.in_words(free)} left: make it larger (docker run --shm-size), batches smaller, or read "
            "without them (data.workers: 0)"
        )


def memory_words(task: Task, batch_size: int) -> str:
    """How much memory a task's samples take while training, such as "images in memory: 12 MB"."""
    size, streamed = _memory_of(task, batch_size)
    if not streamed:
        return f"images in memory: {memory.in_words(size)}"
    stored = memory.in_words(sum(rows.nbytes for rows in streamed))
    return f"streamed from the disk: {stored} of images, {memory.in_words(size)} in memory"


def check_stream(task: Task, batch_size: int) -> None:
    """Refuse to stream where even the batches under way take more memory than is allowed."""
    size, streamed = _memory_of(task, batch_size)
    if streamed and size > memory.limit():
        raise ValueError(
            f"streaming takes {memory.in_words(size)} of memory (targets, and batches that are read ahead), and "
            f"the limit is {memory.in_words(memory.limit())}: make training.batch_size or data.workers smaller, or "
            f"allow more by {memory.VARIABLE}"
        )


def _memory_of(task: Task, batch_size: int) -> tuple[int, list[StreamedRows]]:
    """Bytes that a task's samples take while training, and those of its rows that are streamed."""
    parts = (task.train, task.validation)
    size = sum(tensor.nbytes for rows in parts for tensor in rows.values())
    streamed = [rows for rows in parts if isinstance(rows, StreamedRows)]
    for rows in streamed:
        size += StreamedBatches(rows, Order(count_of(rows), batch_size), workers=task.workers).ahead_bytes
    return size, streamed
