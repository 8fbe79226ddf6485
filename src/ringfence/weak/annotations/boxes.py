"""Boxes from a file: CSV, JSON or COCO. All are checked against the prepared set that they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringfence.documents import parse_json
from ringfence.hints import listed
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.annotations.coco import coco_boxes
from ringfence.weak.annotations.coordinates import Drawn, are_fractions, guess
from ringfence.weak.annotations.interval import extent
from ringfence.weak.annotations.parsing import (
    Fields,
    case_of,
    check_present,
    is_empty,
    is_left_out,
    label_of,
    number,
    slice_of,
    whole,
)
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tables.coco import is_coco
from ringfence.weak.tables.csv_table import csv_table
from ringfence.weak.tables.json_table import json_table
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import Table, is_json, table_text

SLICES: Final = (("slice_low", "slice_high"), ("z_min", "z_max"))
ROWS: Final = (("row_low", "row_high"), ("y_min", "y_max"))
COLUMNS: Final = (("column_low", "column_high"), ("x_min", "x_max"))


def read_boxes(path: str | Path, prepared: PreparedSet, text: str | None = None) -> list[BoxAnnotation]:
    """The boxes of a file, in its order.

    Each object has a box of its own, so there may be several boxes of a class in a slice. A slice of an annotated
    case without a box of a class says that the class is not there. So every case for training must have a box of
    something, and every class a box somewhere in them.

    Args:
        path: CSV, JSON or COCO, told by what it holds; docs/annotations.md says what each looks like.
        prepared: the set that the boxes are for.
        text: what the file holds, if it has been read.
    """
    path = Path(path)
    text = table_text(path, "boxes") if text is None else text
    problems, drawn, widths = Problems(path), list[Drawn](), False
    if not is_json(path, text):
        found = _rows(csv_table(path, text), prepared, problems, drawn)
    else:
        content = parse_json(text, str(path))
        if is_coco(content):
            found, widths = coco_boxes(path, content, prepared, problems, drawn), True
        else:
            found = _rows(json_table(path, content, "boxes"), prepared, problems, drawn)
    annotations = _consistent(found, prepared, problems)
    if problems.any:
        problems.guess(guess(drawn, prepared, widths=widths))
    problems.check()
    if are_fractions(drawn):
        raise ValueError(
            f"{path}: no box reaches beyond the first voxel: they seem to be fractions of the image; multiply them "
            "by its height and width, boxes are in voxels of the source"
        )
    if not annotations:
        raise ValueError(f"{path} holds no box at all")
    _check_complete(path, annotations, prepared)
    return annotations


def _rows(
    table: Table, prepared: PreparedSet, problems: Problems, drawn: list[Drawn]
) -> Iterator[tuple[str, BoxAnnotation]]:
    if table.header is not None:
        with problems.at(table.header.where):
            _check_names(table.header.fields)
        problems.check()
    for where, fields in table.rows:
        if is_left_out(fields, prepared):
            continue
        with problems.at(where):
            yield where, _annotation(fields, prepared, drawn)
        if problems.enough:
            return


def _check_names(fields: Fields) -> None:
    check_present(("case", "class"), fields)
    _pair(ROWS, fields)
    _pair(COLUMNS, fields)
    if "slice" not in fields:
        _pair(SLICES, fields)


def _pair(spellings: Sequence[tuple[str, str]], fields: Fields) -> tuple[str, str]:
    """Which of the spellings is used; one of them must be, and only one."""
    used = [names for names in spellings if names[0] in fields or names[1] in fields]
    if len(used) > 1:
        raise ValueError(f"there is both {used[0][0]}, {used[0][1]} and {used[1][0]}, {used[1][1]}: leave one out")
    names = used[0] if used else spellings[0]
    check_present(names, fields)
    return names


def _annotation(fields: Fields, prepared: PreparedSet, drawn: list[Drawn]) -> BoxAnnotation:
    _check_names(fields)
    case = case_of(fields, prepared)
    with suppress(ValueError):  # which is told below
        drawn.append(_as_drawn(fields, case))
    label = label_of(fields, prepared)
    numbered = not is_empty(fields.get("slice"))
    ends = []
    for axis, spellings in ((1, ROWS), (2, COLUMNS)):
        names = _pair(spellings, fields)
        ends.append(extent(number(fields, names[0]), number(fields, names[1]), names, axis, case))
    depth = [names for names in SLICES if not all(is_empty(fields.get(name)) for name in names)]
    if numbered and not depth:
        return BoxAnnotation(case.name, slice_of(fields, case), label, *_corners(ends))
    if depth and not numbered:
        names = _pair(SLICES, fields)
        ends.insert(0, extent(whole(fields, names[0]), whole(fields, names[1]), names, 0, case))
        return BoxAnnotation(case.name, None, label, *_corners(ends))
    if not numbered:
        raise ValueError("slice is empty: give its number, from 0, or slice_low and slice_high of a box in 3-D")
    raise ValueError(f"there is both slice and {depth[0][0]}: a box is in one slice, or goes through several")


def _as_drawn(fields: Fields, case: Case) -> Drawn:
    axes = (ROWS, COLUMNS) if not is_empty(fields.get("slice")) else (SLICES, ROWS, COLUMNS)
    pairs = [_pair(spellings, fields) for spellings in axes]
    sides = tuple((number(fields, low), number(fields, high)) for low, high in pairs)
    return Drawn(case, whole(fields, "slice") if len(axes) == 2 else None, sides)


def _corners(ends: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(low for low, _ in ends), tuple(high for _, high in ends)


def _consistent(
    found: Iterable[tuple[str, BoxAnnotation]], prepared: PreparedSet, problems: Problems
) -> list[BoxAnnotation]:
    """Refuse the same box twice, and boxes of one class of a case both in slices and in 3-D."""
    annotations: list[BoxAnnotation] = []
    first: dict[BoxAnnotation, str] = {}
    kind: dict[tuple[str, int], tuple[str, bool]] = {}
    for where, one in found:
        with problems.at(where):
            there = first.setdefault(one, where)
            other, volume = kind.setdefault((one.case, one.label), (where, one.slice is None))
            if there != where:
                raise ValueError(f"this box is there already, at {there}: remove one of the two")
            if volume != (one.slice is None):
                raise ValueError(
                    f"'{prepared.classes[one.label - 1]}' of {one.case} has boxes in slices and in 3-D (the other: "
                    f"{other}): keep one kind"
                )
            annotations.append(one)
        if problems.enough:
            break
    return annotations


def _check_complete(path: Path, annotations: Sequence[BoxAnnotation], prepared: PreparedSet) -> None:
    training = [case.name for case in prepared.of("train")]
    boxed = {one.case for one in annotations}
    if without := [name for name in training if name not in boxed]:
        raise ValueError(
            f"{path}: no box at all for {listed(without)}, of the {len(training)} cases for training: annotate "
            f"{'it' if len(without) == 1 else 'them'}, or prepare the set without"
        )
    labels = {one.label for one in annotations if one.case in training or not training}
    if absent := [name for label, name in enumerate(prepared.classes, start=1) if label not in labels]:
        raise ValueError(
            f"{path}: no case for training has a box of {listed(absent)}: a class without a box counts as absent, "
            "and would be learnt to be nowhere"
        )
