"""A training's steps as CUDA graphs: for whole batches, and for the last one of an epoch."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from ringfence.methods import Method
from ringfence.residuals import Residual
from ringfence.weak.networks.fast.branches import IN_LINE, Inline
from ringfence.weak.tasks.windows import PIXELS
from ringfence.weak.training.gpu.answers import Answers
from ringfence.weak.training.gpu.graphs import Graphed, Losses
from ringfence.weak.training.gpu.optimiser import InGraph


@dataclass(frozen=True)
class Replayed:
    """What a recorded step gave; its gradients are there, or the weights after it.

    Attributes:
        values: the loss, and cross-entropy with what was added to it (0 where masks are not used).
        residuals: by name; without checks, since the loss tells when one is not finite.
    """

    values: Tensor
    residuals: dict[str, Residual]


@final
class Recording:
    """What was recorded, and how a batch is replayed. Empty at first: then nothing is.

    Attributes:
        rows: all samples on the GPU, by name, from which batches of numbers alone are gathered; None where batches
            are whole.
        steps: whether the optimiser's step is part of what is recorded.
        replaying: whether the last batch was replayed.
        answers: validation's forward passes; None where they are plain.
        beside: where a recorded step makes targets, and measures constraints.
    """

    def __init__(self) -> None:
        self.rows: Mapping[str, Tensor] | None = None
        self.steps = self.replaying = False
        self.answers: Answers | None = None
        self.beside: Inline = IN_LINE
        self._graphs: list[Graphed] = []
        self._like: list[dict[str, Residual]] = []
        self._latest: Graphed | None = None

    def record(
        self,
        network: nn.Module,
        losses: Losses,
        samples: Iterable[Mapping[str, Tensor]],
        like: Sequence[dict[str, Residual]],
        dtype: torch.dtype | None,
        optimiser: InGraph | None,
        touched: Sequence[Tensor] = (),
    ) -> None:
        """Record a step for batches like each of the samples.

        Args:
            network: what is trained.
            losses: from a batch to its loss, and to what ``rest_of`` leaves to do.
            samples: batches of each size to come.
            like: residuals of each of them.
            dtype: what autocast computes in, or None where there is no autocast.
            optimiser: whose step is recorded as well, or None.
            touched: what ``losses`` writes to, beside the network's buffers.
        """
        gc.collect()  # once: it takes a while, and a training before may have left its graphs' memory
        self._like, self.steps = list(like), optimiser is not None
        for sample in samples:
            before = self._graphs[0] if self._graphs else None
            self._graphs.append(Graphed(network, losses, sample, dtype, optimiser, touched, before))

    def gathered(self, batch: Mapping[str, Tensor], beside: Inline = IN_LINE) -> dict[str, Tensor]:
        """A batch with all that its samples have; what are not pixels is gathered ``beside``."""
        if "image" in batch or self.rows is None:
            return dict(batch)
        index, rows = batch["index"], self.rows
        pixels = {name: rows[name][index] for name in rows if name in PIXELS}
        with beside(index):
            targets = {name: rows[name][index] for name in rows if name not in PIXELS}
        return pixels | targets | dict(batch)

    def replayed(self, batch: Mapping[str, Tensor]) -> Replayed | None:
        """Take a batch's step; None if no recorded one is like it."""
        place = next((place for place, one in enumerate(self._graphs) if one.fits(batch)), None)
        self.replaying = place is not None
        if place is None:
            return None
        self._latest = self._graphs[place]
        return _read(self._latest(batch), self._like[place])

    def give_gradients(self, network: nn.Module) -> None:
        """Those of the batch that was replayed, to the network's weights."""
        assert self._latest is not None  # noqa: S101 - asked after a replay
        for weight, gradient in zip(network.parameters(), self._latest.gradients, strict=True):
            weight.grad = gradient


def rest_of(
    fence: Method | None,
    residuals: Mapping[str, Residual],
    index: Tensor | None,
    loss: Tensor,
    supervised: Tensor,
) -> Callable[[], Tensor]:
    """What a step leaves to do that no gradient waits for: the fence notes the residuals, and they are told.

    Both losses and all residuals are told in one tensor: one copy keeps them.
    """

    def rest() -> Tensor:
        if fence is not None:
            fence.note(residuals, index)
        parts = [loss.reshape(1), supervised.reshape(1), *(one.f.reshape(-1) for one in residuals.values())]
        return torch.cat([part.detach().float() for part in parts])

    return rest


def _read(values: Tensor, like: Mapping[str, Residual]) -> Replayed:
    """What ``rest_of`` made one tensor of."""
    sizes = [math.prod(one.f.shape) for one in like.values()]
    both, *rest = values.split([2, *sizes])
    residuals = {
        name: replace(one, f=f.view(one.f.shape), checks=())
        for (name, one), f in zip(like.items(), rest, strict=True)
    }
    return Replayed(both, residuals)
