"""The loss of a batch that several ranks, or several parts one after the other, have a share of each.

Every rank's loss is such that the mean over ranks (which DDP takes of gradients) and parts (which Lightning takes)
is the loss that one process would have of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from ringfence.methods import Method
from ringfence.residuals import Residual
from ringfence.weak.ranks.world import met
from ringfence.weak.training.loading.shards import share

ROWS: Final = "rows"
"""In a batch: how many rows the whole batch has."""
GHOST: Final = "ghost"
"""In a batch: this rank has no share of it, but a sample to take part with, which counts nothing."""


@dataclass(frozen=True)
class Portion:
    """This rank's share of a part of a batch.

    Attributes:
        rows: how many rows it has; none for a ghost.
        part: how many rows this part of the batch has on all ranks together.
        whole: how many rows the whole batch has.
        ranks: how many ranks there are.
        parts: how many parts.
    """

    rows: int
    part: int
    whole: int
    ranks: int
    parts: int

    @property
    def ghost(self) -> bool:
        """Whether nothing of it counts."""
        return self.rows == 0

    @property
    def of_means(self) -> float:
        """By what a mean over this rank's rows is multiplied."""
        return self.ranks * self.parts * self.rows / self.whole

    @property
    def of_common(self) -> float:
        """By what something is multiplied that all ranks have computed of all their rows together."""
        return self.parts * self.part / self.whole

    def of_fence(self, fence: Method, residuals: Mapping[str, Residual]) -> float | Tensor:
        """By what the fence's loss is multiplied: it is a sum of terms, or divided by rows or by their count."""
        if fence.reduction == "batchmean":
            return self.of_means
        if fence.reduction == "sum" or self == WHOLE:
            return float(self.ranks * self.parts)
        mine = torch.as_tensor(0.0 if self.ghost else fence._divisor(residuals), dtype=torch.float32)
        total = mine.clone()
        if self.ranks > 1:
            dist.all_reduce(total)
        return mine / total.clamp(min=1.0) * (self.ranks * self.of_common)


WHOLE: Final = Portion(1, 1, 1, 1, 1)
"""One process has all of it at once: nothing is multiplied."""


def taken(batch: Mapping[str, Tensor], number: int, parts: int) -> tuple[dict[str, Tensor], Portion]:
    """A batch without what it says of the whole, and that. Where nothing is said, it is taken as a whole.

    Args:
        batch: of this rank.
        number: of the batch in its epoch, which says which part of a whole it is.
        parts: how many of them make a step.
    """
    rest = {name: tensor for name, tensor in batch.items() if name not in (ROWS, GHOST)}
    ranks = dist.get_world_size() if met() else 1
    if ROWS not in batch or ranks * parts == 1:
        return rest, WHOLE
    whole = int(batch[ROWS])
    part = len(share(torch.arange(whole), number % parts, parts))
    rows = 0 if GHOST in batch else len(rest["index"])
    return rest, Portion(rows, part, whole, ranks, parts)


def dice_loss(logits: Tensor, labels: Tensor, counts: bool = True, sure: Tensor | None = None) -> Tensor:
    """1 - 2Σsy / (Σs + Σy), sums over all pixels of all ranks' rows, mean over classes but the background.

    The same on all ranks. Over all pixels: empty slices do not count as zero.

    Args:
        logits: ``[B, 1 + K, *space]``.
        labels: int64 ``[B, *space]``.
        counts: whether these rows do.
        sure: bool ``[B, *space]``, the pixels that count; default: all of them.
    """
    axes = [axis for axis in range(logits.ndim) if axis != 1]
    s = logits.softmax(dim=1)[:, 1:]
    y = F.one_hot(labels, logits.shape[1]).movedim(-1, 1)[:, 1:].to(s.dtype)
    if sure is not None:
        s, y = s * sure.unsqueeze(1), y * sure.unsqueeze(1)
    sums = torch.stack([(s * y).sum(axes), s.sum(axes) + y.sum(axes)]) * float(counts)
    if met():
        sums = _Sum.apply(sums)  # type: ignore[no-untyped-call]
    smallest = 1e-5  # as MONAI's, for classes that are nowhere
    return (1.0 - (2.0 * sums[0] + smallest) / (sums[1] + smallest)).mean()


def scaled(loss: Tensor, factor: float | Tensor) -> Tensor:
    """The product, if there is anything to multiply by."""
    return loss if isinstance(factor, float) and factor == 1.0 else loss * factor


def first_rank(which: bool) -> int | None:
    """The lowest rank of those that say yes; the same answer on all ranks, None if nobody does."""
    if not met():
        return 0 if which else None
    ranks = dist.get_world_size()
    lowest = torch.tensor(dist.get_rank() if which else ranks)
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    return None if int(lowest) == ranks else int(lowest)


class _Sum(torch.autograd.Function):
    """The sum over ranks, of which each computes the same: so all their gradients are alike, and add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Σ x."""
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """As many times the gradient as there are ranks."""
        return gradient * dist.get_world_size()
