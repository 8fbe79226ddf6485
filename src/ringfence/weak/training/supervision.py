"""What a network learns from labels: cross-entropy and Dice loss, of the pixels that are sure of theirs."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

from ringfence.barrier import computing_dtype
from ringfence.weak.training.together.global_batch import Portion, dice_loss, scaled


def supervised_loss(
    logits: Tensor, batch: Mapping[str, Tensor], share: Portion, dice_weight: float = 0.0
) -> Tensor:
    """Σ over sure pixels of -log s_p^{y_p} / number of pixels, and Dice loss of those pixels, of a rank's share.

    Divided by the number of all pixels, the sure and the unsure: so that images with few of them count as little,
    and ranks need not know of each other's.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: ``mask``, bool ``[B, K, *space]`` and, if some pixels have no label, ``unsure``, ``[B, 1, *space]``.
        share: of the batch.
        dice_weight: of Dice loss beside cross-entropy.
    """
    labels, sure = labels_of(batch["mask"]), None
    if "unsure" in batch:
        sure = ~batch["unsure"].squeeze(1)
        loss = (F.cross_entropy(logits, labels, reduction="none") * sure).mean()
    else:
        loss = F.cross_entropy(logits, labels)
    loss = scaled(loss, share.of_means)
    if dice_weight:
        found = dice_loss(logits.to(computing_dtype(logits.dtype)), labels, counts=not share.ghost, sure=sure)
        loss = loss + scaled(dice_weight * found, share.of_common)
    return loss


def labels_of(masks: Tensor) -> Tensor:
    """The class of each pixel: 0 where no mask is, and of several the first."""
    labels = masks[:, -1] * masks.shape[1]
    for place in range(masks.shape[1] - 2, -1, -1):
        labels = labels.masked_fill(masks[:, place], place + 1)
    return labels
