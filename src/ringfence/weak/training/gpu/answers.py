"""Validation's forward passes as CUDA graphs: a hundred launches each, and most of a short epoch's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor

from ringfence.garbage import not_collected

MOST: Final = 4
"""Shapes of images that are recorded: validation has one, and one of its last batch; volumes may have many."""


@final
class Answers:
    """``answer(images)`` without gradients, replayed for images of shapes that have come before.

    Weights and buffers are read anew at each replay. What is returned is valid until the next call.

    Args:
        answer: from images on a GPU to a tensor, without anything that reads a tensor's values.
        dtype: what autocast computes in, or None where there is no autocast.
    """

    def __init__(self, answer: Callable[[Tensor], Tensor], dtype: torch.dtype | None) -> None:
        self._answer, self._dtype = answer, dtype
        self._graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._kind = False

    def are_of(self, kind: bool) -> None:
        """Forget what was recorded, if ``answer`` is now of another kind than then."""
        if kind != self._kind:
            self._kind, self._graphs = kind, {}

    def __call__(self, images: Tensor) -> Tensor:
        """The answer; the first of its shape is computed plainly, which is the warm-up that recording needs."""
        found = self._graphs.get(images.shape)
        if found is None:
            return self._plain(images) if len(self._graphs) == MOST else self._recorded(images)
        graph, given, told = found
        given.copy_(images)
        graph.replay()
        return told

    def _recorded(self, images: Tensor) -> Tensor:
        given, side = images.clone(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            first = self._plain(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        pool = next((one.pool() for one, _, _ in self._graphs.values()), None)
        with not_collected(), torch.cuda.graph(graph, pool=pool):
            told = self._plain(given)
        self._graphs[images.shape] = graph, given, told
        return first

    def _plain(self, images: Tensor) -> Tensor:
        # autocast's cache would keep casts of the weights from outside of the graph
        with torch.autocast("cuda", dtype=self._dtype, enabled=self._dtype is not None, cache_enabled=False):
            return self._answer(images)
