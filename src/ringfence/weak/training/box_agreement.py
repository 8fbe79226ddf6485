"""Box agreement: how well the boxes of what a network finds are those that were drawn. Needs no mask."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ringfence.segmentation.boxes import covered
from ringfence.weak.constraints.boxes import as_drawn
from ringfence.weak.networks.likeliest import likeliest

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
            self.found.append(by_class(logits, batch)[None])

    def compute(self) -> dict[str, Tensor]:
        """``box_iou``; nothing where there was no box."""
        if not len(self.found):
            return {}
        sums, counts = dim_zero_cat(self.found).sum(dim=0).unbind(dim=-1)
        return {"box_iou": (sums / counts).nanmean()}  # 0 / 0: a class without a box


def by_class(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The sum of all agreements of each class in a batch, and of how many boxes: float64 ``[K, 2]``.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: as for ``agreements``.
    """
    boxes, space = batch["box"], logits.shape[2:]
    if logits.device.type == "cpu" or boxes[..., 0, 0].numel() * math.prod(space) > AT_ONCE:
        label, each = agreements(logits, batch).unbind(dim=1)
        found = each.new_zeros(boxes.shape[1], 2)
        return found.index_add_(0, label.long(), torch.stack([each, torch.ones_like(each)], dim=1))
    there, each = all_agreements(logits, batch)
    return torch.stack([each.masked_fill(~there, 0.0).sum(dim=(0, 2)), there.sum(dim=(0, 2)).double()], dim=-1)


def all_agreements(logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Which boxes count, and the agreement of each, be it one of them or not: bool and float64 ``[B, K, objects]``.

    For a GPU: which ones count is not asked, so that nobody waits for the answer.
    """
    boxes, space = batch["box"], logits.shape[2:]
    label = torch.arange(1, 1 + boxes.shape[1], device=logits.device).view(-1, *[1] * len(space))
    masks = (likeliest(logits).unsqueeze(1) == label).unsqueeze(2).expand(*boxes.shape[:3], *space)
    others = None  # one box has none
    if boxes.shape[2] > 1:
        others = covered(boxes, space).unsqueeze(2).expand_as(masks).flatten(0, 2)
    each = agreement(masks.flatten(0, 2), others, boxes.flatten(0, 2))
    return counting(batch), each.view(boxes.shape[:3])


def counting(batch: Mapping[str, Tensor]) -> Tensor:
    """Whether there is a box that is as it was drawn: bool ``[B, K, objects]``."""
    boxes = batch["box"]
    return as_drawn(batch) & (boxes[..., 1] > boxes[..., 0]).all(dim=-1)


def agreements(logits: Tensor, batch: Mapping[str, Tensor], margins: bool = False) -> Tensor:
    """The class of each box of a batch, from 0, and its agreement: float64 ``[boxes, 2]``, where the logits are.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: ``box`` (int64 ``[B, K, objects, axes, 2]``) and ``whole``.
        margins: what ends within a box and its ``margin`` of a side counts as touching it.
    """
    labels, boxes, space = likeliest(logits), batch["box"], logits.shape[2:]
    others = covered(boxes, space) if boxes.shape[2] > 1 else None
    found = [torch.zeros(0, 2, dtype=torch.float64, device=logits.device)]
    for some in counting(batch).nonzero().split(max(1, AT_ONCE // math.prod(space))):
        row, label, number = some.unbind(dim=1)
        mask = labels[row] == (1 + label).view(-1, *[1] * len(space))
        margin = batch["margin"][row] if margins else None
        each = agreement(mask, None if others is None else others[row, label], boxes[row, label, number], margin)
        found.append(torch.stack([label.double(), each], dim=1))
    return torch.cat(found)


def agreement(masks: Tensor, others: Tensor | None, boxes: Tensor, margin: Tensor | None = None) -> Tensor:
    """That of each box: float64 ``[boxes]``.

    Args:
        masks: bool ``[boxes, *space]``, what was found of its class.
        others: bool, which pixels are in any box of the class; None where there is but this one.
        boxes: int64 ``[boxes, axes, 2]``, first pixel and one past the last along each axis.
        margin: int64 ``[boxes, axes]``, by how much a side may be too far out: what ends so close to it within the
            box ends there.
    """
    space, (start, stop) = masks.shape[1:], boxes.unbind(dim=-1)
    around = ((stop - start) * GROWN).ceil().long()
    if len(space) == 3:  # that of a slice: the next one has its own
        around[:, 0] = torch.where(stop[:, 0] - start[:, 0] == 1, 0, around[:, 0])
    here = masks
    for along in _along(start - around, stop + around, space):
        here = here & along
    if others is not None:
        here = here & (_within(start, stop, space) | ~others)
    low, high = [], []
    for axis, length in enumerate(space):
        beside = [one for one in range(1, masks.ndim) if one != 1 + axis]
        places = (here.any(dim=beside) if beside else here).int()
        low.append(places.argmax(dim=1))
        high.append(length - places.flip(1).argmax(dim=1))
    first, last = torch.stack(low, dim=1), torch.stack(high, dim=1)
    if margin is not None:
        first = torch.where((first >= start) & (first <= start + margin), start, first)
        last = torch.where((last <= stop) & (last >= stop - margin), stop, last)
    both = (torch.minimum(stop, last) - torch.maximum(start, first)).clamp(min=0).prod(dim=1)
    united = (last - first).prod(dim=1) + (stop - start).prod(dim=1) - both
    return torch.where(places.any(dim=1), both.double() / united, 0.0)


def _along(start: Tensor, stop: Tensor, space: Sequence[int]) -> Iterator[Tensor]:
    """For each axis, whether a place is within each box ``[boxes, axes]``: bool, as many axes as ``space`` has."""
    for axis, length in enumerate(space):
        place = torch.arange(length, device=start.device)
        along = (place >= start[:, axis, None]) & (place < stop[:, axis, None])
        yield along.view(-1, *[length if one == axis else 1 for one in range(len(space))])


def _within(start: Tensor, stop: Tensor, space: Sequence[int]) -> Tensor:
    """True within each box ``[boxes, axes]``: bool ``[boxes, *space]``."""
    first, *rest = _along(start, stop, space)
    for along in rest:
        first = first & along
    return first
