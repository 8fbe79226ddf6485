"""The table of boxes that lies in the folder of a data set, beside its images, and the classes that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ringfence.documents import parse_json
from ringfence.weak.tables.csv_table import csv_table
from ringfence.weak.tables.json_table import identity, is_coco, json_table
from ringfence.weak.tables.table import is_json, table_text

BOXES: Final = ("boxes.csv", "boxes.json")


def boxes_beside(folder: Path) -> Path | None:
    """The file of boxes in a folder, if there is one; two are refused, for they may differ."""
    found = [folder / name for name in BOXES if (folder / name).is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} holds both {' and '.join(BOXES)}: remove one of them")
    return found[0] if found else None


def classes_in(path: Path) -> tuple[str, ...]:
    """The names of the classes that have boxes in a file: in order, numbers by their value."""
    names = set()
    for name in _named(path):
        if name is None or not str(name).strip():
            raise ValueError(f"{path}: a box has no class: each needs the name of one")
        names.add(str(name).strip())
    if not names:
        raise ValueError(f"{path} holds no box at all")
    return tuple(sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)))


def _named(path: Path) -> Iterator[Any]:
    text = table_text(path, "boxes")
    if not is_json(path, text):
        rows = csv_table(path, text).rows
    else:
        content = parse_json(text, str(path))
        if is_coco(content):
            yield from _categories(path, content)
            return
        rows = json_table(path, content, "boxes").rows
    for row in rows:
        if "class" not in row.fields:
            raise ValueError(f"{path}: {row.where}: there is no class")
        yield row.fields["class"]


def _categories(path: Path, content: dict[str, Any]) -> Iterator[Any]:
    """Of COCO, the names of the categories that have annotations."""
    parts = [content.get(name) for name in ("categories", "annotations")]
    if not all(isinstance(part, list) and all(isinstance(one, dict) for one in part) for part in parts):
        raise ValueError(f"{path}: a COCO file has lists of images, annotations and categories")
    categories, annotations = (list[dict[str, Any]](part or ()) for part in parts)
    used = {identity(one.get("category_id")) for one in annotations}
    for one in categories:
        if identity(one.get("id")) in used:
            yield one.get("name")
