"""Which boxes are trained on: those of a file that is named, those that came with the set, or those of the masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prepared_sets import make_prepared
from ringfence.weak.annotations import boxes_from_masks, write_boxes_csv
from ringfence.weak.annotations.annotation import annotations_from_boxes
from ringfence.weak.datasets.box_table import table_beside
from ringfence.weak.experiments.one_training import about_data
from ringfence.weak.experiments.planned import as_yaml, plan, planned
from ringfence.weak.prepared.kept_boxes import keep_boxes
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.file_boxes import boxes_file, file_boxes
from ringfence.weak.tasks.settings import BoxDataSettings

ASKED = {"strips": {"width": 2}, "outside": {}}


def with_boxes(tmp_path: Path, wider: int = 1) -> PreparedSet:
    """A set that came with boxes, which are a little wider than those of its masks."""
    prepared = make_prepared(tmp_path / "set")
    boxes = []
    for case in prepared.cases:
        mask = prepared.load(case)[1]
        assert mask is not None
        around = boxes_from_masks(torch.from_numpy(mask > 0)[:, None]).numpy()
        for one in annotations_from_boxes(case.name, around):
            high = tuple(min(end + wider, side) for end, side in zip(one.high, case.shape[1:], strict=True))
            boxes.append(replace(one, high=high))
    (tmp_path / "mine").mkdir()
    write_boxes_csv(tmp_path / "mine/boxes.csv", boxes, prepared)
    prepared = replace(prepared, boxes=keep_boxes(table_beside(tmp_path / "mine"), prepared.path, prepared.boxes))
    prepared.write_manifest()
    return prepared


def test_what_is_named_wins(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    own, other = tmp_path / "set/boxes.csv", tmp_path / "mine/boxes.csv"
    for asked, expected in ((None, own), (str(other), other), ("masks", None)):
        data = BoxDataSettings(prepared=str(prepared.path), boxes=asked)
        assert boxes_file(data, prepared) == expected
        found = file_boxes(data, prepared)
        assert (found.file if found else None) == expected
    assert boxes_file(BoxDataSettings(), make_prepared(tmp_path / "other")) is None


def test_a_training_takes_them(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    own, tight = (
        box_task(BoxDataSettings(prepared=str(prepared.path), boxes=boxes), ASKED).train["box"]
        for boxes in (None, "masks")
    )
    there = tight[..., 1] > tight[..., 0]
    assert bool(there.any())
    assert own[there].tolist() == [[low, high + 1] for low, high in tight[there].tolist()]


def test_a_plan_takes_them_and_says_so(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    made = plan(str(prepared.path), "cpu")
    assert "data.boxes: null\n      those of boxes.csv, which came with the set" in str(made)
    assert "data.margin" in made.changes  # a hand drew them
    assert planned(made).data.boxes is None
    assert "boxes: null  # those of boxes.csv" in as_yaml(made)
    around = plan(BoxDataSettings(prepared=str(prepared.path), boxes="masks"), "cpu")
    assert "data.margin" not in around.changes
    assert planned(around).data.boxes == "masks"
    assert "data.boxes: masks\n      around the masks" in str(around)


def test_a_run_says_which_boxes_it_had(tmp_path: Path) -> None:
    """So that one with others is not gone on with, and is told why; what a training did not use may change."""
    prepared = with_boxes(tmp_path)
    before = prepared.boxes
    assert before is not None
    settings = planned(plan(str(prepared.path), "cpu"))
    task = box_task(settings.data, settings.constraints, prepared)
    about = about_data(settings, task, prepared)
    assert about["boxes"] == before.sha256
    file = tmp_path / "mine/boxes.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    prepared = replace(prepared, boxes=keep_boxes(table_beside(tmp_path / "mine"), prepared.path, before))
    prepared.write_manifest()
    now = about_data(settings, task, prepared)
    assert {name for name in about if about[name] != now[name]} == {"boxes"}
    masks = settings.changed({"data.boxes": "masks"})
    assert "boxes" not in about_data(masks, task, prepared)


def test_masks_that_are_not_there(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", masked=False)
    with pytest.raises(ValueError, match=r"data.boxes masks: case0, case1, case2 has no mask to take them from"):
        file_boxes(BoxDataSettings(boxes="masks"), prepared)


def test_a_table_that_is_lost_names_the_way_out(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    (tmp_path / "set/boxes.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing: prepare the set again.*\n.*data.boxes masks takes"):
        file_boxes(BoxDataSettings(), prepared)


def test_boxes_of_cases_that_were_left_out_are_passed_over(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    with (tmp_path / "mine/boxes.csv").open("a") as file:
        file.write("broken,0,class 1,1,2,1,2\n")
    data = BoxDataSettings(boxes=str(tmp_path / "mine/boxes.csv"))
    with pytest.raises(ValueError, match="case 'broken' is not in"):
        file_boxes(data, prepared)
    found = file_boxes(data, replace(prepared, left_out=("broken",)))
    assert found is not None
    assert {box.case for box in found.boxes} == {case.name for case in prepared.cases}


def test_boxes_that_do_not_fit_name_the_way_out(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    rows = (tmp_path / "mine/boxes.csv").read_text().splitlines()
    (tmp_path / "mine/boxes.csv").write_text("\n".join([*rows, "case9,0,class 1,1,2,1,2", ""]))
    prepared = replace(prepared, boxes=keep_boxes(table_beside(tmp_path / "mine"), prepared.path, prepared.boxes))
    with pytest.raises(ValueError, match=r"case 'case9' is not in .*\n.*data.boxes masks takes those around"):
        file_boxes(BoxDataSettings(), prepared)
    with pytest.raises(ValueError, match=r"case 'case9' is not in [^\n]*$"):
        file_boxes(BoxDataSettings(boxes=str(tmp_path / "mine/boxes.csv")), prepared)
