"""Bounds on sizes from a file: CSV or JSON. All are checked against the prepared set that they are for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from ringfence.documents import parse_json
from ringfence.hints import shown
from ringfence.weak.annotations.annotation import SizeAnnotation
from ringfence.weak.annotations.parsing import (
    Fields,
    case_of,
    check_present,
    is_empty,
    is_left_out,
    label_of,
    number,
    place_name,
    slice_of,
)
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tables.coco import is_coco
from ringfence.weak.tables.csv_table import csv_table
from ringfence.weak.tables.json_table import json_table
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import Table, is_json, table_text

NAMES: Final = ("case", "slice", "class", "low", "high")


def read_sizes(path: str | Path, prepared: PreparedSet) -> list[SizeAnnotation]:
    """The bounds of a file, in its order; what it does not mention is not bounded.

    Args:
        path: CSV or JSON; docs/annotations.md says what each looks like.
        prepared: the set that the bounds are for.
    """
    path = Path(path)
    table = _table(path, table_text(path, "bounds on sizes"))
    problems = Problems(path)
    if table.header is not None:
        with problems.at(table.header.where):
            check_present(NAMES, table.header.fields)
        problems.check()
    sizes: list[SizeAnnotation] = []
    first: dict[tuple[str, int | None, int], str] = {}
    for where, fields in table.rows:
        if is_left_out(fields, prepared):
            continue
        with problems.at(where):
            one = _annotation(fields, prepared)
            there = first.setdefault((one.case, one.slice, one.label), where)
            if there != where:
                name, place = prepared.classes[one.label - 1], place_name(one.case, one.slice)
                raise ValueError(f"the size of '{name}' in {place} is at {there} already: remove one of the two")
            sizes.append(one)
        if problems.enough:
            break
    problems.check()
    if not sizes:
        raise ValueError(f"{path} holds no bound at all")
    return sizes


def _table(path: Path, text: str) -> Table:
    if not is_json(path, text):
        return csv_table(path, text)
    content = parse_json(text, str(path))
    if is_coco(content):
        raise ValueError(f"{path} is a COCO file, which has boxes but no sizes: CSV or JSON is needed")
    return json_table(path, content, "sizes")


def _annotation(fields: Fields, prepared: PreparedSet) -> SizeAnnotation:
    check_present(NAMES, fields)
    case = case_of(fields, prepared)
    label = label_of(fields, prepared)
    place = None if is_empty(fields["slice"]) else slice_of(fields, case)
    if is_empty(fields["low"]) and is_empty(fields["high"]):
        raise ValueError("low and high are both empty: give one of them, or remove the line")
    low = -math.inf if is_empty(fields["low"]) else number(fields, "low")
    high = math.inf if is_empty(fields["high"]) else number(fields, "high")
    for name, value in (("low", low), ("high", high)):
        if math.isfinite(value) and value < 0:
            raise ValueError(
                f"{name} is {shown(fields[name])}: a size is not negative (leave it empty for no bound)"
            )
    if low > high:
        raise ValueError(f"low {low:.10g} is above high {high:.10g}; swap them")
    voxels = math.prod(case.shape[1:] if place is not None else case.shape)
    if low > voxels:
        raise ValueError(
            f"low {low:.10g} is more than the {voxels} voxels of {place_name(case.name, place)}; sizes are in "
            "voxels of the source, before it is resized"
        )
    return SizeAnnotation(case.name, place, label, low, high)
