"""CUDA graphs: a training step, from a batch's numbers to the weights after it, in one launch, not hundreds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ringfence.garbage import not_collected
from ringfence.weak.networks.fast.branches import Branch, gradients_beside
from ringfence.weak.training.gpu.optimiser import InGraph

Losses: TypeAlias = Callable[[Mapping[str, Tensor]], tuple[Tensor, Callable[[], Tensor]]]
"""From a batch to its loss, and to what is left to do of the step: it ends with a tensor of all that is told."""

WARM = 3
"""Steps before the one that is recorded: kernels are compiled, libraries choose, optimisers make their state."""


class Graphed:
    """``losses``, its gradient and, where it is given, the optimiser's step, from a CUDA graph.

    Small batches of a small network leave a GPU waiting for launches most of the time. Recording leaves weights,
    buffers, the optimiser's state and the tensors ``touched`` as they were, and a replay reads them anew; but
    Python's numbers stay as recorded.

    Args:
        network: what is trained: on the GPU, in training mode.
        losses: without anything that reads a tensor's values.
        sample: a batch, of the shapes, dtypes and memory formats to come; what ``losses`` reads of it.
        dtype: what autocast computes in, or None where there is no autocast.
        optimiser: whose step belongs to it, or None: then gradients are left in ``gradients``.
        touched: what ``losses`` writes to, beside the network's buffers.
        before: a graph that is never replayed at the same time, whose memory this one may use.

    Attributes:
        gradients: of the network's weights, in their order, valid until the next replay; None where there are none.
    """

    def __init__(
        self,
        network: nn.Module,
        losses: Losses,
        sample: Mapping[str, Tensor],
        dtype: torch.dtype | None,
        optimiser: InGraph | None = None,
        touched: Sequence[Tensor] = (),
        before: Graphed | None = None,
    ) -> None:
        self._given = {name: tensor.clone() for name, tensor in sample.items()}
        self._network, self._losses, self._optimiser = network, losses, optimiser
        # autocast's cache would keep casts of the weights from outside of the graph
        self._cast = partial(torch.autocast, "cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False)
        kept = [*network.parameters(), *network.buffers(), *touched]
        saved = [tensor.detach().clone() for tensor in kept]
        self._graph, branch, self._aside = torch.cuda.CUDAGraph(), Branch(), Branch()
        self._branch: Branch | None = branch
        side = torch.cuda.Stream()
        # an event of a training before, let go of here, would break the graph
        with not_collected(), nullcontext() if optimiser is None else optimiser.recorded():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    self._step()
            torch.cuda.current_stream().wait_stream(side)
            self._branch = None if branch.read_early else branch
            with torch.cuda.graph(self._graph, pool=None if before is None else before._graph.pool()):
                self._told = self._step()
        self.gradients = [weight.grad for weight in network.parameters()]
        for weight in network.parameters():
            weight.grad = None
        with torch.no_grad():
            for tensor, value in zip(kept, saved, strict=True):
                tensor.copy_(value)

    def _step(self) -> Tensor:
        for weight in self._network.parameters():
            weight.grad = None
        with self._cast():
            loss, rest = self._losses(self._given)
            with self._aside():  # it holds all that it reads until this step ends
                told = rest()
        with gradients_beside(self._network, self._branch):
            loss.backward()
        self._aside.join()
        if self._optimiser is not None:
            self._optimiser.step()
        return told.detach()

    def fits(self, batch: Mapping[str, Tensor]) -> bool:
        """Whether a batch is like the sample, and the optimiser as it was: the last of an epoch may be smaller."""
        if self._optimiser is not None and not self._optimiser.as_recorded():
            return False
        shapes = [batch[name].shape for name in self._given if name in batch]
        return shapes == [tensor.shape for tensor in self._given.values()]

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Take the step; what ``losses`` told of it, as a tensor of one's own."""
        for name, tensor in self._given.items():
            tensor.copy_(batch[name], non_blocking=True)
        self._graph.replay()
        return self._told.clone()
