"""A training's steps as CUDA graphs: for whole batches, and for the last one of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

import torch
from torch import Tensor, nn

from ringfence.residuals import Residual
from ringfence.weak.training.gpu.graphs import Graphed, rewrapped

SUPERVISED: Final = "cross-entropy"
"""Among the residuals of a recorded step: no constraint can be called so."""


@final
class Recording:
    """What was recorded, and how a batch is replayed. Empty at first: then nothing is.

    Attributes:
        rows: all samples on the GPU, by name, from which batches of numbers alone are gathered; None where batches
            are whole.
    """

    def __init__(self) -> None:
        self.rows: Mapping[str, Tensor] | None = None
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

    def replayed(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Residual]] | None:
        """Cross-entropy (0 where masks are not used) and residuals of a batch; None if none is like it."""
        graphed = next((one for one in self._graphs if one.fits(batch)), None)
        if graphed is None:
            return None
        found = graphed(batch)
        nothing = torch.zeros((), device=next(iter(batch.values())).device)
        return found.pop(SUPERVISED, nothing), rewrapped(found, self._like)
