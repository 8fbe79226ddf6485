"""Bounds on sizes from CSV and JSON: what is read, and what every mistake is told."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from ringfence.weak.annotations import SizeAnnotation, read_sizes
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

HEADER = "case,slice,class,low,high"


@pytest.fixture
def prepared() -> PreparedSet:
    one = Case("Case00", "train", "Case00.npz", "", (5, 20, 30), None, False)
    return PreparedSet(Path("sets/mine"), "mine", Preprocessing((10, 10)), ("MR",), ("prostate", "lesion"), (one,))


EXPECTED = [
    SizeAnnotation("Case00", 3, 1, 10.0, 20.5),
    SizeAnnotation("Case00", 4, 2, -inf, 7.0),
    SizeAnnotation("Case00", None, 2, 3.0, inf),
    SizeAnnotation("Case00", 0, 1, 0.0, 0.0),
]


def test_csv_and_json(tmp_path: Path, prepared: PreparedSet) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(f"{HEADER}\nCase00,3,prostate,10,20.5\nCase00,4,2,,7\nCase00,,lesion,3,\nCase00,0,1,0,0\n")
    assert read_sizes(path, prepared) == EXPECTED
    rows = [
        ["Case00", 3, "prostate", 10, 20.5],
        ["Case00", 4, 2, None, 7],
        ["Case00", None, "lesion", 3, None],
        ["Case00", 0, 1, 0, 0],
    ]
    objects = [dict(zip(HEADER.split(","), row, strict=True)) for row in rows]
    for content in (objects, {"sizes": objects}):
        path.with_suffix(".json").write_text(json.dumps(content))
        assert read_sizes(path.with_suffix(".json"), prepared) == EXPECTED


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Case00,3,prostate,10,5", "low 10 is above high 5; swap them"),
        ("Case00,3,prostate,-1,5", "low is '-1': a size is not negative"),
        ("Case00,3,prostate,,-5", "high is '-5': a size is not negative"),
        ("Case00,3,prostate,nan,5", "low is 'nan', which is not a number"),
        ("Case00,3,prostate,1,inf", "high is 'inf', which is not a number"),
        ("Case00,3,prostate,,", "low and high are both empty: give one of them"),
        ("Case00,3,prostate,601,", "low 601 is more than the 600 voxels of slice 3 of Case00; sizes are in voxels"),
        ("Case00,,prostate,3001,", "low 3001 is more than the 3000 voxels of Case00"),
        ("Case00,5,prostate,1,2", "slice 5 is not in Case00"),
        ("Case09,3,prostate,1,2", "case 'Case09' is not in sets/mine; did you mean 'Case00'?"),
        ("Case00,3,prostat,1,2", "class 'prostat' is not one of sets/mine; did you mean 'prostate'?"),
        ("Case00,1,1,3,4", "the size of 'prostate' in slice 1 of Case00 is at line 2 already: remove one"),
        ("Case00,3,1,3", "4 fields, but the header has 5"),
    ],
    ids=str,
)
def test_a_bad_line_is_named(tmp_path: Path, prepared: PreparedSet, line: str, message: str) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(f"{HEADER}\nCase00,1,prostate,1,2\n{line}\n")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - by its beginning
        read_sizes(path, prepared)
    assert str(caught.value).startswith(f"{path}: line 3: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", " is empty; it should hold bounds on sizes"),
        (HEADER, " holds no bound at all"),
        ("case,class,low,high\nCase00,1,1,2", ": line 1: there is no slice; there is case, class, low, high"),
        ('[{"case": "Case00", "slice": 1, "class": 1, "low": 2}]', ": sizes[0]: there is no high; there is case"),
        ('{"images": [], "annotations": []}', " is a COCO file, which has boxes but no sizes"),
        (f"{HEADER}\n" + "Case00,9,1,1,2\n" * 500, ": the first 10 problems:\n  line 2: slice 9 is not in Case00"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bad_file_is_named(tmp_path: Path, prepared: PreparedSet, text: str, message: str) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - by its beginning
        read_sizes(path, prepared)
    assert str(caught.value).startswith(f"{path}{message}")
