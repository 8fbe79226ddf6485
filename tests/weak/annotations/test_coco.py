"""Boxes from COCO: what is read, and what every mistake is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.weak.annotations import BoxAnnotation, read_boxes
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

EXPECTED = [
    BoxAnnotation("Case00", 2, 1, (3, 4), (9, 11)),
    BoxAnnotation("Case00", 1, 2, (3, 4), (5, 6)),
    BoxAnnotation("Case01", 0, 1, (1, 1), (2, 2)),
]


def a_set(names: tuple[str, ...], classes: tuple[str, ...]) -> PreparedSet:
    cases = tuple(Case(name, "train", f"{name}.npz", "", (5, 20, 30), None, False) for name in names)
    return PreparedSet(Path("sets/mine"), "mine", Preprocessing((10, 10)), ("MR",), classes, cases)


@pytest.fixture
def prepared() -> PreparedSet:
    return a_set(("Case00", "Case01"), ("prostate", "lesion"))


def written(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "coco.json"
    path.write_text(json.dumps(content))
    return path


def refused(tmp_path: Path, prepared: PreparedSet, content: Any) -> str:
    path = written(tmp_path, content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at the message
        read_boxes(path, prepared)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def coco(**change: Any) -> dict[str, Any]:
    return {
        "images": [
            {"id": 7, "file_name": "images/Case00_2.png", "height": 20, "width": 30},
            {"id": 8, "file_name": "Case00/001.png"},
            {"id": "a", "file_name": "C:\\slices\\Case01_000.jpeg", "height": 20.0, "width": 30},
            {"id": 9, "file_name": "Case01_3.png"},  # nothing there
        ],
        "categories": [{"id": 40, "name": "prostate"}, {"id": 3, "name": "lesion"}, {"id": 1, "name": "bladder"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 40, "bbox": [4.0, 3.4, 6.3, 5.1], "iscrowd": 0},
            {"id": 2, "image_id": 8, "category_id": 3, "bbox": [4, 3, 2, 2]},
            # 1.2 and 0.8 in single precision end at 2.00000006
            {"id": 3, "image_id": "a", "category_id": 40, "bbox": [1.2000000476837158, 1, 0.800000011920929, 1]},
        ],
    } | change


def test_coco(tmp_path: Path, prepared: PreparedSet) -> None:
    assert read_boxes(written(tmp_path, coco()), prepared) == EXPECTED


def test_several_boxes_of_a_class_in_an_image(tmp_path: Path, prepared: PreparedSet) -> None:
    content = coco()
    content["annotations"].append({"image_id": 7, "category_id": 40, "bbox": [20, 3, 6, 5]})
    assert read_boxes(written(tmp_path, content), prepared) == [
        *EXPECTED,
        BoxAnnotation("Case00", 2, 1, (3, 20), (8, 26)),
    ]
    content["annotations"].append(content["annotations"][0])
    assert refused(tmp_path, prepared, content).startswith(
        ": annotations[4]: this box is there already, at annotations[0]: remove one of the two"
    )


def test_names_of_cases_may_hold_what_separates_a_slice(tmp_path: Path) -> None:
    names = ("BRATS_001", "1.2.840.55", "007")
    prepared = a_set(names, ("prostate",))
    files = ("BRATS_001_3.png", "x/1.2.840.55_3.nii.gz", "007/3")
    content = coco(
        images=[{"id": index, "file_name": name} for index, name in enumerate(files)],
        annotations=[{"image_id": index, "category_id": 40, "bbox": [1, 2, 3, 4]} for index in range(3)],
    )
    notes = read_boxes(written(tmp_path, content), prepared)
    assert [(note.case, note.slice) for note in notes] == [(name, 3) for name in names]


def changed(part: str, **change: Any) -> dict[str, Any]:
    content = coco()
    content[part][-1] |= change
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (coco(annotations=[]), " holds no box at all"),
        (
            coco(categories=None),
            ": a COCO file has lists of images, annotations, categories; categories is missing",
        ),
        (
            changed("images", file_name="Case01.png"),
            ": images[3]: file_name 'Case01.png' should say which slice it is",
        ),
        (
            changed("images", file_name="Case11_3.png"),
            ": images[3]: case 'Case11' is not in sets/mine; did you mean",
        ),
        (changed("images", file_name="Case01_5.png"), ": images[3]: slice 5 is not in Case01, whose 5 slices"),
        (changed("images", file_name="Case01_0.png"), ": images[3]: slice 0 of Case01 is images[2] as well"),
        (changed("images", height=10), ": images[3]: height is 10, but slices of Case01 have 20 in the source"),
        (changed("images", id=7), ": images[3]: id 7 is there more than once"),
        (coco(images=[3]), ": images[0]: 3 is not an object with names and values"),
        (coco(images=[{"id": 3}]), ": images[0]: there is no file_name; there is id"),
        (changed("categories", id=40), ": categories[2]: id 40 is there more than once"),
        (changed("annotations", iscrowd=1), ": annotations[2]: iscrowd is set: a box around many objects is not"),
        (changed("annotations", image_id=5), ": annotations[2]: image_id 5 is not the id of any of the images"),
        (changed("annotations", category_id=5), ": annotations[2]: category_id 5 is not the id of any of the cat"),
        (
            changed("annotations", category_id=1),
            ": annotations[2]: class 'bladder' is not one of sets/mine; there is",
        ),
        (changed("annotations", bbox=[1, 2, 3]), ": annotations[2]: bbox is [1, 2, 3]; [x, y, width, height] is"),
        (changed("annotations", bbox=None), ": annotations[2]: bbox is None; [x, y, width, height] is needed"),
        (
            changed("annotations", bbox=[1, 2, 0, 3]),
            ": annotations[2]: x 1 and x + width 1: nothing is between them",
        ),
        (
            changed("annotations", bbox=[1, 2, 3, -1]),
            ": annotations[2]: y 2 and y + height 1: the lower end is above",
        ),
        (
            changed("annotations", bbox=[25, 2, 6, 3]),
            ": annotations[2]: x 25 and x + width 31: not within the 30 col",
        ),
        (
            changed("annotations", bbox=[2, 19, 6, 3]),
            ": annotations[2]: y 19 and y + height 22: not within the 20 rows",
        ),
        (changed("annotations", bbox=[1, "?", 6, 3]), ": annotations[2]: y is '?', which is not a number"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_coco_file(tmp_path: Path, prepared: PreparedSet, content: Any, message: str) -> None:
    assert refused(tmp_path, prepared, content).startswith(message)


def test_bad_annotations_are_told_together_and_not_without_end(tmp_path: Path, prepared: PreparedSet) -> None:
    message = refused(tmp_path, prepared, coco(annotations=[{}] * 5000))
    assert message.startswith(
        ": the first 10 problems:\n  annotations[0]: there is no image_id and no category_id and"
    )
    assert refused(tmp_path, prepared, coco(images=[{}] * 5000)).count("\n") == 10


def test_a_case_of_one_slice_is_named_as_it_is(tmp_path: Path) -> None:
    """im_3 is no slice of im there; what is a slice of another case still is, and a mistake is told."""
    prepared = a_set(("im", "im_3", "im_4"), ("prostate",))
    flat = Case("im_3", "train", "im_3.npz", "", (1, 20, 30), None, False)
    prepared = replace(prepared, cases=(prepared.cases[0], flat, prepared.cases[2]), left_out=("im_2",))
    files = ("a/im_3.jpeg", "im_2.png", "im_1.png", "im_4_0.png")
    content = coco(
        images=[{"id": index, "file_name": name} for index, name in enumerate(files)],
        annotations=[{"image_id": index, "category_id": 40, "bbox": [1, 2, 3, 4]} for index in range(4)],
    )
    notes = read_boxes(written(tmp_path, content), prepared)
    # a case that was left out might have been im's slice 2, which is there
    assert [(note.case, note.slice) for note in notes] == [("im_3", 0), ("im", 2), ("im", 1), ("im_4", 0)]
    alone = replace(prepared, cases=(flat,))
    content = coco(images=[{"id": 7, "file_name": "im_5.png"}])
    assert refused(tmp_path, alone, content).startswith(
        ": images[0]: case 'im_5' is not in sets/mine; did you mean 'im_3'?"
    )


def test_the_only_slice_is_not_counted_from_0_to_0(tmp_path: Path) -> None:
    prepared = a_set(("im",), ("prostate",))
    alone = replace(prepared, cases=(replace(prepared.cases[0], shape=(1, 20, 30)),))
    message = refused(tmp_path, alone, coco(images=[{"id": 7, "file_name": "im_5.png"}]))
    assert message.startswith(": images[0]: slice 5 is not in im, which has one slice, 0")
