"""What a table says of a case that the set was prepared without is passed over, in every kind of table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.weak.annotations import read_boxes, read_scribbles, read_sizes
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

Reader = Callable[[Path, PreparedSet], Sequence[Any]]
BOXES = "case,slice,class,row_low,row_high,column_low,column_high\nA,0,x,1,9,2,9\nB{},0,x,1,99,2,9\n"
SIZES = "case,slice,class,low,high\nA,0,x,1,9\nB{},7,x,1,9\n"
POINTS = "case,slice,class,row,column\nA,0,x,1,9\nB{},0,x,1,99\n"
COCO = {
    "images": [{"id": 1, "file_name": "A_0.png"}, {"id": 2, "file_name": "B_7.png"}],
    "categories": [{"id": 1, "name": "x"}],
    "annotations": [{"image_id": one, "category_id": 1, "bbox": [1, 1, 5, 5]} for one in (1, 2)],
}


@pytest.mark.parametrize("ending", ["", ".nii.gz"])
@pytest.mark.parametrize(
    ("reader", "text"),
    [(read_boxes, BOXES), (read_boxes, json.dumps(COCO)), (read_sizes, SIZES), (read_scribbles, POINTS)],
    ids=["boxes", "coco", "sizes", "scribbles"],
)
def test_they_are_passed_over(tmp_path: Path, reader: Reader, text: str, ending: str) -> None:
    case = Case("A", "train", "A.npz", "", (2, 16, 16), None, False)
    prepared = PreparedSet(tmp_path, "mine", Preprocessing((16, 16)), ("MR",), ("x",), (case,))
    file = tmp_path / "table.txt"
    file.write_text(text.replace("{}", ending))
    with pytest.raises(ValueError, match=f"case 'B({ending})?' is not in"):
        reader(file, prepared)
    (found,) = reader(file, replace(prepared, left_out=("B",)))
    assert found.case == "A"
