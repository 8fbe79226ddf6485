"""CSV with a header: comma, semicolon (Excel, where the comma is a decimal point) or tab between fields."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ringfence.files import write_text
from ringfence.hints import from_spreadsheet, listed, shown, spreadsheet
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.annotations.problems import Problems
from ringfence.weak.annotations.tables import Row, Table
from ringfence.weak.prepared.prepared_set import PreparedSet

BETWEEN: Final = (",", ";", "\t")
HEADER: Final = ("case", "slice", "class", "row_low", "row_high", "column_low", "column_high")
IN_3D: Final = ("case", "slice", "slice_low", "slice_high", *HEADER[2:])


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


def write_boxes_csv(path: str | Path, boxes: Sequence[BoxAnnotation], prepared: PreparedSet) -> None:
    """Write boxes so that they can be edited and read back; a file that is there already is not touched.

    Names that a spreadsheet would compute get an apostrophe before them, which reading takes away.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists already, perhaps with boxes edited by hand: name another file")
    header = IN_3D if any(box.slice is None for box in boxes) else HEADER
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    quoting = csv.DictWriter(text, header, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for box in boxes:
        names = {"case": spreadsheet(box.case), "class": spreadsheet(prepared.classes[box.label - 1])}
        fields: dict[str, str | int | None] = {**names, "slice": box.slice}
        for axis, low, high in zip(("column", "row", "slice"), reversed(box.low), reversed(box.high), strict=False):
            fields |= {f"{axis}_low": low, f"{axis}_high": high}
        # a bare \r would end the line for whoever reads it
        (quoting if "\r" in "".join(names.values()) else writer).writerow(fields)
    write_text(path, text.getvalue())


def _lines(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Each line's number and its cells; a cell in quotes may go over several lines."""
    first = next(line for line in text.splitlines() if line.strip())
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(BETWEEN, key=first.count), strict=True)
    lines, begins = [], 1
    try:
        for cells in reader:
            lines.append((begins, [cell.strip() for cell in cells]))
            begins = reader.line_num + 1
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
