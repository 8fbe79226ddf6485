"""Scribbles from a file, CSV or JSON: single voxels whose class is known, and where they are in a prepared set."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.documents import parse_json
from ringfence.hints import shown
from ringfence.weak.annotations.annotation import ScribblePoint
from ringfence.weak.annotations.interval import AXES
from ringfence.weak.annotations.parsing import (
    Fields,
    case_of,
    check_present,
    is_left_out,
    label_of,
    number,
    place_name,
    slice_of,
)
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tables.coco import is_coco
from ringfence.weak.tables.csv_table import csv_table
from ringfence.weak.tables.json_table import json_table
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import Table, is_json, table_text

BACKGROUND: Final = "background"
NAMES: Final = ("case", "slice", "class")
PLACES: Final = (("row", "y"), ("column", "x"))
"""What a point's place is called, either way."""


def read_scribbles(path: str | Path, prepared: PreparedSet) -> list[ScribblePoint]:
    """The points of a file, in its order, each once; of what it does not mention, nothing is known.

    Args:
        path: CSV or JSON; docs/annotations.md says what each looks like.
        prepared: the set that the scribbles are for.
    """
    path = Path(path)
    table = _table(path, table_text(path, "points of scribbles"))
    problems = Problems(path)
    if table.header is not None:
        with problems.at(table.header.where):
            _check_names(table.header.fields)
        problems.check()
    points: dict[tuple[str, int, int, int], tuple[ScribblePoint, str]] = {}
    for where, fields in table.rows:
        if is_left_out(fields, prepared):
            continue
        with problems.at(where):
            one = _point(fields, prepared)
            other, there = points.setdefault((one.case, one.slice, one.row, one.column), (one, where))
            if other.label != one.label:
                raise ValueError(
                    f"{place_name(one.case, one.slice)}, row {one.row}, column {one.column} is "
                    f"{class_name(one.label, prepared)} here and {class_name(other.label, prepared)} at {there}: a "
                    "voxel has one class"
                )
        if problems.enough:
            break
    problems.check()
    if not points:
        raise ValueError(f"{path} holds no point at all")
    return [one for one, _ in points.values()]


def place_scribbles(points: Iterable[ScribblePoint], case: Case, size: tuple[int, int]) -> NDArray[np.int32]:
    """The points of a case's slices: ``[slices, points, 3]``, 1 + class, row and column; zeros fill up.

    A point goes to the pixel of the prepared set that its voxel's middle falls into. Points of one class in a pixel
    are one; a pixel into which points of several classes fall is of no class, and left out.

    Args:
        points: of this case; others are left out.
        case: the case.
        size: height and width in the prepared set.
    """
    lists: list[list[tuple[int, ...]]] = [[] for _ in range(case.shape[0])]
    for number_, row, column, label in _placed(points, case, size):
        lists[number_].append((1 + label, row, column))
    return _padded(lists, 3)


def place_volume_scribbles(points: Iterable[ScribblePoint], case: Case, size: tuple[int, int]) -> NDArray[np.int32]:
    """The points of a case as a volume: ``[1, points, 4]``, 1 + class, slice, row, column; as place_scribbles."""
    placed = _placed(points, case, size)
    return _padded([[(1 + label, *place) for *place, label in placed]], 4)


def class_name(label: int, prepared: PreparedSet) -> str:
    """A class's name for a message; that of the background, which has no name of its own, for 0."""
    return prepared.classes[label - 1] if label else BACKGROUND


def _table(path: Path, text: str) -> Table:
    if not is_json(path, text):
        return csv_table(path, text)
    content = parse_json(text, str(path))
    if is_coco(content):
        raise ValueError(f"{path} is a COCO file, which has boxes but no scribbles: CSV or JSON is needed")
    return json_table(path, content, "scribbles")


def _check_names(fields: Iterable[str]) -> None:
    fields = list(fields)
    check_present((*NAMES, *(_spelling(names, fields) for names in PLACES)), fields)


def _spelling(names: tuple[str, str], fields: Iterable[str]) -> str:
    used = [name for name in names if name in fields]
    if len(used) > 1:
        raise ValueError(f"there is both {used[0]} and {used[1]}: leave one out")
    return used[0] if used else names[0]


def _point(fields: Fields, prepared: PreparedSet) -> ScribblePoint:
    _check_names(fields)
    case = case_of(fields, prepared)
    label = 0 if _is_background(fields, prepared) else label_of(fields, prepared)
    place = []
    for axis, names in enumerate(PLACES, start=1):
        name, length = _spelling(names, fields), case.shape[axis]
        found = math.floor(number(fields, name))
        if not 0 <= found < length:
            raise ValueError(
                f"{name} {shown(fields[name])} is not within the {length} {AXES[axis]} of {case.title}, 0 to "
                f"{length - 1}; points are voxels of the source, before it is resized"
            )
        place.append(found)
    return ScribblePoint(case.name, slice_of(fields, case), label, *place)


def _is_background(fields: Fields, prepared: PreparedSet) -> bool:
    name = str(fields["class"]).strip()
    return name not in prepared.classes and name.lower() in (BACKGROUND, "0", "0.0")


def _placed(points: Iterable[ScribblePoint], case: Case, size: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Slice, row, column and class of every pixel that is of one class."""
    classes: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    frame = case.frame(size)
    for one in points:
        if one.case == case.name:
            # the middle of a voxel, in whole numbers
            row, column = (
                first + (2 * place + 1) * after // (2 * before)
                for first, place, before, after in zip(
                    frame.start, (one.row, one.column), frame.native, frame.size, strict=True
                )
            )
            classes[one.slice, row, column].add(one.label)
    return [(*place, min(labels)) for place, labels in sorted(classes.items()) if len(labels) == 1]


def _padded(lists: Sequence[Sequence[tuple[int, ...]]], columns: int) -> NDArray[np.int32]:
    padded = np.zeros((len(lists), max(map(len, lists), default=0) or 1, columns), np.int32)
    for row, some in zip(padded, lists, strict=True):
        if some:
            row[: len(some)] = some
    return padded
