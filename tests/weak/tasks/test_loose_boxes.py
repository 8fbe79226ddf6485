"""Boxes as people draw them: in 3-D for slices, and with slices left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prepared_sets import make_prepared
from ringfence.weak.annotations import annotations_from_boxes, boxes_from_masks, write_boxes_csv
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task

BOX: dict[str, Any] = {"strips": {}, "outside": {}, "box_size": {}}
IN_SPACE = "case,class,slice_low,slice_high,row_low,row_high,column_low,column_high"
IN_SLICES = "case,class,slice,row_low,row_high,column_low,column_high"


def task_of(folder: Path, lines: list[str], asked: dict[str, Any] | None = None, **data: Any) -> Task:
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    settings = BoxDataSettings(prepared=str(folder / "set"), boxes=str(folder / "boxes.csv"), **data)
    return box_task(settings, asked or BOX)


def test_boxes_in_3d_for_slices(tmp_path: Path) -> None:
    """Alone they pull at nothing, which is said; beside boxes in slices they say where nothing is."""
    make_prepared(tmp_path / "set", masked=False)
    lines = [IN_SPACE, *(f"case{number},class 1,1,5,4,16,3,15" for number in range(3))]
    message = r"boxes\.csv: its boxes are in 3-D, .* no strip that must meet it\. Train on volumes, as plans do"
    with pytest.raises(ValueError, match=message):
        task_of(tmp_path, lines)
    outside = {"outside": {}, "box_size": {}}
    task = task_of(tmp_path, lines, outside)
    expected = [[[0, 0], [0, 0]], *[[[4, 16], [3, 15]]] * 4, [[0, 0], [0, 0]]]
    assert task.train["box"][:6, 0, 0].tolist() == expected
    assert task.train["whole"][:, 0, 0, 0].tolist() == 3 * [True, False, False, False, False, True]
    assert bool(task.train["uncut"].all())
    assert task.remarks == ()
    volumes = task_of(tmp_path, lines, patch=[6, 24, 20])
    assert volumes.train["box"].tolist() == volumes.train["aim"].tolist() == 3 * [[[[[1, 5], [4, 16], [3, 15]]]]]
    assert bool(volumes.train["whole"].all())
    mixed = [f"{IN_SPACE},slice", *(f"{line}," for line in lines[1:3]), "case2,class 1,,,4,16,3,15,3"]
    task = task_of(tmp_path, mixed)
    assert task.train["whole"][12:, 0, 0].all()
    assert task.train["box"][15, 0, 0].tolist() == [[4, 16], [3, 15]]


@pytest.mark.parametrize("patch", [None, [6, 24, 20]], ids=["slices", "volumes"])
def test_slices_left_out_are_filled_and_counted(tmp_path: Path, patch: list[int] | None) -> None:
    make_prepared(tmp_path / "set")
    lines = [IN_SLICES, "case0,class 1,1,4,12,5,15", "case0,class 1,4,6,14,5,13", "case2,class 1,2,1,2,1,2"]
    lines += ["case1,class 1,1,4,12,5,15", "case1,class 1,3,4,12,5,15", "case1,class 1,5,16,20,5,15"]
    said = {0: None, 1: "1 slice between two boxes of an object has none", 2: "3 slices between two boxes"}
    for gap, remark in said.items():
        task = task_of(tmp_path, lines, patch=patch, gap=gap)
        if remark is None:
            assert not any("between" in one for one in task.remarks)
        else:
            assert task.remarks[0].startswith(remark)
            assert f"(data.gap {gap}; 0: it is not there)" in task.remarks[0]
        box, whole = task.train["box"], task.train["whole"]
        area = (box[..., 1] - box[..., 0]).prod(dim=-1)
        loose = (area > 0) & ~whole[..., -1]
        assert int(loose.sum()) == {0: 0, 1: 1, 2: 3}[gap]
        assert (
            box[loose][:, -2:].tolist()
            == {
                0: [],
                1: [[[4, 12], [5, 15]]],
                2: [[[4, 14], [5, 15]]] * 2 + [[[4, 12], [5, 15]]],
            }[gap]
        )
    assert BoxDataSettings().gap == 2
    with pytest.raises(ValueError, match=r"data\.gap must be a whole number"):
        BoxDataSettings(gap=-1)


def test_boxes_from_masks_leave_nothing_out(tmp_path: Path) -> None:
    """And those that were never left out are the masks' own, whatever the gap."""
    prepared = make_prepared(tmp_path / "set", shape=(9, 24, 20))
    notes = []
    for case in prepared.cases:
        masks = torch.from_numpy(prepared.load(case)[1] == 1)[:, None]
        notes += annotations_from_boxes(case.name, boxes_from_masks(masks).numpy())
    write_boxes_csv(tmp_path / "boxes.csv", notes, prepared)
    for patch in (None, [4, 16, 16]):
        drawn, read = (
            box_task(BoxDataSettings(prepared=str(tmp_path / "set"), boxes=file, patch=patch, gap=3), BOX)
            for file in (None, str(tmp_path / "boxes.csv"))
        )
        for rows, others in ((drawn.train, read.train), (drawn.validation, read.validation)):
            assert all(torch.equal(rows[name], others[name]) for name in rows)
        assert not any("between" in one for one in (*drawn.remarks, *read.remarks))
