"""What validation measures, an entry each: how it is computed, and how tables and progress show it.

An entry that is added to ``MEASURES`` is computed after each epoch, is a column of metrics.csv, and appears in the
comparison's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ringfence.fetching import fetched
from ringfence.weak.networks.likeliest import likeliest
from ringfence.weak.training.box_agreement import BoxAgreement


class Dice(Metric):
    """2|P∩Y| / (|P| + |Y|) of the likeliest class P and the mask Y, mean over cases; two empty masks give 1.

    Samples with the same number under ``case`` are parts of one patient, and those of a negative one have no truth.
    """

    full_state_update = False
    overlaps: list[Tensor]
    cases: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("overlaps", default=[], dist_reduce_fx="cat")
        self.add_state("cases", default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, batch: dict[str, Tensor]) -> None:
        """Count a batch: ``mask`` and, where there are, ``judged`` and ``case``."""
        self.overlaps.append(overlap(logits, batch["mask"], batch.get("judged")))
        if "case" in batch:
            self.cases.append(batch["case"])

    def compute(self) -> dict[str, Tensor]:
        """``dice``, and with several classes ``dice/1``, ``dice/2``, ... as well; on the CPU."""
        # each a list, or one tensor where ranks were put together
        rows = [dim_zero_cat(one) for one in (self.overlaps, self.cases) if len(one)]
        scores = dice(*fetched(*rows))  # on the CPU: how many cases there are decides about shapes
        found = {"dice": scores.nanmean()}
        if scores.shape[1] > 1:
            found |= {f"dice/{number}": one.nanmean() for number, one in enumerate(scores.unbind(dim=1), start=1)}
        return found


@dataclass(frozen=True)
class Measure:
    """A column of the table.

    Attributes:
        name: its column in metrics.csv.
        title: its heading.
        text: how a value is written.
        metric: computes it from logits and batch in validation, as a number or as numbers by name; None where
            something else logs it.
    """

    name: str
    title: str
    text: Callable[[float], str]
    metric: Callable[[], Metric] | None = None


def decimals(value: float) -> str:
    """0.863."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def percent(value: float) -> str:
    """86.3 %."""
    return "–" if math.isnan(value) else f"{100.0 * value:.1f} %"


MEASURES: Final[dict[str, Measure]] = {
    one.name: one
    for one in (
        Measure("dice", "DSC", decimals, Dice),
        Measure("satisfaction", "satisfaction", percent),  # these two: ringfence.Monitor
        Measure("stability", "stability", percent),
        Measure("box_iou", "box IoU", decimals, BoxAgreement),
    )
}
"""By name, in the order of the table. A new one is added here."""


def overlap(logits: Tensor, masks: Tensor, judged: Tensor | None = None) -> Tensor:
    """|P∩Y| and |P| + |Y| of the likeliest class P and the mask Y: float64 ``[B, K, 2]``.

    Args:
        logits: ``[B, 1 + K, *space]``.
        masks: bool ``[B, K, *space]``.
        judged: bool ``[B, *space]``, the pixels that count; default: all of them.
    """
    classes = torch.arange(1, logits.shape[1], device=logits.device)
    predicted = likeliest(logits).unsqueeze(1) == classes.view(1, -1, *[1] * (masks.ndim - 2))
    if judged is not None:
        predicted, masks = predicted & judged.unsqueeze(1), masks & judged.unsqueeze(1)
    both, found, true = (one.flatten(2).sum(dim=-1) for one in (predicted & masks, predicted, masks))
    return torch.stack([both, found + true], dim=-1).double()


def dice(overlaps: Tensor, case: Tensor | None = None) -> Tensor:
    """2|P∩Y| / (|P| + |Y|): ``[cases, K]``, cases in the order of their numbers; two empty masks give 1.

    Args:
        overlaps: of ``overlap``, a row for each image.
        case: int64, the number of the case that each row is part of; default: each is its own. A case whose number
            is negative is left out.
    """
    if case is not None:
        case = case.to(overlaps.device)
        known = case >= 0
        numbers, place = case[known].unique(return_inverse=True)
        rows = overlaps.new_zeros(len(numbers), *overlaps.shape[1:])
        overlaps = rows.index_add_(0, place, overlaps[known])
    both, total = overlaps.unbind(dim=-1)
    return torch.where(total > 0, 2.0 * both / total.clamp(min=1.0), 1.0)
