"""Boxes from CSV and JSON: what is read, and what every mistake is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ringfence.weak.annotations import BoxAnnotation, read_boxes, write_boxes_csv
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

HEADER = "case,slice,class,row_low,row_high,column_low,column_high"
GOOD = "Case00,2,prostate,3,9,4,11\nCase00,1,lesion,3,5,4,6\nCase01,0,prostate,1,2,1,2\n"


def case(name: str, split: Any = "train", shape: tuple[int, int, int] = (5, 20, 30)) -> Case:
    return Case(name, split, f"{name}.npz", "", shape, None, False)


@pytest.fixture
def prepared() -> PreparedSet:
    cases = (case("Case00"), case("Case01"), case("Case02", "validation"))
    return PreparedSet(Path("sets/mine"), "mine", Preprocessing((10, 10)), ("MR",), ("prostate", "lesion"), cases)


def written(tmp_path: Path, content: Any, name: str = "boxes.csv") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


EXPECTED = [
    BoxAnnotation("Case00", 2, 1, (3, 4), (9, 11)),
    BoxAnnotation("Case00", 1, 2, (3, 4), (5, 6)),
    BoxAnnotation("Case01", 0, 1, (1, 1), (2, 2)),
]


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\n{GOOD}",
        f"\ufeff{HEADER}\r\n" + GOOD.replace("\n", "\r\n"),  # Excel's
        f"{HEADER}\n{GOOD}".replace(",", ";"),
        f"{HEADER}\n{GOOD}".replace(",", "\t"),
        f"{HEADER},\n\n{GOOD.replace('2,prostate', '2.0, 1').replace('lesion', '2')},,,,,,,,\n".replace(
            "\n", ",\n"
        ),
        "y_max,class,x_min,slice,Y_min,case,note,X_MAX\n9,prostate,4,2,3,Case00,sure?,11\n5,2,4,1,3,Case00,,6\n"
        '2,"prostate",1,0,1,Case01,"two\nlines",2\n',
        f"{HEADER}\nCase00,2,prostate,3.2,8.1,4.9,10.4\nCase00,1,2,3,5,4,6\nCase01,0,1,1,1.5,1.0000001,2\n",
    ],
    ids=["plain", "excel", "semicolon", "tab", "trailing-and-empty", "other-names-and-order", "fractions"],
)
def test_csv(tmp_path: Path, prepared: PreparedSet, text: str) -> None:
    assert read_boxes(written(tmp_path, text), prepared) == EXPECTED


def objects(**change: Any) -> list[dict[str, Any]]:
    names = HEADER.split(",")
    rows: list[list[Any]] = [
        ["Case00", 2, "prostate", 3, 9, 4, 11],
        ["Case00", 1, 2, 3.0, 5, 4, 5.5],
        ["Case01", 0, 1, 1, 2, 1, 2],
    ]
    return [dict(zip(names, row, strict=True)) | change for row in rows]


def test_json(tmp_path: Path, prepared: PreparedSet) -> None:
    assert read_boxes(written(tmp_path, objects(), "b.json"), prepared) == EXPECTED
    assert read_boxes(written(tmp_path, {"boxes": objects(), "by": "me"}, "b.json"), prepared) == EXPECTED
    assert read_boxes(written(tmp_path, objects(comment=None), "b.txt"), prepared) == EXPECTED  # by what it holds


def test_several_boxes_of_a_class(tmp_path: Path, prepared: PreparedSet) -> None:
    """In a slice, or of a volume; also one within the other. CSV and JSON alike."""
    others = [
        BoxAnnotation("Case00", 2, 1, (12, 4), (14, 11)),
        BoxAnnotation("Case00", 2, 1, (12, 5), (13, 6)),
        BoxAnnotation("Case01", None, 2, (0, 1, 2), (3, 20, 30)),
        BoxAnnotation("Case01", None, 2, (1, 1, 2), (3, 20, 30)),
    ]
    write_boxes_csv(tmp_path / "b.csv", EXPECTED + others, prepared)
    assert read_boxes(tmp_path / "b.csv", prepared) == EXPECTED + others
    more = [
        *objects(),
        dict(zip(HEADER.split(","), ["Case00", 2, 1, 12, 14, 4, 11], strict=True)),
        dict(zip(HEADER.split(","), ["Case00", 2, 1, 12, 13, 5, 6], strict=True)),
    ]
    assert read_boxes(written(tmp_path, more, "b.json"), prepared) == EXPECTED + others[:2]
    assert refused(tmp_path, prepared, more[:4] + more, "b.json").startswith(
        ": 4 problems:\n  boxes[4]: this box is"
    )


@pytest.mark.parametrize(
    "text",
    [
        "case,slice,class,slice_low,slice_high,row_low,row_high,column_low,column_high\n"
        "Case00,,1,1,5,3,9,4,11\nCase00,3,2,,,3,5,4,6\nCase01,,1,0,1,1,2,1,2\n",
        json.dumps(
            [
                {
                    "case": "Case00",
                    "class": 1,
                    "z_min": 1,
                    "z_max": 5,
                    "y_min": 3,
                    "y_max": 9,
                    "x_min": 4,
                    "x_max": 11,
                },
                {"case": "Case00", "class": 2, "slice": 3, "y_min": 3, "y_max": 5, "x_min": 4, "x_max": 6},
                {
                    "case": "Case01",
                    "class": 1,
                    "z_min": 0,
                    "z_max": 1,
                    "y_min": 1,
                    "y_max": 2,
                    "x_min": 1,
                    "x_max": 2,
                },
            ]
        ),
    ],
    ids=["csv", "json"],
)
def test_boxes_in_3d(tmp_path: Path, prepared: PreparedSet, text: str) -> None:
    assert read_boxes(written(tmp_path, text), prepared) == [
        BoxAnnotation("Case00", None, 1, (1, 3, 4), (5, 9, 11)),
        BoxAnnotation("Case00", 3, 2, (3, 4), (5, 6)),
        BoxAnnotation("Case01", None, 1, (0, 1, 1), (1, 2, 2)),
    ]


def test_a_class_named_like_a_number_is_meant_by_its_name(tmp_path: Path) -> None:
    prepared = PreparedSet(Path("s"), "s", Preprocessing((10, 10)), ("MR",), ("2", "1"), (case("A"),))
    notes = read_boxes(written(tmp_path, f"{HEADER}\nA,0,1,0,1,0,1\nA,0,2,0,1,0,1\n"), prepared)
    assert [note.label for note in notes] == [2, 1]


def test_a_class_by_its_label_in_the_masks(tmp_path: Path) -> None:
    """Not by its place among the classes: 2 is the second of 1, 2, but the first of 2, 4."""
    prepared = PreparedSet(
        Path("s"), "s", Preprocessing((10, 10)), ("MR",), ("zone", "lesion"), (case("A"),), (2, 4)
    )
    notes = read_boxes(written(tmp_path, f"{HEADER}\nA,0,2,0,1,0,1\nA,0,4,0,1,0,1\n"), prepared)
    assert [note.label for note in notes] == [1, 2]
    assert "class is '1'; s has 2 zone, 4 lesion" in refused(tmp_path, prepared, f"{HEADER}\nA,0,1,0,1,0,1\n")


def refused(tmp_path: Path, prepared: PreparedSet, content: Any, name: str = "boxes.csv") -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at the message
        read_boxes(written(tmp_path, content, name), prepared)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / name))
    return message.removeprefix(str(tmp_path / name))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Cas00,2,1,3,9,4,11", "case 'Cas00' is not in sets/mine; did you mean 'Case00'?"),
        ("xyz,2,1,3,9,4,11", "case 'xyz' is not in sets/mine; there is Case00, Case01, Case02"),
        (",2,1,3,9,4,11", "case is empty; the name of a case"),
        ("Case00,2,prostata,3,9,4,11", "class 'prostata' is not one of sets/mine; did you mean 'prostate'?"),
        ("Case00,2,3,3,9,4,11", "class is '3'; sets/mine has 1 prostate, 2 lesion"),
        ("Case00,2,0,3,9,4,11", "class is '0' (0 is the background); sets/mine has 1 prostate"),
        ("Case00,2,,3,9,4,11", "class is empty; a name or a number is needed: 1 prostate, 2 lesion"),
        ("Case00,5,1,3,9,4,11", "slice 5 is not in Case00, whose 5 slices are numbered from 0 to 4"),
        ("Case00,-1,1,3,9,4,11", "slice -1 is not in Case00"),
        ("Case00,1.5,1,3,9,4,11", "slice is '1.5'; a whole number is needed"),
        ("Case00,two,1,3,9,4,11", "slice is 'two', which is not a number"),
        ("Case00,,1,3,9,4,11", "slice is empty: give its number, from 0, or slice_low and slice_high"),
        (
            "Case00,2,1,3,21,4,11",
            "row_low 3 and row_high 21: not within the 20 rows of Case00, 0 to 20; boxes are in",
        ),
        ("Case00,2,1,3,9,4,31", "column_low 4 and column_high 31: not within the 30 columns of Case00"),
        ("Case00,2,1,-1,9,4,11", "row_low -1 and row_high 9: not within the 20 rows"),
        ("Case00,2,1,9,3,4,11", "row_low 9 and row_high 3: the lower end is above the upper one; swap them"),
        (
            "Case00,2,1,3,9,4,4",
            "column_low 4 and column_high 4: nothing is between them. column_high is one past the",
        ),
        ("Case00,2,1,3,nan,4,11", "row_high is 'nan', which is not a number"),
        ("Case00,2,1,3,inf,4,11", "row_high is 'inf', which is not a number"),
        ("Case00,2,1,3,1_0,4,11", "row_high is '1_0', which is not a number"),
        ("Case00,2,1,3,,4,11", "row_high is empty; a number is needed"),
        ("Case00,2,1,3,9,4", "6 fields, but the header has 7: 'Case00, 2, 1, 3, 9, 4'"),
        ("Case00,2,1,3,9,4,11,12", "8 fields, but the header has 7"),
        ("Case01,0,1,1,2,1,2", "this box is there already, at line 4: remove one of the two"),
    ],
    ids=str,
)
def test_a_bad_line_is_named(tmp_path: Path, prepared: PreparedSet, line: str, message: str) -> None:
    assert refused(tmp_path, prepared, f"{HEADER}\n{GOOD}{line}\n").startswith(f": line 5: {message}")


def test_lines_are_counted_as_an_editor_does(tmp_path: Path, prepared: PreparedSet) -> None:
    message = refused(
        tmp_path, prepared, f'{HEADER},note\nCase00,0,1,1,2,1,2,"over\ntwo lines"\n\nCase00,9,1,1,2,1,2,\n'
    )
    assert message.startswith(": line 5: slice 9")


def test_several_problems_are_told_at_once(tmp_path: Path, prepared: PreparedSet) -> None:
    bad = "Case00,0,1,9,3,4,11\nCase00,9,1,3,9,4,11\n"
    message = refused(tmp_path, prepared, f"{HEADER}\n{bad}{GOOD}Case00,2,1,3,9,4,11\n")
    first, *rest = message.splitlines()
    assert first == ": 3 problems:"
    assert [line.split(":")[0] for line in rest] == ["  line 2", "  line 3", "  line 7"]
    message = refused(tmp_path, prepared, f"{HEADER}\n" + bad * 1000)
    assert message.startswith(": the first 10 problems:")
    assert len(message.splitlines()) == 11


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "case,slice,class,row_low,column_low,column_high",
            "there is no row_high; there is case, slice, class, row",
        ),
        ("case,slice,class,x_min,x_max", "there is no row_low and no row_high; there is case, slice, class, x_min"),
        ("slice,class,x_min,x_max,y_min,y_max", "there is no case; there is slice, class, x_min"),
        ("case,slice,label,x_min,x_max,y_min,y_max", "there is no class; there is case, slice, label"),
        ("case,class,x_min,x_max,y_min,y_max", "there is no slice_low and no slice_high"),
        (f"{HEADER},x_min,x_max", "there is both column_low, column_high and x_min, x_max: leave one out"),
        (f"{HEADER},class", "the header names class more than once"),
        ("Case00,2,prostate,3,9,4,11", "there is no case and no class; there is Case00, 2"),
        ("hello", "there is no case and no class; there is hello"),
    ],
    ids=str,
)
def test_a_bad_header_is_told_once(tmp_path: Path, prepared: PreparedSet, header: str, message: str) -> None:
    rows = ",".join(["1"] * (header.count(",") + 1)) + "\n"
    told = refused(tmp_path, prepared, f"\n{header}\n" + rows * 3)
    assert told.lower().startswith(f": line 2: {message.lower()}")
    assert "\n" not in told


def test_a_box_is_in_a_slice_or_in_3d(tmp_path: Path, prepared: PreparedSet) -> None:
    header = f"{HEADER},slice_low,slice_high\n"
    message = refused(tmp_path, prepared, header + "Case00,2,1,3,9,4,11,2,3\n")
    assert message.startswith(": line 2: there is both slice and slice_low: a box is in one slice, or goes")
    message = refused(tmp_path, prepared, header + "Case00,2,1,3,9,4,11,,\nCase00,,1,3,9,4,11,2,4\n")
    assert (
        message
        == ": line 3: 'prostate' of Case00 has boxes in slices and in 3-D (the other: line 2): keep one kind"
    )
    message = refused(tmp_path, prepared, header + "Case00,,1,3,9,4,11,2,6\n")
    assert message.startswith(": line 2: slice_low 2 and slice_high 6: not within the 5 slices of Case00")
    message = refused(tmp_path, prepared, header + "Case00,,1,3,9,4,11,2,\n")
    assert message.startswith(": line 2: slice_high is empty")


def test_cases_and_classes_without_a_box(tmp_path: Path, prepared: PreparedSet) -> None:
    message = refused(tmp_path, prepared, f"{HEADER}\nCase00,2,1,3,9,4,11\nCase02,2,2,3,9,4,11\n")
    assert message.startswith(": no box at all for Case01, of the 2 cases for training: annotate it, or prepare")
    message = refused(
        tmp_path, prepared, f"{HEADER}\nCase00,2,1,3,9,4,11\nCase01,2,1,3,9,4,11\nCase02,2,2,3,9,4,11\n"
    )
    assert message.startswith(": no case for training has a box of lesion: a class without a box counts as absent")


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "b.csv", " is empty; it should hold boxes"),
        (" \n\n", "b.json", " is empty"),
        (HEADER, "b.csv", " holds no box at all"),
        ([], "b.json", " holds no box at all"),
        ("[1, 2,\n 3, }", "b.json", ": line 2, column 5: this is not JSON: Expecting value"),
        ("hello", "b.json", ": line 1, column 1: this is not JSON"),
        ("[" * 100_000, "b.json", " cannot be used: lists or names within each other, more than 64 levels deep"),
        ("[" + "1" * 5000 + "]", "b.json", " cannot be used: the number '111"),
        (f'{HEADER}\nCase00,"2,1', "b.csv", ": line 2: this is not CSV"),
        ("<annotation/>", "b.xml", " is not in a known format: it should be a .csv or a .json file"),
        (
            {"box": []},
            "b.json",
            ': it should hold a list of objects, or {"boxes": [...]}; this is an object with [\'box',
        ),
        ("3", "b.json", ': it should hold a list of objects, or {"boxes": [...]}; this is 3'),
        ([1], "b.json", ": boxes[0]: 1 is not an object with names and values"),
        (objects(row_low=None), "b.json", ": 3 problems:\n  boxes[0]: row_low is empty"),
        (
            objects(row_low=float("nan")),
            "b.json",
            " cannot be used: NaN is no number",
        ),
        (objects(row_low=True), "b.json", ": 3 problems:\n  boxes[0]: row_low is True, which is not a number"),
        (objects(row_low=10**400), "b.json", " cannot be used: the number '1000"),
        (objects(row_low=[1] * 99), "b.json", ": 3 problems:\n  boxes[0]: row_low is [1, 1"),
        ([{"case": "Case00"}], "b.json", ": boxes[0]: there is no class; there is case"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_that_are_wrong_as_a_whole(
    tmp_path: Path, prepared: PreparedSet, content: Any, name: str, message: str
) -> None:
    assert refused(tmp_path, prepared, content, name).startswith(message)


def test_what_is_no_text_and_what_is_no_file(tmp_path: Path, prepared: PreparedSet) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(f"{HEADER}\nCas\xe9,1,1,1,2,1,2".encode("latin-1"))
    with pytest.raises(ValueError, match=r"b.csv: line 2: byte 0xe9 is not UTF-8; .* save as 'CSV UTF-8'"):
        read_boxes(path, prepared)
    with pytest.raises(FileNotFoundError, match=r"no.csv does not exist; a file with boxes is needed"):
        read_boxes(tmp_path / "no.csv", prepared)
    with pytest.raises(ValueError, match=r"is a folder; a file with boxes is needed"):
        read_boxes(tmp_path, prepared)


def test_written_boxes_read_back_as_themselves(tmp_path: Path, prepared: PreparedSet) -> None:
    in_3d = BoxAnnotation("Case01", None, 2, (0, 1, 2), (3, 20, 30))
    for notes in (EXPECTED, [*EXPECTED, in_3d]):
        path = tmp_path / f"{len(notes)}.csv"
        write_boxes_csv(path, notes, prepared)
        assert read_boxes(path, prepared) == notes
    assert (tmp_path / "3.csv").read_text().splitlines()[:2] == [HEADER, "Case00,2,prostate,3,9,4,11"]


def test_boxes_edited_by_hand_are_never_written_over(tmp_path: Path, prepared: PreparedSet) -> None:
    path = written(tmp_path, "mine")
    with pytest.raises(FileExistsError, match=r"boxes.csv exists already, perhaps with boxes edited by hand"):
        write_boxes_csv(path, EXPECTED, prepared)
    assert path.read_text() == "mine"


@given(
    case=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    label=st.sampled_from(["=x", "'@y", "-z", "a|b"]),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(case='=HYPERLINK("http://x";"y")', label="+1")
@example(case="'=1", label="@x")
@example(case="''-1", label="=x")
@example(case="a\rb", label="=x")
@example(case='"a\n=b"', label="=x")
@example(case="\t=1", label="=x")
def test_names_are_no_formulas_and_come_back(tmp_path: Path, case: str, label: str) -> None:
    """D13: whatever a case is called, its boxes are found again, and no spreadsheet computes a cell."""
    assume(case.strip() and "\0" not in case)
    one = Case(case, "train", "a.npz", "", (5, 20, 30), None, False)
    mine = PreparedSet(tmp_path, "mine", Preprocessing((10, 10)), ("MR",), (label,), (one,))
    path = tmp_path / "boxes.csv"
    path.unlink(missing_ok=True)
    boxes = [BoxAnnotation(case, 2, 1, (3, 4), (9, 11))]
    write_boxes_csv(path, boxes, mine)
    assert read_boxes(path, mine) == boxes
    with path.open(newline="", encoding="utf-8") as lines:
        cells = [cell for row in csv.reader(lines) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]


@pytest.mark.parametrize(("first", "between"), [("sep=;", ";"), ("SEP=,\r", ","), ("sep=\t", "\t")])
def test_a_line_for_excel_is_no_header(tmp_path: Path, prepared: PreparedSet, first: str, between: str) -> None:
    rows = f"{HEADER}\nCase00,0,1,0,1,0,1\nCase00,0,9,0,1,0,1\n".replace(",", between)
    with pytest.raises(ValueError, match=r"line 4: class is '9'"):
        read_boxes(written(tmp_path, f"{first}\n{rows}"), prepared)
