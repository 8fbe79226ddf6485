"""A training's steps as CUDA graphs: for whole batches, and for the last one of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from ringfence.residuals import Residual
from ringfence.weak.training.gpu.graphs import Graphed, rewrapped

SUPERVISED: Final = "cross-entropy"
"""Among the residuals of a recorded step: no constraint can be called so."""
TERM: Final = "constraints' term"
"""Likewise: what the fence makes of them, where a graph can record that."""


@dataclass(frozen=True)
class Replayed:
    """What a recorded step gave.

    Attributes:
        supervised: cross-entropy; 0 where masks are not used.
        term: what the fence adds to it; None where it has to be called.
        residuals: by name.
    """

    supervised: Tensor
    term: Tensor | None
    residuals: dict[str, Residual]


@final
class Recording:
    """What was recorded, and how a batch is replayed. Empty at first: then nothing is.

    Attributes:
        rows: all samples on the GPU, by name, from which batches of numbers alone are gathered; None where batches
            are whole.
        with_term: whether what is recorded includes the fence's term.
    """

    def __init__(self) -> None:
        self.rows: Mapping[str, Tensor] | None = None
        self.with_term = False
        self._graphs: list[Graphed] = []
        self._like: dict[str, Residual] = {}

    def record(
        self,
        network: nn.Module,
        values: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
        samples: Iterable[Mapping[str, Tensor]],
        like: dict[str, Residual],
        dtype: torch.dtype | None,
    ) -> None:
        """Record ``values`` for batches like each of the samples.

        Args:
            network: what is trained.
            values: from a batch to residuals by name, and ``SUPERVISED`` where masks are used.
            samples: batches of each size to come.
            like: residuals of their kind.
            dtype: what autocast computes in, or None where there is no autocast.
        """
        self._like = like
        self._graphs = [Graphed(network, values, sample, dtype) for sample in samples]

    def gathered(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A batch with all that its samples have."""
        if "image" in batch or self.rows is None:
            return dict(batch)
        return {name: tensor[batch["index"]] for name, tensor in self.rows.items()} | dict(batch)

    def replayed(self, batch: Mapping[str, Tensor]) -> Replayed | None:
        """What a batch's loss is made of; None if no recorded one is like it."""
        graphed = next((one for one in self._graphs if one.fits(batch)), None)
        if graphed is None:
            return None
        found = graphed(batch)
        supervised, term = found.pop(SUPERVISED, None), found.pop(TERM, None)
        if supervised is None:
            supervised = torch.zeros((), device=next(iter(batch.values())).device)
        return Replayed(supervised, term, rewrapped(found, self._like))
