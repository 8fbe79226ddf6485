"""What is said of all labels together when a task is read: what is refused, and what is only told."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prepared_sets import described_anew, make_prepared
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.annotations.coverage import cases_with_boxes, in_one_case_alone
from ringfence.weak.prepared.spacing import missing_spacing
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task

HEADER = ("case", "slice", "class", "row_low", "row_high", "column_low", "column_high")


def written(path: Path, header: tuple[str, ...], *rows: tuple[Any, ...]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def task_of(folder: Path, asked: dict[str, Any], **data: Any) -> Task:
    return box_task(BoxDataSettings(prepared=str(folder / "set"), **data), {"outside": {}} | asked)


@pytest.mark.parametrize("patch", [None, [4, 16, 16]])
def test_sizes_and_scribbles_that_boxes_have_no_room_for(tmp_path: Path, patch: list[int] | None) -> None:
    make_prepared(tmp_path / "set", masked=False)
    boxes = written(tmp_path / "boxes.csv", HEADER, *((f"case{one}", 2, 1, 4, 12, 5, 15) for one in range(3)))
    names = ("case", "slice", "class", "low", "high")
    for low, wrong in ((80, False), (81, True)):
        place = "" if patch else 2
        sizes = {"size": {"file": written(tmp_path / "sizes.csv", names, ("case0", place, 1, low, ""))}}
        if not wrong:
            task_of(tmp_path, sizes, boxes=boxes, patch=patch)
            continue
        with pytest.raises(
            ValueError, match="case0: at least 81 voxels of class 1 are asked for, and its boxes hold 80"
        ):
            task_of(tmp_path, sizes, boxes=boxes, patch=patch)
    sizes = {"size": {"file": written(tmp_path / "sizes.csv", names, ("case0", 3, 1, 5, ""))}}
    with pytest.raises(ValueError, match="at least 5 voxels of class 1 are asked for, and there is no box of it"):
        task_of(tmp_path, sizes, boxes=boxes, patch=patch)
    points = written(
        tmp_path / "points.csv", (*HEADER[:3], "row", "column"), ("case0", 2, 1, 12, 7), ("case1", 2, 1, 5, 5)
    )
    with pytest.raises(
        ValueError, match=r"slice 2 of case0: a point of a scribble of class 1 \(at row 12, column 7\) is"
    ):
        task_of(tmp_path, {"scribbles": {"file": points}}, boxes=boxes, patch=patch)


def test_the_high_end_of_a_size_depends_on_how_tight_boxes_are(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", masked=False)
    boxes = written(tmp_path / "boxes.csv", HEADER, *((f"case{one}", 2, 1, 4, 12, 5, 15) for one in range(3)))
    sizes = written(tmp_path / "sizes.csv", ("case", "slice", "class", "low", "high"), ("case0", 2, 1, "", 9))
    with pytest.raises(ValueError, match="at most 9 voxels of class 1 are asked for, and an object .* at least 10"):
        task_of(tmp_path, {"size": {"file": sizes}}, boxes=boxes)
    task_of(tmp_path, {"size": {"file": sizes}}, boxes=boxes, margin=1)


def test_mirrored_boxes_are_refused_where_masks_show_it(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    rows = []
    for case in prepared.cases:
        mask = prepared.load(case)[1]
        assert mask is not None
        for number, plane in enumerate(mask[::-1]):
            if plane.any():
                up, across = plane.any(axis=1).nonzero()[0], plane.any(axis=0).nonzero()[0]
                rows.append((case.name, number, 1, up[0], up[-1] + 1, across[0], across[-1] + 1))
    boxes = written(tmp_path / "boxes.csv", HEADER, *rows)
    with pytest.raises(
        ValueError, match=r"are not where their objects are; .* fit their masks only mirrored in the"
    ):
        task_of(tmp_path, {}, boxes=boxes)


@pytest.mark.parametrize("patch", [None, [4, 16, 16]])
def test_a_class_in_one_case_alone_is_told(tmp_path: Path, patch: list[int] | None) -> None:
    """From a file, and from masks."""
    prepared = make_prepared(tmp_path / "set", classes=2, masked=False)
    rows = [(f"case{one}", 2, 1, 4, 12, 5, 15) for one in range(4)]
    notes = [
        BoxAnnotation(row[0], 2, row[2], (4, 5), (12, 15)) for row in [*rows, ("case1", 2, 2), ("case3", 2, 2)]
    ]
    boxes = written(tmp_path / "boxes.csv", HEADER, *rows, *((f"case{one}", 2, 2, 6, 8, 7, 9) for one in (1, 3)))
    task = task_of(tmp_path, {}, boxes=boxes, patch=patch)
    assert [line for line in task.remarks if line.startswith("Only")] == in_one_case_alone(
        cases_with_boxes(notes, prepared), 3
    )
    assert task.remarks[0].startswith("Only case1, of 3 training cases, has a box of class 2: one case is little")
    assert in_one_case_alone({"a": {"x"}}, 1) == in_one_case_alone({"a": {"x", "y"}, "b": set()}, 4) == []


def test_nothing_is_said_of_what_is_as_it_should_be(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", classes=2)
    assert task_of(tmp_path, {}).remarks == ()


def test_spacing_that_some_cases_lack(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    assert missing_spacing(prepared) == []
    none = replace(prepared, cases=tuple(replace(case, spacing=None) for case in prepared.cases))
    assert missing_spacing(none) == []
    some = described_anew(replace(prepared, cases=(*prepared.cases[:1], *none.cases[1:3], *prepared.cases[3:])))
    (line,) = missing_spacing(some)
    assert line.startswith("The spacing of case1, case2 is not known, that of 2 other cases is:")
