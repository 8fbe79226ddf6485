"""A network on the processor's cores: images go side by side, each on a core of its own."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import SimpleQueue

import torch
from torch import Tensor, nn

from ringfence.weak.inference.folding import folded
from ringfence.weak.training.views import View, answer_to, mean_of


class Lanes:
    """p̄(x), as ``view_averaged`` has it, of images ``[B, C, *space]`` one by one, on several cores.

    A core that works on an image alone keeps it in its cache and waits for nobody; and what it answers is the same
    to the last bit however many cores there are, and whichever images come with it.

    Args:
        network: from images to logits; a copy works, with batch normalisations folded and channels last.
        count: how many cores.
        levels: that the network's logits have, as in ``mean_of``.
    """

    def __init__(self, network: nn.Module, count: int, levels: Tensor | None = None) -> None:
        self.count = max(1, count)
        self._mean = partial(mean_of, levels=levels)
        first = _channels_last(folded(network))
        tensors = {id(one): one for one in chain(first.parameters(), first.buffers())}
        # a network may keep something while it works: its weights alone are shared
        self.networks = [first, *(copy.deepcopy(first, dict(tensors)) for _ in range(1, self.count))]
        self._process: int | None = None

    def __call__(
        self, images: Tensor, views: Sequence[View], seen: Callable[[Sequence[Tensor]], None] = lambda answers: None
    ) -> Tensor:
        """Probabilities ``[B, 1 + K, *space]``.

        Args:
            images: ``[B, C, *space]``.
            views: to average over.
            seen: is shown each image's answers to all views, before they are averaged, in a thread of ours.
        """
        with self.begin(images, views, seen) as begun:
            return begun.answer()

    def begin(
        self, images: Tensor, views: Sequence[View], seen: Callable[[Sequence[Tensor]], None] = lambda answers: None
    ) -> Begun:
        """The same, without waiting for it: cores that have nothing left to do go on with what is begun next."""
        if self._process != os.getpid():  # a fork has no threads
            # a thread of ours puts answers together: those that would help the caller's spin (see leave_cores)
            self._process, self._threads, self._collector = os.getpid(), _threads(self.count), _threads(1)
            self._free: SimpleQueue[nn.Module] = SimpleQueue()
            for one in self.networks:
                self._free.put(one)
        tasks = [[self._threads.submit(self._answer, one, view) for view in views] for one in images.split(1)]
        return Begun(self._collector.submit(_collected, tasks, seen, self._mean), tasks)

    @torch.inference_mode()
    def _answer(self, image: Tensor, view: View) -> Tensor:
        network = self._free.get()
        try:
            return answer_to(view, network, image)
        finally:
            self._free.put(network)


def leave_cores() -> None:
    """Leave the cores to lanes that there are already: all else works on one thread, for the rest of this process.

    Threads that help with an operation spin for milliseconds after it, in case there is another: on a core that a
    lane needs. For a process that is our own; a library does not change its host's.
    """
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Begun(AbstractContextManager["Begun"]):
    """Answers that are on their way. Whoever leaves it no longer wants them, and what is not begun will not be."""

    future: Future[Tensor]
    tasks: list[list[Future[Tensor]]]

    def answer(self) -> Tensor:
        """Wait for it."""
        return self.future.result()

    def __exit__(self, *_: object) -> None:
        _cancel(self.tasks)


@torch.inference_mode()
def _collected(
    tasks: list[list[Future[Tensor]]],
    seen: Callable[[Sequence[Tensor]], None],
    mean: Callable[[Sequence[Tensor]], Tensor],
) -> Tensor:
    """The mean over views of each image, one after the other."""
    means = []
    try:
        for number, one in enumerate(tasks):
            answers = [task.result() for task in one]
            tasks[number] = []  # nor are they kept
            seen(answers)
            means.append(mean(answers))
        return torch.cat(means)
    finally:
        _cancel(tasks)


def _cancel(tasks: list[list[Future[Tensor]]]) -> None:
    for task in chain.from_iterable(tasks):
        task.cancel()


def _channels_last(network: nn.Module) -> nn.Module:
    """Convolutions read pixels one after another: twice as fast as maps one after another."""
    axes = {one.weight.ndim for one in network.modules() if isinstance(one, (nn.Conv2d, nn.Conv3d))}
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if len(axes) == 1:
        network.to(memory_format=formats[axes.pop()])  # type: ignore[call-overload]
    return network


def _threads(count: int) -> ThreadPoolExecutor:
    """Threads of which each works alone; those of everybody else stay as they are."""
    before = torch.get_num_threads()
    together = threading.Barrier(count + 1)

    def alone() -> None:
        torch.get_num_threads()  # otherwise torch sets it once more, at this thread's first operation
        torch.set_num_threads(1)
        together.wait()

    threads = ThreadPoolExecutor(count, "lane", initializer=alone)
    for _ in range(count):
        threads.submit(lambda: None)
    together.wait()
    torch.set_num_threads(before)  # which new threads begin with, too
    return threads
