"""Scores of masks, case by case and in summary: 3D Dice and the 95th percentile of the Hausdorff distance.

Dice is 2|P∩Y| / (|P| + |Y|), and 1 where both are empty. HD95 is in millimetres where a header says what a voxel
measures, else in voxels; infinite where one of the two is empty, and not a number where both are.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.extras import require
from ringfence.hints import csv_text, spreadsheet

COLUMNS: Final = ("case", "label", "dice", "hd95", "hd95_unit", "predicted_voxels", "true_voxels")
Spacing: TypeAlias = tuple[float, float, float]
Unit: TypeAlias = Literal["mm", "voxels"]


@dataclass(frozen=True)
class Score:
    """How good a case's mask of one label is; voxels are how many of it were predicted, and are in the truth."""

    case: str
    label: int
    dice: float
    hd95: float
    unit: Unit
    predicted: int
    true: int


@dataclass(frozen=True)
class Scored:
    """A case's scores, of the labels that it has in either mask, and in which unit its distances are."""

    name: str
    unit: Unit
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Unscored:
    """A case without scores, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """All cases' scores of one label.

    Attributes:
        label: which.
        dice: of every case.
        worst: the case of the least.
        hd95: of every case where both masks have the label, all in one unit.
        unit: that unit; millimetres if any case's are known, and the others are left out.
        lost: cases where only one of the two masks has it.
        other_unit: cases left out.
    """

    label: int
    dice: tuple[float, ...]
    worst: str
    hd95: tuple[float, ...]
    unit: Unit
    lost: int
    other_unit: int


def complete(cases: Sequence[Scored], labels: Sequence[int] | None = None) -> tuple[list[Score], list[int]]:
    """Scores of every case for the same labels, and the labels that are left out.

    Args:
        cases: from ``score_pairs``.
        labels: which; default: those in any truth.
    """
    found = [score for case in cases for score in case.scores]
    if labels is None:
        labels = sorted({score.label for score in found if score.true})
    known = {(score.case, score.label): score for score in found}
    table = [
        known.get((case.name, label), Score(case.name, label, 1.0, math.nan, case.unit, 0, 0))
        for case in cases
        for label in labels
    ]
    return table, sorted({score.label for score in found} - set(labels))


def summarise(scores: Sequence[Score]) -> list[Summary]:
    """A summary for each label."""
    summaries = []
    for label in sorted({score.label for score in scores}):
        ours = [score for score in scores if score.label == label]
        unit: Unit = "mm" if any(score.unit == "mm" for score in ours) else "voxels"
        measured = [score for score in ours if math.isfinite(score.hd95)]
        same = tuple(score.hd95 for score in measured if score.unit == unit)
        summaries.append(
            Summary(
                label,
                tuple(score.dice for score in ours),
                min(ours, key=lambda score: score.dice).case,
                same,
                unit,
                sum(math.isinf(score.hd95) for score in ours),
                len(measured) - len(same),
            )
        )
    return summaries


def scores_csv(scores: Iterable[Score]) -> str:
    """A line for each case and label; HD95 is ``inf`` where one mask is empty, and nothing where both are.

    Names that a spreadsheet would compute get an apostrophe before them (``hints.from_spreadsheet`` takes it away).
    """
    rows = (
        (
            spreadsheet(one.case),
            one.label,
            f"{one.dice:.6g}",
            "" if math.isnan(one.hd95) else f"{one.hd95:.6g}",
            one.unit,
            one.predicted,
            one.true,
        )
        for one in scores
    )
    return csv_text(COLUMNS, rows)


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n - 1) of values; not a number where there are too few."""
    mean = statistics.fmean(values) if values else math.nan
    return mean, statistics.stdev(values) if len(values) > 1 else math.nan


def dice_of(predicted: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """2|P∩Y| / (|P| + |Y|) by MONAI; two empty masks give 1."""
    from monai.metrics.meandice import compute_dice

    return float(compute_dice(_batch(predicted).float(), _batch(truth).float(), ignore_empty=False))


def hd95_of(predicted: NDArray[np.bool_], truth: NDArray[np.bool_], spacing: Spacing) -> float:
    """The larger, of the two ways, of the 95th percentiles of the distance from surface to surface; by MONAI."""
    require("scipy", "HD95", "train")
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance

    empty = int(not predicted.any()) + int(not truth.any())
    if empty:
        return math.inf if empty == 1 else math.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*always_return_as_numpy", category=FutureWarning)  # MONAI's own
        distance = compute_hausdorff_distance(
            _batch(predicted),
            _batch(truth),
            include_background=True,  # the one channel there is
            percentile=95,
            spacing=list(spacing),
        )
    return float(distance)


def _batch(mask: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(mask))[None, None]
