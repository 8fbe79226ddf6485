"""How validation looks at images: from several views, and at slices together with their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence.weak.networks.neighbouring_slices import with_neighbours
from ringfence.weak.training.loading.around import AROUND, AROUND_CASE
from ringfence.weak.training.loading.data import Batch
from ringfence.weak.training.views import view_averaged, views_of


class Judging:
    """log p̄, with p̄ the mean over views of an image, and then over a slice and its neighbours.

    Args:
        flips: axes of images; views are the image and its flips along them.
        turns: degrees; and, in the last epochs, those turned by so many.
        neighbours: the share of each neighbouring slice in what is found in a slice; 0: each is found by itself.

    Attributes:
        upright: the views of all epochs.
        every: those of the last ones.
    """

    def __init__(self, flips: Sequence[int], turns: Sequence[float], neighbours: float) -> None:
        self.upright, self.every, self.neighbours = views_of(flips), views_of(flips, turns), neighbours

    @property
    def grows(self) -> bool:
        """Whether the last epochs have more views than those before them."""
        return len(self.every) > len(self.upright)

    def answer(
        self, network: Callable[[Tensor], Tensor], images: Tensor, levels: Tensor | None, last: Callable[[], bool]
    ) -> Tensor:
        """Logits of images; where there are several views, the log of the mean of their probabilities.

        Args:
            network: from images to logits.
            images: floats.
            levels: in these logits; see ``mean_of``.
            last: whether it is one of the last epochs.
        """
        views = self.every if self.grows and last() else self.upright
        return network(images) if len(views) == 1 else _log(view_averaged(network, images, views, levels).float())

    def found(self, answer: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
        """The same of a batch of slices, together with those before and after it (``WithAround``), if it has them.

        Args:
            answer: from images to logits.
            batch: of slices in their order.
        """
        if AROUND not in batch:
            return answer(batch["image"])
        (before, after), (case_before, case_after) = (batch[name].split(1) for name in (AROUND, AROUND_CASE))
        logits = answer(torch.cat([before, batch["image"], after]))
        case = torch.cat([case_before, batch["case"], case_after])
        return _log(with_neighbours(logits.softmax(dim=1), case, self.neighbours))


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()
