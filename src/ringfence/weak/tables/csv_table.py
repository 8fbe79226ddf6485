"""CSV with a header: comma, semicolon (Excel, where the comma is a decimal point) or tab between fields."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Final

from ringfence.hints import from_spreadsheet, listed, shown
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import Row, Table

BETWEEN: Final = (",", ";", "\t")
EXCEL: Final = re.compile(r"sep=[,;\t]?", re.IGNORECASE)
"""A first line for Excel alone."""


def csv_table(path: Path, text: str) -> Table:
    """The rows of a CSV file, by the names in its header; empty lines are left out."""
    problems, header = Problems(path), None
    names: list[str] = []
    rows: list[Row] = []
    for line, cells in _lines(path, text):
        if not any(cells):
            continue
        where = f"line {line}"
        if header is None:
            names = [cell.lower() for cell in cells]
            while not names[-1]:  # a comma at the end of every line
                names.pop()
            header = Row(where, dict.fromkeys(names))
            with problems.at(where):
                _check_names(names)
            problems.check()
            continue
        with problems.at(where):
            rows.append(Row(where, _fields(names, cells)))
        if problems.enough:
            break
    problems.check()
    return Table(header, rows)


def _lines(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Each line's number and its cells; a cell in quotes may go over several lines."""
    stream = io.StringIO(text, newline="")
    lines, begins = [], 1
    if EXCEL.fullmatch(text.partition("\n")[0].strip()):
        stream.readline()
        begins = 2
    first = next((line for line in text.splitlines()[begins - 1 :] if line.strip()), "")
    reader, before = csv.reader(stream, delimiter=max(BETWEEN, key=first.count), strict=True), begins
    try:
        for cells in reader:
            lines.append((begins, [cell.strip() for cell in cells]))
            begins = reader.line_num + before
    except csv.Error as error:
        raise ValueError(f"{path}: line {begins}: this is not CSV: {error}") from None
    return lines


def _check_names(names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if name and count > 1)
    if twice:
        raise ValueError(f"the header names {listed(twice)} more than once")


def _fields(names: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) < len(names) or any(cells[len(names) :]):
        raise ValueError(f"{len(cells)} fields, but the header has {len(names)}: {shown(', '.join(cells))}")
    return dict(zip(names, map(from_spreadsheet, cells), strict=False))
