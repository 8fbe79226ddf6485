"""Any boxes come back from any format; any garbage is a ValueError."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.weak.annotations import BoxAnnotation, read_boxes, read_sizes, write_boxes_csv
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

CLASSES = ("prostate", "a, b", '"quoted"; ß')
NAMES = ("Case00", "BRATS_001", "with space, comma")
SHAPE = (4, 20, 300)
CASES = tuple(Case(name, "train", f"{index}.npz", "", SHAPE, None, False) for index, name in enumerate(NAMES))
PREPARED = PreparedSet(Path("s"), "s", Preprocessing((10, 10)), ("MR",), CLASSES, CASES)
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ends(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), min_size=2, max_size=2, unique=True).map(sorted)


@st.composite
def notes(draw: Any, in_3d: bool) -> list[BoxAnnotation]:
    """One or two boxes for some slices and classes of every case, or of all of it; at least one of each class."""
    drawn = []
    for case in NAMES:
        for label in range(1, 1 + len(CLASSES)):
            volume = in_3d and draw(st.booleans())
            places: Any = [None] if volume else draw(st.sets(st.integers(0, SHAPE[0] - 1), min_size=1))
            for place in places:
                for _ in range(draw(st.integers(1, 2))):
                    sides = [draw(ends(length)) for length in (SHAPE if volume else SHAPE[1:])]
                    corners = (tuple(corner) for corner in zip(*sides, strict=True))
                    drawn.append(BoxAnnotation(case, place, label, *corners))
    return draw(st.permutations(list(dict.fromkeys(drawn))))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties") / "boxes"


@SLOW
@given(notes(in_3d=True))
def test_csv_brings_back_what_was_written(path: Path, drawn: list[BoxAnnotation]) -> None:
    file = path.with_suffix(".csv")
    file.unlink(missing_ok=True)
    write_boxes_csv(file, drawn, PREPARED)
    assert read_boxes(file, PREPARED) == drawn


@SLOW
@given(notes(in_3d=True), st.booleans())
def test_json_brings_back_what_was_written(path: Path, drawn: list[BoxAnnotation], wrapped: bool) -> None:
    rows = []
    for note in drawn:
        row: dict[str, Any] = {"case": note.case, "class": note.label}
        axes = ("slice", "row", "column")[-len(note.low) :]
        row |= {f"{axis}_low": low for axis, low in zip(axes, note.low, strict=True)}
        row |= {f"{axis}_high": high for axis, high in zip(axes, note.high, strict=True)}
        rows.append(row if note.slice is None else row | {"slice": note.slice})
    file = path.with_suffix(".json")
    file.write_text(json.dumps({"boxes": rows} if wrapped else rows))
    assert read_boxes(file, PREPARED) == drawn


@SLOW
@given(notes(in_3d=False), st.floats(0, 0.99), st.booleans())
def test_coco_brings_back_what_was_written(
    path: Path, drawn: list[BoxAnnotation], less: float, folders: bool
) -> None:
    """Also when the boxes are drawn a fraction of a pixel too small: every pixel that is touched counts."""
    less *= 0.5
    images = sorted({(note.case, note.slice) for note in drawn})
    content = {
        "images": [
            {"id": index, "file_name": f"{case}/{place:03}.png" if folders else f"in/{case}_{place}.png"}
            for index, (case, place) in enumerate(images)
        ],
        "categories": [{"id": 90 - index, "name": name} for index, name in enumerate(CLASSES)],
        "annotations": [
            {
                "image_id": images.index((note.case, note.slice)),
                "category_id": 91 - note.label,
                "bbox": [note.low[1] + less, note.low[0] + less]
                + [high - low - 1.9 * less for low, high in zip(note.low[::-1], note.high[::-1], strict=True)],
            }
            for note in drawn
        ],
    }
    file = path.with_suffix(".json")
    file.write_text(json.dumps(content))
    assert read_boxes(file, PREPARED) == drawn


HEADERS = st.sampled_from(
    [
        "case,slice,class,row_low,row_high,column_low,column_high",
        "case,slice,slice_low,slice_high,class,x_min,y_min,x_max,y_max",
        "case,slice,class,low,high",
    ]
)
CELL = st.one_of(
    st.text(max_size=8), st.sampled_from([*NAMES, *CLASSES, "", "nan", "-1", "1e400", '"']), st.integers().map(str)
)
JSONS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(NAMES)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        "boxes",
                        "sizes",
                        "images",
                        "annotations",
                        "categories",
                        "id",
                        "name",
                        "file_name",
                        "image_id",
                        "category_id",
                        "bbox",
                        "iscrowd",
                        "case",
                        "slice",
                        "class",
                        "row_low",
                        "row_high",
                        "x_min",
                        "x_max",
                        "low",
                        "high",
                    ]
                ),
                st.text(max_size=5),
            ),
            inner,
            max_size=9,
        ),
    ),
    max_leaves=25,
)


def both(file: Path) -> None:
    for read in (read_boxes, read_sizes):
        message = str(file)
        try:
            read(file, PREPARED)
        except ValueError as error:
            message = str(error)
        assert message.startswith(str(file))
        assert len(message) < 5000


@settings(SLOW, max_examples=150)
@given(st.one_of(st.text(), st.binary()), st.sampled_from([".csv", ".json", ".txt", ""]))
def test_garbage_is_a_value_error(path: Path, garbage: str | bytes, ending: str) -> None:
    file = path.with_suffix(ending)
    file.write_bytes(garbage if isinstance(garbage, bytes) else garbage.encode(errors="surrogatepass"))
    both(file)


@settings(SLOW, max_examples=150)
@given(HEADERS, st.lists(st.lists(CELL, max_size=9), max_size=15), st.booleans())
def test_tables_of_garbage_are_a_value_error(path: Path, header: str, rows: list[list[str]], quoted: bool) -> None:
    text = io.StringIO()
    if quoted:
        csv.writer(text).writerows(row[: header.count(",") + 1] for row in rows)
    else:
        text.write("\n".join(",".join(row) for row in rows))
    file = path.with_suffix(".csv")
    file.write_bytes(f"{header}\n{text.getvalue()}".encode(errors="surrogatepass"))
    both(file)


@settings(SLOW, max_examples=300)
@given(JSONS)
def test_json_of_garbage_is_a_value_error(path: Path, content: Any) -> None:
    file = path.with_suffix(".json")
    file.write_text(json.dumps(content))
    both(file)


@settings(SLOW, max_examples=200)
@given(st.data())
def test_a_coco_file_with_one_wrong_value_is_a_value_error_or_none(path: Path, data: Any) -> None:
    content: dict[str, Any] = {
        "images": [{"id": index, "file_name": f"{name}_1.png"} for index, name in enumerate(NAMES)],
        "categories": [{"id": index, "name": name} for index, name in enumerate(CLASSES)],
        "annotations": [
            {"image_id": image, "category_id": label, "bbox": [1, 2, 3, 4]}
            for image in range(3)
            for label in range(3)
        ],
    }
    entry = data.draw(st.sampled_from(content[data.draw(st.sampled_from(sorted(content)))]))
    entry[data.draw(st.sampled_from([*entry, "iscrowd", "height"]))] = data.draw(JSONS)
    file = path.with_suffix(".json")
    file.write_text(json.dumps(content))
    both(file)
