"""CUDA graphs: from a batch's numbers to its residuals, and back, in two launches instead of hundreds."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ringfence.residuals import Residual

Residuals: TypeAlias = dict[str, Residual]
Measure: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


class Graphed:
    """``measure``, forward and backward, replayed from CUDA graphs for batches like ``sample``.

    Small batches of a small network leave a GPU waiting for launches most of the time. The weights are what they
    were before, and are read anew at each replay; so are buffers. Python numbers are not: they stay as recorded.

    Gradients are in the graph's own memory, and the next replay overwrites them: a loop must set them to None
    (``zero_grad()`` does), not to zero, and cannot add up those of several batches (pytorch issue 181723).

    Args:
        network: what ``measure`` trains: on the GPU, in training mode.
        measure: from a batch to tensors by name, without anything that reads a tensor's values.
        sample: a batch, of the shapes, dtypes and memory formats to come; what ``measure`` reads of it.
        dtype: what autocast computes in, or None where there is no autocast.
    """

    def __init__(
        self, network: nn.Module, measure: Measure, sample: Mapping[str, Tensor], dtype: torch.dtype | None
    ) -> None:
        self._inputs = tuple(sample)
        self._shapes = [tensor.shape for tensor in sample.values()]
        wrapped = _Positional(network, measure, self._inputs)
        before = copy.deepcopy(network.state_dict())  # the warm-up runs would move batch statistics
        # autocast's cache would keep casts of the weights from outside of the graph
        autocast = torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False)
        with _undisturbed(), autocast:
            self._replay: Callable[..., Any] = torch.cuda.make_graphed_callables(wrapped, tuple(sample.values()))
        network.load_state_dict(before)
        self._outputs = wrapped.outputs

    def fits(self, batch: Mapping[str, Tensor]) -> bool:
        """Whether a batch is like the sample: the last one of an epoch may be smaller."""
        return [batch[name].shape for name in self._inputs if name in batch] == self._shapes

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What ``measure`` returns, valid until the next call."""
        results: tuple[Tensor, ...] = self._replay(*(batch[name] for name in self._inputs))
        return dict(zip(self._outputs, results, strict=True))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the garbage collector: an event of a training before, let go of here, would break the graph."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Positional(nn.Module):
    """``measure`` as what CUDA graphs take: a module, with tensors in and out by position."""

    def __init__(self, network: nn.Module, measure: Measure, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self._measure, self._inputs = network, measure, inputs
        self.outputs: tuple[str, ...] = ()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        results = self._measure(dict(zip(self._inputs, tensors, strict=True)))
        self.outputs = tuple(results)
        return tuple(results.values())


def plain(residuals: Residuals) -> dict[str, Tensor]:
    """The plain f of each residual."""
    return {name: residual.f for name, residual in residuals.items()}


def rewrapped(values: Mapping[str, Tensor], like: Residuals) -> Residuals:
    """f as residuals of the kind they were, without checks: the loss tells when one is not finite."""
    return {name: replace(like[name], f=f, checks=()) for name, f in values.items()}
