"""Box agreement: how well the boxes of what a network finds are those that were drawn. Needs no mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ringfence.segmentation.boxes import covered
from ringfence.weak.constraints.boxes import as_drawn

GROWN: Final = 0.5
"""Of a box's side: how far around a box what is found is still taken for its object."""


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
            rows = agreements(logits, batch)
            self.found.append(torch.tensor(rows, dtype=torch.float64, device=logits.device).view(-1, 2))

    def compute(self) -> dict[str, Tensor]:
        """``box_iou``; nothing where there was no box."""
        if not len(self.found):
            return {}
        rows = dim_zero_cat(self.found)
        means = [rows[rows[:, 0] == one, 1].mean() for one in rows[:, 0].unique()]
        return {"box_iou": torch.stack(means).mean() if means else rows.new_tensor(math.nan)}


def agreements(logits: Tensor, batch: Mapping[str, Tensor]) -> list[tuple[int, float]]:
    """The class of each box of a batch, and its agreement.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: ``box`` (int64 ``[B, K, objects, axes, 2]``) and ``whole``.
    """
    likeliest = logits.argmax(dim=1).cpu().numpy()
    boxes = batch["box"].cpu()
    others = covered(boxes, logits.shape[2:]).numpy()
    there = as_drawn(batch).cpu() & (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    found = []
    for row, label, number in there.nonzero().tolist():
        box = boxes[row, label, number].tolist()
        found.append((label, agreement(likeliest[row] == 1 + label, others[row, label], box)))
    return found


def agreement(mask: NDArray[np.bool_], others: NDArray[np.bool_], box: Sequence[Sequence[int]]) -> float:
    """That of one box.

    Args:
        mask: ``[*space]``, what was found of its class.
        others: which pixels are in any box of the class.
        box: first pixel and one past the last along each axis.
    """
    grown = [
        (max(0, start - math.ceil(GROWN * (stop - start))), stop + math.ceil(GROWN * (stop - start)))
        for start, stop in box
    ]
    if len(box) == 3 and box[0][1] - box[0][0] == 1:  # that of a slice: the next one has its own
        grown[0] = (box[0][0], box[0][1])
    window = tuple(slice(*ends) for ends in grown)
    own = tuple(slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, grown, strict=True))
    here = mask[window] & ~others[window]
    here[own] = mask[window][own]
    both, around, drawn = 1, 1, 1
    for axis, ((start, stop), (first, _)) in enumerate(zip(box, grown, strict=True)):
        places = np.flatnonzero(here.any(axis=tuple(one for one in range(here.ndim) if one != axis)))
        if not len(places):
            return 0.0
        low, high = first + int(places[0]), first + int(places[-1]) + 1
        both *= max(0, min(stop, high) - max(start, low))
        around *= high - low
        drawn *= stop - start
    return both / (around + drawn - both)
