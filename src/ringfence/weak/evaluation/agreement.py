"""Masks of several models beside each other, without the truth: where they differ, at least one is wrong."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from ringfence.hints import csv_text, listed, one_line, spreadsheet
from ringfence.weak.evaluation.evaluate import compared
from ringfence.weak.evaluation.scores import Score, Scored, Spacing, Unscored, complete
from ringfence.weak.ranks.cases import Crew

COLUMNS = ("case", "label", "agreement", "least", "hd95", "hd95_unit", "fewest_voxels", "most_voxels")


@dataclass(frozen=True)
class Agreed:
    """How far models agree about a label of a case.

    Attributes:
        case: which.
        label: which.
        dice: between two of the models, mean over all pairs; 1 where none of them has the label.
        least: of the two that differ most.
        hd95: the largest of any two; infinite where one of them has nothing.
        unit: of hd95.
        voxels: the fewest and the most that any has.
    """

    case: str
    label: int
    dice: float
    least: float
    hd95: float
    unit: str
    voxels: tuple[int, int]


@dataclass(frozen=True, repr=False)
class Agreement:
    """How far models agree.

    Attributes:
        cases: every case and label, from the one that models differ most about: the one to look at first.
        failed: cases that are not compared, and why.
    """

    cases: tuple[Agreed, ...]
    failed: tuple[Unscored, ...] = ()

    @property
    def dice(self) -> dict[int, float]:
        """The mean of each label."""
        labels = sorted({one.label for one in self.cases})
        return {label: statistics.fmean(one.dice for one in self.cases if one.label == label) for label in labels}

    @property
    def empty(self) -> dict[int, list[str]]:
        """By label, the cases in which no model finds it: their Dice is 1, even if all of them are wrong."""
        cases: dict[int, list[str]] = {}
        for one in self.cases:
            if not one.voxels[1]:
                cases.setdefault(one.label, []).append(one.case)
        return {label: sorted(cases[label]) for label in sorted(cases)}

    @property
    def csv(self) -> str:
        """A line for each case and label, the worst first."""
        rows = [
            (
                spreadsheet(one.case),
                one.label,
                f"{one.dice:.6g}",
                f"{one.least:.6g}",
                "" if math.isnan(one.hd95) else f"{one.hd95:.6g}",
                one.unit,
                *one.voxels,
            )
            for one in self.cases
        ]
        return csv_text(COLUMNS, rows)

    def __str__(self) -> str:
        lines = [f"label {label}: models agree to Dice {mean:.3f}" for label, mean in self.dice.items()]
        lines += [f"  {one_line(one.case)}, label {one.label}: {one.dice:.3f}" for one in self.cases[:10]]
        lines += [f"label {label}: no model finds it in {listed(names)}" for label, names in self.empty.items()]
        return "\n".join([*lines, *(one_line(f"not compared: {one.name}: {one.reason}") for one in self.failed)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("case", "label", "agreement", "least"))
        body = "".join(
            f"<tr><td>{html.escape(one.case)}</td><td>{one.label}</td><td>{one.dice:.3f}</td>"
            f"<td>{one.least:.3f}</td></tr>"
            for one in self.cases
        )
        return f"<table><tr>{head}</tr>{body}</table>"


def agreement_between(
    *masks: str | Path,
    labels: Sequence[int] | None = None,
    spacing: Spacing | None = None,
    each: Callable[[int], None] = lambda total: None,
    crew: Crew | None = None,
) -> Agreement:
    """Compare masks of the same cases by several models, such as of two seeds; nobody needs to know the truth.

    Args:
        *masks: folders of masks (or single masks), two at least; files are matched by name.
        labels: which to compare; default: those in any mask.
        spacing: millimetres along z, y, x, for files whose headers say 1 1 1.
        each: called after every comparison of two masks, with the number of comparisons.
        crew: ``Crew(workers=4)``: processes that do the cases; numbers are the same.
    """
    folders = [Path(one) for one in masks]
    if len(folders) < 2:
        raise ValueError("agreement is between models: give two folders of masks or more")
    if len({one.resolve() for one in folders}) < len(folders):
        raise ValueError("a folder is named twice: a model always agrees with itself")
    crew = crew or Crew()
    crew.check_same(folders=len(folders), labels=labels and list(labels))
    pairs = list(combinations(folders, 2))
    scored: list[list[Scored]] = []
    failed: dict[str, Unscored] = {}
    for one, other in pairs:
        found, unscored = compared(one, other, spacing, lambda total: each(total * len(pairs)), crew, "mask")
        scored.append(found)
        failed |= {case.name: case for case in unscored}
    kept = [[case for case in found if case.name not in failed] for found in scored]
    if labels is None:
        labels = sorted({score.label for found in kept for case in found for score in case.scores})
    if any(kept) and not labels:
        raise ValueError(f"no mask has any label: {' and '.join(map(str, folders))} are all background")
    scores: dict[tuple[str, int], list[Score]] = {}
    for found in kept:
        for score in complete(found, labels)[0]:
            scores.setdefault((score.case, score.label), []).append(score)
    cases = [_agreed(case, label, found) for (case, label), found in scores.items()]
    return Agreement(tuple(sorted(cases, key=lambda one: (one.dice, one.least))), tuple(failed.values()))


def _agreed(case: str, label: int, scores: Sequence[Score]) -> Agreed:
    dice = [score.dice for score in scores]
    counts = [count for score in scores for count in (score.predicted, score.true)]
    far = [score.hd95 for score in scores if not math.isnan(score.hd95)]
    return Agreed(
        case,
        label,
        statistics.fmean(dice),
        min(dice),
        max(far, default=math.nan),
        scores[0].unit,
        (min(counts), max(counts)),
    )
