"""COCO: images (one slice each), categories (named as the classes), annotations.

An image is named after case and slice, or as a case of a single slice.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ringfence.hints import shown
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.annotations.coordinates import Drawn
from ringfence.weak.annotations.interval import extent
from ringfence.weak.annotations.parsing import (
    Fields,
    case_named,
    check_present,
    checked_slice,
    is_empty,
    label_named,
    number,
)
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tables.coco import case_and_slice, identity, stem
from ringfence.weak.tables.problems import Problems

PARTS: Final = ("images", "annotations", "categories")


def coco_boxes(
    path: Path, content: Mapping[str, Any], prepared: PreparedSet, problems: Problems, drawn: list[Drawn]
) -> Iterator[tuple[str, BoxAnnotation]]:
    """Each annotation's place in the file, and the box; what is wrong is noted in ``problems``.

    ``drawn`` gets all boxes as they stand there, also those that do not fit.
    """
    for part in PARTS:
        if not isinstance(content.get(part), list):
            raise ValueError(
                f"{path}: a COCO file has lists of {', '.join(PARTS)}; {part} is missing or not a list"
            )
    images = _images(content["images"], prepared, problems)
    categories = _categories(content["categories"], problems)
    problems.check()
    for index, one in enumerate(content["annotations"]):
        where = f"annotations[{index}]"
        with problems.at(where):
            fields = _object(one)
            check_present(("image_id", "category_id", "bbox"), fields)
            if (image := identity(fields["image_id"])) not in images:
                raise ValueError(f"image_id {shown(fields['image_id'])} is not the id of any of the images")
            place = images[image]
            if place is not None:
                yield where, _annotation(fields, place, categories, prepared, drawn)
        if problems.enough:
            return


def _images(entries: list[Any], prepared: PreparedSet, problems: Problems) -> dict[str, tuple[Case, int] | None]:
    """Case and slice of each image, by its id; None of a case that the set was prepared without."""
    images: dict[str, tuple[Case, int] | None] = {}
    places: dict[tuple[str, int], int] = {}
    names = {case.name.strip() for case in prepared.cases}
    single = {case.name.strip(): case for case in prepared.cases if case.shape[0] == 1}
    for index, one in enumerate(entries):
        with problems.at(f"images[{index}]"):
            fields = _object(one)
            check_present(("id", "file_name"), fields)
            found = _place(fields["file_name"], prepared, names, single)
            if found is None:
                _add(images, fields["id"], None)
                continue
            case, place = found
            for name, length in (("height", case.shape[1]), ("width", case.shape[2])):
                if not is_empty(fields.get(name)) and number(fields, name) != length:
                    raise ValueError(
                        f"{name} is {shown(fields[name])}, but slices of {case.title} have {length} in the source, "
                        "before it is resized"
                    )
            other = places.setdefault((case.name, place), index)
            if other != index:
                raise ValueError(f"slice {place} of {case.title} is images[{other}] as well")
            _add(images, fields["id"], (case, place))
        if problems.enough:
            break
    return images


def _categories(entries: list[Any], problems: Problems) -> dict[str, str]:
    """Name of each category, by its id; those that no annotation uses may be anything."""
    categories: dict[str, str] = {}
    for index, one in enumerate(entries):
        with problems.at(f"categories[{index}]"):
            fields = _object(one)
            check_present(("id", "name"), fields)
            _add(categories, fields["id"], str(fields["name"]).strip())
        if problems.enough:
            break
    return categories


def _annotation(
    fields: Fields,
    image: tuple[Case, int],
    categories: Mapping[str, str],
    prepared: PreparedSet,
    drawn: list[Drawn],
) -> BoxAnnotation:
    if fields.get("iscrowd"):
        raise ValueError("iscrowd is set: a box around many objects is not tight around one; remove it")
    if (category := identity(fields["category_id"])) not in categories:
        raise ValueError(f"category_id {shown(fields['category_id'])} is not the id of any of the categories")
    case, place = image
    label = label_named(categories[category], prepared)
    box = fields["bbox"]
    if not isinstance(box, list) or len(box) != 4:
        raise ValueError(f"bbox is {shown(box)}; [x, y, width, height] is needed")
    named = dict(zip(("x", "y", "width", "height"), box, strict=True))
    x, y, width, height = (number(named, name) for name in named)
    drawn.append(Drawn(case, place, ((y, y + height), (x, x + width))))
    top, bottom = extent(y, y + height, ("y", "y + height"), 1, case)
    left, right = extent(x, x + width, ("x", "x + width"), 2, case)
    return BoxAnnotation(case.name, place, label, (top, left), (bottom, right))


def _place(
    file_name: Any, prepared: PreparedSet, names: Container[str], single: Mapping[str, Case]
) -> tuple[Case, int] | None:
    """Case and slice of an image; None of a case that the set was prepared without.

    Args:
        file_name: of the image.
        prepared: the set.
        names: of its cases.
        single: those of one slice, which may be called as they are.
    """
    itself, found = stem(file_name), case_and_slice(file_name)
    if itself in single:
        return single[itself], 0
    if found and found[0] in prepared.left_out:
        return None
    if not found or found[0] not in names:
        if itself in prepared.left_out:
            return None
        if len(single) == len(prepared.cases):
            return case_named(itself, prepared), 0  # which says what is near
    if not found:
        raise ValueError(
            f"file_name {shown(file_name)} should say which slice it is: CASE_SLICE.png or CASE/SLICE.png, "
            "slices numbered from 0"
        )
    case = case_named(found[0], prepared)
    return case, checked_slice(found[1], case)


def _add(entries: dict[str, Any], key: Any, value: Any) -> None:
    name = identity(key)
    if name in entries:
        raise ValueError(f"id {shown(key)} is there more than once")
    entries[name] = value


def _object(one: Any) -> Fields:
    if not isinstance(one, dict):
        raise ValueError(f"{shown(one)} is not an object with names and values")
    return one
