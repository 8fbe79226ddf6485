"""Training from boxes: slices or patches of a prepared set, and constraints on what is in a box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ringfence.options import inside
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.annotations.parsing import place_name
from ringfence.weak.annotations.tightening import tightened
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.odds import add_yardsticks
from ringfence.weak.constraints.registry import make_constraints
from ringfence.weak.constraints.strips import Strips
from ringfence.weak.prepared.folds import with_fold
from ringfence.weak.prepared.prepared_set import Case, PreparedSet, read_prepared
from ringfence.weak.tasks.file_boxes import file_boxes
from ringfence.weak.tasks.judged import judged_cases
from ringfence.weak.tasks.labels import check_labels, lonely_classes
from ringfence.weak.tasks.residence import streams
from ringfence.weak.tasks.samples import Patch, Reader
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import StreamedRows


def box_task(
    data: BoxDataSettings,
    asked: Mapping[str, Any],
    prepared: PreparedSet | None = None,
    each: Callable[[int], None] = lambda total: None,
) -> Task:
    """Read a prepared set, with what the constraints need of it: into memory if it fits, see ``data.streamed``.

    Without a case for validation, constraints are counted on some of the training images: see ``judged_cases``.

    Args:
        data: which set, and where its boxes come from.
        asked: the constraints: settings by name, see ``make_constraints``.
        prepared: the set, if it has been read already, by ``prepared_of``.
        each: called after every case that was read, and found to be the manifest's, with the number of them.
    """
    prepared = prepared or prepared_of(data)
    cases = prepared.of("train")
    if not cases:
        raise ValueError(f"{prepared.path} has no case for training")
    if data.volumes and data.patch is None:
        raise ValueError(
            "data.volumes true, and no data.patch: volumes are trained on in patches. `ringfence plan PREPARED "
            "--volumes` derives their size, and so does `ringfence train` without a preset or a plan's file; or "
            "give data.patch SLICES ROWS COLUMNS"
        )
    patch = checked_patch(data.patch, prepared)
    streamed = streams(prepared, data.streamed, patch)
    facts = TaskFacts(prepared.classes, 2 if patch is None else 3, prepared)
    constraints = {}
    for name, one in make_constraints(asked).items():
        with inside(f"constraints.{name}: "):
            constraints[name] = one.ready(facts)
    drawn = file_boxes(data, prepared)
    boxes, between = (drawn.boxes, drawn.between) if drawn else (None, [])
    odd = check_labels(boxes, constraints.values(), prepared, tight=data.margin == 0, tighten=data.tighten)
    boxes = None if boxes is None else tightened(boxes, data.tighten)
    judges = judged_cases(prepared)
    total = len(cases) + len(judges)
    reader = Reader(prepared, constraints, boxes, data.margin, data.smallest_part, lambda: each(total), streamed)
    if patch is None:
        train, validation = reader.slices(cases), reader.slices(judges)
    else:
        train, validation = reader.volumes(cases, patch), reader.tiles(judges, patch)
    known = validation.targets if isinstance(validation, StreamedRows) else validation
    add_yardsticks(train.targets if isinstance(train, StreamedRows) else train, known, constraints.values())
    if not prepared.of("validation"):  # Dice on images trained on would be no Dice
        known["case"] = torch.where(known["case"] < 0, known["case"], -1 - known["case"])
    strips = any(isinstance(one, Strips) for one in constraints.values())
    _check_boxes(train, data.margin, drawn.file if drawn else prepared.path, prepared.classes, strips=strips)
    return Task(
        train,
        validation,
        prepared.channels,
        prepared.classes,
        patch or prepared.size,
        constraints,
        prepared.preprocessing,
        prepared.labels,
        names=sample_names(cases, volumes=patch is not None),
        workers=data.workers,
        remarks=(*_remarks(between, cases, data.gap), *lonely_classes(train, cases, prepared.classes), *odd),
    )


def prepared_of(data: BoxDataSettings) -> PreparedSet:
    """The prepared set, and of its cases those that are asked for: all, or a fold of those for training."""
    if not data.prepared:
        raise ValueError("data.prepared: which prepared set? Name the folder that `ringfence prepare` wrote")
    prepared = read_prepared(data.prepared)
    return prepared if data.folds is None else with_fold(prepared, data.fold, data.folds)


def sample_names(cases: Sequence[Case], *, volumes: bool) -> tuple[str, ...]:
    """What the samples of cases are called: each slice is one, or each volume."""
    if volumes:
        return tuple(case.title for case in cases)
    return tuple(place_name(case.title, number) for case in cases for number in range(case.shape[0]))


def checked_patch(patch: list[int] | None, prepared: PreparedSet) -> Patch | None:
    """Slices, rows and columns of a patch; a volume is filled up to it, but not without end."""
    if patch is None:
        return None
    largest = (max(case.shape[0] for case in prepared.cases), *prepared.size)
    most = [2 * max(length, 16) for length in largest]
    if any(one > limit for one, limit in zip(patch, most, strict=True)):
        raise ValueError(
            f"data.patch is slices, rows and columns of a patch, at most {most} for volumes of up to "
            f"{list(largest)}; got {patch}"
        )
    return patch[0], patch[1], patch[2]


def _check_boxes(
    train: Mapping[str, Tensor], margin: int, source: Path, classes: Sequence[str], *, strips: bool
) -> None:
    """Refuse a set in which a class has no box at all, or in which no strip is left."""
    sides = train["box"][..., 1] - train["box"][..., 0]
    there = (sides > 0).all(dim=-1)
    boxed = there.any(dim=2).any(dim=0)
    absent = [name for name, there in zip(classes, boxed.tolist(), strict=True) if not there]
    if absent:
        raise ValueError(f"{source}: no training image has a box of {', '.join(absent)}: nothing to learn from")
    if strips and not bool((there[..., None] & train["whole"]).any()):
        raise ValueError(
            f"{source}: its boxes are in 3-D, and need not touch the object in "
            "every slice: there is no strip that must meet it. Train on volumes, as plans do by themselves (or "
            "give data.patch SLICES ROWS COLUMNS), or give boxes in slices"
        )
    if strips and not bool(((sides - 2 * train["margin"][:, None, None] > 0) & train["whole"]).any()):
        raise ValueError(f"data.margin {margin} leaves no strip across any box: make it smaller")


def _remarks(between: Sequence[BoxAnnotation], cases: Sequence[Case], gap: int) -> tuple[str, ...]:
    """How many boxes of the training cases nobody drew."""
    names = {case.name for case in cases}
    slices = {(one.case, one.slice, one.label) for one in between if one.case in names}
    if not slices:
        return ()
    many = len(slices) > 1
    return (
        f"{len(slices)} slice{'s' * many} between two boxes of an object {'have' if many else 'has'} none: it is "
        f"taken to be there, within the two (data.gap {gap}; 0: it is not there).",
    )
