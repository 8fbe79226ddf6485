"""Boxes as a CSV file, to be edited and read back."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ringfence.files import write_text
from ringfence.hints import spreadsheet
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.prepared.prepared_set import PreparedSet

HEADER: Final = ("case", "slice", "class", "row_low", "row_high", "column_low", "column_high")
IN_3D: Final = ("case", "slice", "slice_low", "slice_high", *HEADER[2:])


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
