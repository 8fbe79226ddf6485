"""Boxes in another coordinate system: each mistake is guessed, and single wrong boxes are not taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringfence.weak.annotations import read_boxes
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

HEADER = "case,slice,class,row_low,row_high,column_low,column_high\n"
IN_3D = "case,slice_low,slice_high,class,row_low,row_high,column_low,column_high\n"
SHAPE = (12, 100, 160)
Box = tuple[float, ...]
"""Slice, rows and columns; or slices, rows and columns."""


@pytest.fixture
def prepared() -> PreparedSet:
    cases = tuple(Case(f"c{one}", "train", f"c{one}.npz", "", SHAPE, (3.0, 0.6, 0.5), False) for one in range(2))
    return PreparedSet(Path("set"), "set", Preprocessing((320, 320)), ("MR",), ("organ",), cases)


def drawn(count: int = 12) -> list[Box]:
    """Right boxes, in every slice; some at the image's right end, none too near to its left one."""
    random = np.random.default_rng(3)
    boxes = []
    for number in range(count):
        row, column = int(random.integers(50, 60)), int(random.integers(115, 130))
        boxes.append(
            (number, row, row + int(random.integers(11, 40)), column, column + int(random.integers(11, 31)))
        )
    boxes[0] = (0, 60, 100, 120, 160)
    return boxes


def said_of(tmp_path: Path, prepared: PreparedSet, boxes: list[Box]) -> list[str]:
    """What reading them says, a line each; nothing if they are read."""
    in_3d = len(boxes[0]) == 6
    lines = []
    for one in boxes:
        values = ",".join(f"{value:.6g}" for value in one[2 if in_3d else 1 :])
        first = f"{one[0]},{one[1]}" if in_3d else f"{one[0]}"
        lines += [f"c{case},{first},organ,{values}\n" for case in range(2)]
    file = tmp_path / "boxes.csv"
    file.write_text((IN_3D if in_3d else HEADER) + "".join(lines))
    try:
        read_boxes(file, prepared)
    except ValueError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda n, a, b, c, d: (n, c, d, a, b), "rows and columns were swapped"),
        (lambda n, a, b, c, d: (n + 1, a, b, c, d), "slices were counted from 0, and not from 1"),
        (
            lambda n, a, b, c, d: (n, a, b - a, c, d - c),
            "each upper end was one: they seem to be heights and widths",
        ),
        (
            lambda n, a, b, c, d: (n, a + 1, b + 1, c + 1, d + 1),
            "rows and columns were counted from 0, and not from 1",
        ),
        (lambda n, a, b, c, d: (n, a * 3.2, b * 3.2, c * 2, d * 2), "they seem to be drawn on slices of 320 × 320"),
    ],
)
def test_a_mistake_in_all_of_them_is_guessed(
    tmp_path: Path, prepared: PreparedSet, change: Callable[..., Box], why: str
) -> None:
    assert said_of(tmp_path, prepared, drawn()) == []
    *_, last = said_of(tmp_path, prepared, [change(*one) for one in drawn()])
    assert last.startswith("  all ")
    assert last.endswith(why) or f"if {why}" in last or why in last, last


def test_millimetres(tmp_path: Path, prepared: PreparedSet) -> None:
    """Where a voxel is larger than a millimetre; smaller ones make boxes that fit, but elsewhere."""
    cases = tuple(Case(one.name, "train", one.file, "", SHAPE, (3.0, 1.5, 1.5), False) for one in prepared.cases)
    coarse = PreparedSet(prepared.path, "set", Preprocessing((100, 160)), ("MR",), ("organ",), cases)
    *_, last = said_of(tmp_path, coarse, [(n, *(1.5 * end for end in ends)) for n, *ends in drawn()])
    assert "they seem to be in millimetres (divide by the spacing)" in last


def test_boxes_in_3d_with_x_for_z(tmp_path: Path, prepared: PreparedSet) -> None:
    right = [(2, 2 + n, 50, 60 + n, 120, 130 + n) for n in range(1, 9)]
    assert said_of(tmp_path, prepared, right) == []
    *_, last = said_of(tmp_path, prepared, [(*one[4:], *one[2:4], *one[:2]) for one in right])
    assert "slices and columns were swapped" in last


def test_one_wrong_box_is_just_that(tmp_path: Path, prepared: PreparedSet) -> None:
    for wrong in ((3, 50, 60, 150, 170), (3, 60, 50, 10, 20), (3, 500, 600, 10, 20)):
        said = said_of(tmp_path, prepared, [*drawn(), wrong])
        assert not [line for line in said if "all" in line.split()], said
    assert "row_low 500 and row_high 600: entirely beyond the 100 rows of c0, 0 to 100" in said[1]


def test_nothing_is_guessed_of_what_nothing_explains(tmp_path: Path, prepared: PreparedSet) -> None:
    said = said_of(tmp_path, prepared, [(n, a + 400, b + 400, c + 900, d + 900) for n, a, b, c, d in drawn()])
    assert len(said) == 11
    assert all(line.startswith("  line ") for line in said[1:])


def test_fractions_of_the_image(tmp_path: Path, prepared: PreparedSet) -> None:
    """Each would be the first voxel: nobody would notice."""
    said = said_of(tmp_path, prepared, [(n, a / 100, b / 100, c / 160, d / 160) for n, a, b, c, d in drawn()])
    assert len(said) == 1
    assert "no box reaches beyond the first voxel: they seem to be fractions of the image; multiply them" in said[0]


def test_corners_in_coco(tmp_path: Path, prepared: PreparedSet) -> None:
    images = [{"id": n, "file_name": f"c{n % 2}_{n // 2}.png"} for n in range(24)]
    boxes = [(n, *ends) for n, ends in enumerate(one[1:] for one in drawn() * 2)]
    file = tmp_path / "boxes.json"
    for corners in (False, True):
        notes = [
            {"id": n, "image_id": n, "category_id": 7, "bbox": [c, a, d, b] if corners else [c, a, d - c, b - a]}
            for n, a, b, c, d in boxes
        ]
        content = {"images": images, "categories": [{"id": 7, "name": "organ"}], "annotations": notes}
        file.write_text(json.dumps(content))
        if not corners:
            assert len(read_boxes(file, prepared)) == 24
            continue
        with pytest.raises(ValueError, match="if bbox was x, y, width, height: it seems to hold both corners"):
            read_boxes(file, prepared)
