"""What every task is to the training: samples to learn from, samples to be judged by, and constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import Constraint, Targets, Unit
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.tasks.windows import StreamedRows, count_of

Measure: TypeAlias = Callable[[Region, Targets], dict[str, Residual]]
"""From a region and what is known of its samples to residuals by the constraints' names."""


@dataclass(frozen=True)
class Task:
    """Images, what is known of them, and the constraints that follow.

    Attributes:
        train: samples as tensors by name: ``image`` (uint8 ``[N, channels, *space]``), ``mask`` (bool
            ``[N, classes, *space]``; only full supervision looks at it) and the constraints' targets. Of a set that
            is streamed (``StreamedRows``) images and masks stay on the disk; ``pixels_of`` reads those of some.
        validation: likewise, of other images; ``case`` (int64 ``[N]``, which patient a sample is part of) where
            Dice is of patients, and ``judged`` (bool ``[N, *space]``) where some pixels have no truth.
        channels: names of the images' channels.
        classes: names of the foreground classes.
        space: the size of what the network is given.
        constraints: by name.
        preprocessing: how files became these images.
        labels: the classes' values in masks; 1, 2, ... if empty.
        bounded: every sample has every bound, so that nobody need look for those that are missing.
        names: of the samples to learn from, for messages; none if nobody named them.
        workers: processes that read samples ahead, if they are streamed.
        remarks: what looks odd in the labels but may be right, a line each: said when training begins.
    """

    train: Mapping[str, Tensor]
    validation: Mapping[str, Tensor]
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    space: tuple[int, ...]
    constraints: Mapping[str, Constraint]
    preprocessing: Preprocessing
    labels: tuple[int, ...] = ()
    bounded: bool = False
    names: tuple[str, ...] = ()
    workers: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many samples there are to learn from."""
        return count_of(self.train)

    @property
    def streamed(self) -> bool:
        """Whether images are read from the disk while training."""
        return isinstance(self.train, StreamedRows)

    @property
    def taught(self) -> bool:
        """Whether the masks to learn from are a teacher's, with pixels that it is not sure of."""
        names = self.train.names if isinstance(self.train, StreamedRows) else tuple(self.train)
        return "unsure" in names

    def measure(self, unit: Unit) -> Measure:
        """The residuals of all constraints, measured in ``unit``."""
        residuals = measured(self.constraints, unit)
        if not self.bounded:
            return residuals

        def promised(region: Region, targets: Targets) -> dict[str, Residual]:
            return {name: replace(one, ragged=False) for name, one in residuals(region, targets).items()}

        return promised

    def pictured(self, count: int) -> list[int]:
        """Samples of the validation set to keep pictures of: of each of the first cases the one with most in it."""
        case = self.validation.get("case")
        if case is None:
            return list(range(min(count, count_of(self.validation))))
        case = torch.where(case < 0, -1 - case, case)
        if "box" in self.validation:
            box = self.validation["box"]
            content = (box[..., 1] - box[..., 0]).prod(dim=-1).flatten(1).sum(dim=-1)
        else:
            content = self.validation["mask"].flatten(1).sum(dim=-1)
        return [
            int(torch.where(case == one, content, -1).argmax()) for one in case.unique(sorted=True)[:count].tolist()
        ]


def measured(constraints: Mapping[str, Constraint], unit: Unit = "pixels") -> Measure:
    """From a region and targets to the residuals of these constraints."""

    def residuals(region: Region, targets: Targets) -> dict[str, Residual]:
        found = {name: one.residual(region, targets, unit) for name, one in constraints.items()}
        rows = region.shape[0]
        for name, one in found.items():
            if one.f.shape[:1] != (rows,):
                raise ValueError(
                    f"constraints.{name}: a residual has a row for each image, here {rows}; its shape is "
                    f"{list(one.f.shape)}"
                )
        return found

    return residuals


def tolerances(constraints: Mapping[str, Constraint]) -> dict[str, float]:
    """By how many pixels each constraint may be exceeded and still count as satisfied, where that is not 0."""
    return {name: one.tolerance for name, one in constraints.items() if one.tolerance}
