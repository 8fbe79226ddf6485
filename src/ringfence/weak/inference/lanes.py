"""A network on the processor's cores: images go side by side, each on a core of its own."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue

import torch
from torch import Tensor, nn

from ringfence.weak.inference.folding import folded
from ringfence.weak.training.flip_averaging import flip_mean, flips_along


class Lanes:
    """p̄(x), as ``flip_averaged`` has it, of images ``[B, C, *space]`` one by one, on several cores.

    A core that works on an image alone keeps it in its cache and waits for nobody; and what it answers is the same
    to the last bit however many cores there are, and whichever images come with it.

    Args:
        network: from images to logits; a copy works, with batch normalisations folded and channels last.
        count: how many cores.
    """

    def __init__(self, network: nn.Module, count: int) -> None:
        self.count = max(1, count)
        first = _channels_last(folded(network))
        tensors = {id(one): one for one in chain(first.parameters(), first.buffers())}
        # a network may keep something while it works: its weights alone are shared
        self.networks = [first, *(copy.deepcopy(first, dict(tensors)) for _ in range(1, self.count))]
        self._process: int | None = None

    def __call__(
        self, images: Tensor, axes: Sequence[int], seen: Callable[[Sequence[Tensor]], None] = lambda answers: None
    ) -> Tensor:
        """Probabilities ``[B, 1 + K, *space]``.

        Args:
            images: ``[B, C, *space]``.
            axes: to flip along.
            seen: is shown each image's answers about all flips, before they are averaged.
        """
        if self._process != os.getpid():  # a fork has no threads
            self._process, self._threads = os.getpid(), _threads(self.count)
            self._free: SimpleQueue[nn.Module] = SimpleQueue()
            for one in self.networks:
                self._free.put(one)
        flips = flips_along(axes)
        tasks: list[Future[Tensor]] = []
        try:
            for image in images.split(1):
                tasks += [self._threads.submit(self._answer, image, flip) for flip in flips]
            means = []
            for first in range(0, len(tasks), len(flips)):
                answers = [one.result() for one in tasks[first : first + len(flips)]]
                seen(answers)
                means.append(flip_mean(answers))
            return torch.cat(means)
        finally:
            for task in tasks:
                task.cancel()

    @torch.inference_mode()
    def _answer(self, image: Tensor, flip: tuple[int, ...]) -> Tensor:
        network = self._free.get()
        try:
            answer: Tensor = network(image.flip(flip)).softmax(dim=1).flip(flip)
            return answer
        finally:
            self._free.put(network)


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
        torch.set_num_threads(1)
        together.wait()

    threads = ThreadPoolExecutor(count, "lane", initializer=alone)
    for _ in range(count):
        threads.submit(lambda: None)
    together.wait()
    torch.set_num_threads(before)  # which new threads begin with, too
    return threads
