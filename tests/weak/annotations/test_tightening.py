"""Boxes that are made smaller: by whole voxels, the same at either end, and never to nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.weak import BoxDataSettings, box_task
from ringfence.weak.annotations import BoxAnnotation, write_boxes_csv
from ringfence.weak.annotations.tightening import tightened
from ringfence.weak.tasks.file_boxes import file_boxes

SIDES = st.tuples(st.integers(0, 300), st.integers(1, 300)).map(lambda one: (one[0], one[0] + one[1]))


@given(sides=st.lists(SIDES, min_size=2, max_size=3), fraction=st.floats(0.0, 0.499))
def test_rows_and_columns_are_fewer_by_a_fraction_at_either_end(
    sides: list[tuple[int, int]], fraction: float
) -> None:
    number = 4 if len(sides) == 2 else None
    box = BoxAnnotation("A", number, 1, tuple(low for low, _ in sides), tuple(high for _, high in sides))
    (one,) = tightened([box], fraction)
    assert (one.case, one.slice, one.label, one.tight) == ("A", number, 1, True)
    assert (one.low[:-2], one.high[:-2]) == (box.low[:-2], box.high[:-2])  # slices
    for (low, high), start, stop in zip(sides[-2:], one.low[-2:], one.high[-2:], strict=True):
        assert start - low == high - stop  # in the same place
        assert start < stop
        assert abs((start - low) - fraction * (high - low)) <= 0.5 or stop - start <= 2


def test_nothing_is_taken_off_by_default() -> None:
    box = BoxAnnotation("A", 0, 1, (3, 4), (20, 30))
    assert tightened([box], 0.0) == [box]
    assert tightened([box], 0.1) == [BoxAnnotation("A", 0, 1, (5, 7), (18, 27))]


@pytest.mark.parametrize(("side", "off"), [(4, 0), (5, 0), (6, 1), (14, 1), (15, 1), (16, 2), (25, 2), (35, 3)])
def test_up_to_half_a_voxel_is_left_alone(side: int, off: int) -> None:
    (one,) = tightened([BoxAnnotation("A", 0, 1, (0, 0), (side, side))], 0.1)
    assert (one.low, one.high) == ((off, off), (side - off, side - off))


def test_what_nobody_drew_stays_as_it_is() -> None:
    """The hull of two boxes: the object is somewhere within."""
    hull = BoxAnnotation("A", 1, 1, (10, 10), (48, 30), tight=False)
    assert tightened([hull], 0.1) == [hull]


def test_training_has_the_smaller_boxes(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    cases = [case.name for case in prepared.of("train")]
    write_boxes_csv(
        tmp_path / "boxes.csv", [BoxAnnotation(name, 1, 1, (2, 2), (12, 12)) for name in cases], prepared
    )
    found = []
    for tighten in (0.0, 0.2):
        data = BoxDataSettings(prepared=str(prepared.path), boxes=str(tmp_path / "boxes.csv"), tighten=tighten)
        box = box_task(data, {"strips": {"width": 1}}).train["box"]
        sides = (box[..., 1] - box[..., 0]).flatten(0, 2)
        found.append(sides[(sides > 0).all(dim=-1)].unique().tolist())
    assert found == [[10], [6]]


@pytest.mark.parametrize(("row", "refused"), [(2, True), (5, False)])
def test_scribbles_must_be_in_what_is_left_of_a_box(row: int, refused: bool, tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", masked=False)
    cases = [case.name for case in prepared.of("train")]
    boxes, marks = tmp_path / "boxes.csv", tmp_path / "marks.csv"
    write_boxes_csv(boxes, [BoxAnnotation(name, 1, 1, (2, 2), (12, 12)) for name in cases], prepared)
    marks.write_text(f"case,slice,class,row,column\n{cases[0]},1,class 1,{row},6\n")
    asked = {"strips": {"width": 1}, "scribbles": {"file": str(marks)}}
    drawn = BoxDataSettings(prepared=str(prepared.path), boxes=str(boxes))
    box_task(drawn, asked)
    if not refused:
        box_task(replace(drawn, tighten=0.2), asked)
        return
    with pytest.raises(ValueError, match=r"^with boxes made smaller \(data.tighten 0.2; 0 leaves them as they are"):
        box_task(replace(drawn, tighten=0.2), asked)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, "data.tighten is below 0.5, or nothing would be left of a box; got 0.5"),
        (-0.1, "data.tighten is a fraction from 0 to below 1, got -0.1"),
    ],
)
def test_what_would_leave_nothing_is_refused(value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoxDataSettings(tighten=value, boxes="boxes.csv")


def test_boxes_around_masks_are_tight(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    with pytest.raises(ValueError, match=r"data.tighten is 0.1, and there is no file of boxes \(data.boxes\)"):
        file_boxes(BoxDataSettings(tighten=0.1), prepared)
