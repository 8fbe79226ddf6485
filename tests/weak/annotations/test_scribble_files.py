"""Scribbles from CSV and JSON, and where their points are in a prepared set."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.weak.annotations import ScribblePoint, place_scribbles, place_volume_scribbles, read_scribbles
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

HEADER = "case,slice,class,row,column"


def case(name: str, shape: tuple[int, int, int] = (5, 20, 30)) -> Case:
    return Case(name, "train", f"{name}.npz", "", shape, None, False)


@pytest.fixture
def prepared() -> PreparedSet:
    cases = (case("Case00"), case("Case01"))
    return PreparedSet(
        Path("sets/mine"), "mine", Preprocessing((10, 10)), ("MR",), ("organ", "lesion"), cases, (1, 4)
    )


def written(tmp_path: Path, content: Any, name: str = "scribbles.csv") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


EXPECTED = [
    ScribblePoint("Case00", 2, 1, 3, 4),
    ScribblePoint("Case00", 2, 2, 19, 29),
    ScribblePoint("Case01", 0, 0, 0, 0),
]


@pytest.mark.parametrize(
    "content",
    [
        f"{HEADER}\nCase00,2,organ,3,4\nCase00,2,4,19,29\nCase01,0,background,0,0\n",
        f"{HEADER}\nCase00,2,1,3.9,4.5\nCase00,2,lesion,19,29\nCase01,0,0,0,0\nCase00,2,1,3,4\n",
        "x;y;class;slice;case;who\n4;3;organ;2;Case00;me\n29;19;lesion;2;Case00;me\n0;0;Background;0;Case01;me\n",
        [
            {"case": "Case00", "slice": 2, "class": "organ", "row": 3, "column": 4},
            {"case": "Case00", "slice": 2, "class": 4, "y": 19, "x": 29},
            {"case": "Case01", "slice": 0, "class": 0, "row": 0, "column": 0},
        ],
    ],
    ids=["csv", "numbers, and a point twice", "x and y", "json"],
)
def test_points_are_read(tmp_path: Path, prepared: PreparedSet, content: Any) -> None:
    assert read_scribbles(written(tmp_path, content), prepared) == EXPECTED
    if not isinstance(content, str):
        assert read_scribbles(written(tmp_path, {"scribbles": content}, "s.json"), prepared) == EXPECTED


def refused(tmp_path: Path, prepared: PreparedSet, content: Any) -> str:
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match="scribbles.csv") as caught:
        read_scribbles(path, prepared)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Cas00,2,1,3,4", "case 'Cas00' is not in sets/mine; did you mean 'Case00'?"),
        ("Case00,5,1,3,4", "slice 5 is not in Case00, whose 5 slices are numbered from 0 to 4"),
        ("Case00,2,2,3,4", "class is '2'; sets/mine has 1 organ, 4 lesion"),
        ("Case00,2,bckgrnd,3,4", "class 'bckgrnd' is not one of sets/mine"),
        (
            "Case00,2,1,20,4",
            "row '20' is not within the 20 rows of Case00, 0 to 19; points are voxels of the source",
        ),
        ("Case00,2,1,3,-0.5", "column '-0.5' is not within the 30 columns of Case00, 0 to 29"),
        ("Case00,2,1,,4", "row is empty; a number is needed"),
        ("Case00,2,1,nan,4", "row is 'nan', which is not a number that can be used"),
        (
            "Case00,2,0,3,4",
            "slice 2 of Case00, row 3, column 4 is background here and organ at line 2: a voxel has one",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, prepared: PreparedSet, line: str, message: str) -> None:
    said = refused(tmp_path, prepared, f"{HEADER}\nCase00,2,organ,3,4\n{line}\n")
    assert said.startswith(f": line 3: {message}"), said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER, " holds no point at all"),
        ("case,slice,class,row\na,b,c,d\n", ": line 1: there is no column; there is case, slice, class, row"),
        (f"{HEADER},x\na,b,c,d,e,f\n", ": line 1: there is both column and x: leave one out"),
        ({"images": []}, " is a COCO file, which has boxes but no scribbles"),
        ({"boxes": []}, ': it should hold a list of objects, or {"scribbles": [...]}'),
        (f"{HEADER}\n" + "Case00,9,1,1,1\n" * 12, ": the first 10 problems:\n  line 2: slice 9"),
    ],
    ids=["empty", "no column", "twice", "coco", "boxes", "many"],
)
def test_a_bad_file(tmp_path: Path, prepared: PreparedSet, content: Any, message: str) -> None:
    assert refused(tmp_path, prepared, content).startswith(message)


points = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 8), st.integers(0, 12)),
    max_size=12,
    unique_by=lambda one: one[1:],
)


@settings(max_examples=100, deadline=None)
@given(points, st.tuples(st.integers(1, 20), st.integers(1, 30)))
def test_points_go_to_the_pixel_that_holds_them(drawn: list[tuple[int, ...]], size: tuple[int, int]) -> None:
    """Of one class in a pixel once, of several not at all; against intervals in fractions."""
    ours = case("A", (3, 9, 13))
    notes = [ScribblePoint("A", number, label, row, column) for label, number, row, column in drawn]
    expected: dict[tuple[int, int, int], set[int]] = {}
    for one in notes:
        middle = [Fraction(2 * place + 1, 2 * length) for place, length in ((one.row, 9), (one.column, 13))]
        (pixel,) = [
            (row, column)
            for row in range(size[0])
            for column in range(size[1])
            if Fraction(row, size[0]) <= middle[0] < Fraction(row + 1, size[0])
            and Fraction(column, size[1]) <= middle[1] < Fraction(column + 1, size[1])
        ]
        expected.setdefault((one.slice, *pixel), set()).add(one.label)
    kept = {(min(labels) + 1, *place) for place, labels in expected.items() if len(labels) == 1}
    other = ScribblePoint("B", 0, 1, 0, 0)
    volume = place_volume_scribbles([*notes, other], ours, size)
    assert volume.shape[0] == 1
    assert {tuple(one) for one in volume[0].tolist() if any(one)} == kept
    flat = place_scribbles([*notes, other], ours, size)
    found = [
        (label, n, row, column) for n, some in enumerate(flat.tolist()) for label, row, column in some if label
    ]
    assert len(found) == len(kept)
    assert set(found) == kept


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_garbage_is_a_value_error(tmp_path: Path, prepared: PreparedSet, text: str) -> None:
    for content in (text, f"{HEADER}\n{text}"):
        path = tmp_path / "scribbles.csv"
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(ValueError, match="scribbles.csv"):
            read_scribbles(path, prepared)
