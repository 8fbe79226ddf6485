"""Which boxes are trained on: those of a file that is named, those that came with the set, or those of the masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prepared_sets import make_prepared
from ringfence.weak.annotations import boxes_from_masks, write_boxes_csv
from ringfence.weak.annotations.annotation import annotations_from_boxes
from ringfence.weak.experiments.one_training import about_data
from ringfence.weak.experiments.planned import as_yaml, plan, planned
from ringfence.weak.prepared.own_boxes import keep_boxes
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.drawn import boxes_file, drawn_boxes
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
    prepared = replace(prepared, boxes=keep_boxes(tmp_path / "mine/boxes.csv", prepared.path))
    prepared.write_manifest()
    return prepared


def test_what_is_named_wins(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    own, other = tmp_path / "set/boxes.csv", tmp_path / "mine/boxes.csv"
    for asked, expected in ((None, own), (str(other), other), ("masks", None)):
        data = BoxDataSettings(prepared=str(prepared.path), boxes=asked)
        assert boxes_file(data, prepared) == expected
        drawn = drawn_boxes(data, prepared)
        assert (drawn.file if drawn else None) == expected
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


def test_a_run_says_which_boxes_it_had(tmp_path: Path) -> None:
    """So that one with others is not gone on with."""
    prepared = with_boxes(tmp_path)
    settings = planned(plan(str(prepared.path), "cpu"))
    task = box_task(settings.data, settings.constraints, prepared)
    assert prepared.boxes is not None
    assert about_data(settings, task, prepared)["boxes"] == prepared.boxes.sha256


def test_boxes_that_do_not_fit_name_the_way_out(tmp_path: Path) -> None:
    prepared = with_boxes(tmp_path)
    rows = (tmp_path / "mine/boxes.csv").read_text().splitlines()
    (tmp_path / "mine/boxes.csv").write_text("\n".join([*rows, "case9,0,class 1,1,2,1,2", ""]))
    prepared = replace(prepared, boxes=keep_boxes(tmp_path / "mine/boxes.csv", prepared.path))
    with pytest.raises(ValueError, match=r"case 'case9' is not in .*\n.*--data.boxes masks takes those around"):
        drawn_boxes(BoxDataSettings(), prepared)
    with pytest.raises(ValueError, match=r"case 'case9' is not in [^\n]*$"):
        drawn_boxes(BoxDataSettings(boxes=str(tmp_path / "mine/boxes.csv")), prepared)
