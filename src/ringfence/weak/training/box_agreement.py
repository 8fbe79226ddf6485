"""Box agreement: how well the boxes of what a network finds are those that were drawn. Needs no mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ringfence.segmentation.boxes import covered
from ringfence.weak.constraints.boxes import as_drawn

GROWN: Final = 0.5
"""Of a box's side: how far around a box what is found is still taken for its object."""
AT_ONCE: Final = 2**26
"""Pixels that are looked at together."""


class BoxAgreement(Metric):
    """|A∩B| / |A∪B| of a drawn box A and the smallest box B around what is found there: mean over classes' means.

    Found is where the class is likeliest, within A grown by half of its sides, without the class's other boxes.
    Boxes that are not tight, or are cut, say nothing of it and are left out.
    """

    full_state_update = False
    found: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("found", default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, batch: Mapping[str, Tensor]) -> None:
        """Look at a batch, if it has boxes: ``box`` and ``whole``."""
        if "box" in batch and "whole" in batch:
            self.found.append(agreements(logits, batch))

    def compute(self) -> dict[str, Tensor]:
        """``box_iou``; nothing where there was no box."""
        if not len(self.found):
            return {}
        rows = dim_zero_cat(self.found)
        means = [rows[rows[:, 0] == one, 1].mean() for one in rows[:, 0].unique()]
        return {"box_iou": torch.stack(means).mean() if means else rows.new_tensor(math.nan)}


def agreements(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The class of each box of a batch, from 0, and its agreement: float64 ``[boxes, 2]``, where the logits are.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: ``box`` (int64 ``[B, K, objects, axes, 2]``) and ``whole``.
    """
    likeliest, boxes, space = logits.argmax(dim=1), batch["box"], logits.shape[2:]
    others = covered(boxes, space)
    there = as_drawn(batch) & (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    found = [torch.zeros(0, 2, dtype=torch.float64, device=logits.device)]
    for some in there.nonzero().split(max(1, AT_ONCE // math.prod(space))):
        row, label, number = some.unbind(dim=1)
        mask = likeliest[row] == (1 + label).view(-1, *[1] * len(space))
        each = agreement(mask, others[row, label], boxes[row, label, number])
        found.append(torch.stack([label.double(), each], dim=1))
    return torch.cat(found)


def agreement(masks: Tensor, others: Tensor, boxes: Tensor) -> Tensor:
    """That of each box: float64 ``[boxes]``.

    Args:
        masks: bool ``[boxes, *space]``, what was found of its class.
        others: bool, which pixels are in any box of the class.
        boxes: int64 ``[boxes, axes, 2]``, first pixel and one past the last along each axis.
    """
    space, (start, stop) = masks.shape[1:], boxes.unbind(dim=-1)
    around = ((stop - start) * GROWN).ceil().long()
    if len(space) == 3:  # that of a slice: the next one has its own
        around[:, 0] = torch.where(stop[:, 0] - start[:, 0] == 1, 0, around[:, 0])
    own, window = _within(start, stop, space), _within(start - around, stop + around, space)
    here = masks & window & (own | ~others)
    both = united = drawn = torch.ones(len(boxes), dtype=torch.float64, device=boxes.device)
    for axis, length in enumerate(space):
        beside = [one for one in range(1, masks.ndim) if one != 1 + axis]
        places = (here.any(dim=beside) if beside else here).int()
        low, high = places.argmax(dim=1), length - places.flip(1).argmax(dim=1)
        both = both * (torch.minimum(stop[:, axis], high) - torch.maximum(start[:, axis], low)).clamp(min=0)
        united, drawn = united * (high - low), drawn * (stop[:, axis] - start[:, axis])
    return torch.where(here.flatten(1).any(dim=1), both / (united + drawn - both), 0.0)


def _within(start: Tensor, stop: Tensor, space: Sequence[int]) -> Tensor:
    """True within each box ``[boxes, axes]``: bool ``[boxes, *space]``."""
    found = torch.ones(len(start), *[1] * len(space), dtype=torch.bool, device=start.device)
    for axis, length in enumerate(space):
        place = torch.arange(length, device=start.device)
        along = (place >= start[:, axis, None]) & (place < stop[:, axis, None])
        found = found & along.view(-1, *[length if one == axis else 1 for one in range(len(space))])
    return found
