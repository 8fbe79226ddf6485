"""The table of boxes that lies in the folder of a data set, beside its images: which cases and classes it names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringfence.documents import parse_json
from ringfence.files import checksum_of
from ringfence.hints import listed, shown
from ringfence.weak.tables.coco import case_and_slice, file_of, identity, is_coco, stem
from ringfence.weak.tables.csv_table import csv_table
from ringfence.weak.tables.json_table import json_table
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import is_json, table_text
from ringfence.weak.volumes.formats import is_png

NAMES: Final = ("boxes.csv", "boxes.json")
MOST: Final = 255
"""Classes: masks are bytes."""


@dataclass(frozen=True)
class BoxTable:
    """A file of boxes, as it was when it was read.

    Attributes:
        path: where it lies.
        text: what it held.
    """

    path: Path
    text: str

    @property
    def name(self) -> str:
        """What it is called in a prepared set, whatever it is called elsewhere."""
        return NAMES[is_json(self.path, self.text)]

    @property
    def sha256(self) -> str:
        """Of what it held."""
        return checksum_of(self.text.encode())

    def cases(self, images: Mapping[str, Path], pictures: Collection[str] = ()) -> dict[str, str]:
        """Where each case is first named.

        Args:
            images: the files there are, by their names without endings: in COCO they may be called by these.
            pictures: names of PNGs that lie beside them, and are none of them.
        """
        found: dict[str, str] = {}
        for where, name in self._cases(images, pictures):
            found.setdefault(name, where)
        return found

    def classes(self) -> tuple[str, ...]:
        """The classes that have boxes: numbers by their value, then names."""
        problems, found = Problems(self.path), dict[str, str]()
        for where, value in self._classes():
            with problems.at(where):
                name = _class(value)
                other = found.setdefault(name.casefold(), name)
                if other != name:
                    raise ValueError(f"class {shown(name)}, and {shown(other)} before: are they the same?")
            if problems.enough:
                break
        problems.check()
        if not found:
            raise ValueError(f"{self.path} holds no box at all")
        if len(found) > MOST:
            raise ValueError(
                f"{self.path} names {len(found)} classes, and at most {MOST} can be: is the column 'class' right?"
            )
        return tuple(sorted(found.values(), key=_order))

    @property
    def _coco(self) -> dict[str, Any] | None:
        if not is_json(self.path, self.text):
            return None
        content = parse_json(self.text, str(self.path))
        return content if is_coco(content) else None

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if is_json(self.path, self.text):
            table = json_table(self.path, parse_json(self.text, str(self.path)), "boxes")
        else:
            table = csv_table(self.path, self.text)
        for row in [*([table.header] if table.header else []), *table.rows]:
            if missing := [name for name in ("case", "class") if name not in row.fields]:
                there = listed(name for name in row.fields if name) or "nothing"
                raise ValueError(
                    f"{self.path}: {row.where}: there is no {' and no '.join(missing)}; there is {there}"
                )
        yield from table.rows

    def _cases(self, images: Mapping[str, Path], pictures: Collection[str]) -> Iterator[tuple[str, str]]:
        content = self._coco
        if content is None:
            yield from (
                (where, str(fields["case"]).strip())
                for where, fields in self._rows()
                if fields.get("case") is not None
            )
            return
        slices = content.get("images")
        for number, one in enumerate(slices if isinstance(slices, list) else ()):
            name = _case(one.get("file_name"), images, pictures) if isinstance(one, dict) else None
            if name is not None:  # else it is told when it is read
                yield f"images[{number}]", name

    def _classes(self) -> Iterator[tuple[str, Any]]:
        content = self._coco
        if content is None:
            yield from ((where, fields["class"]) for where, fields in self._rows())
            return
        parts = [content.get(name) for name in ("categories", "annotations")]
        if not all(isinstance(part, list) and all(isinstance(one, dict) for one in part) for part in parts):
            raise ValueError(f"{self.path}: a COCO file has lists of images, annotations and categories")
        categories, annotations = (list[dict[str, Any]](part or ()) for part in parts)
        used = {identity(one.get("category_id")) for one in annotations}
        for number, one in enumerate(categories):
            if identity(one.get("id")) in used:
                yield f"categories[{number}]", one.get("name")


def table_beside(folder: Path) -> BoxTable | None:
    """The table of boxes in a folder, if there is one; two are refused, for they may differ."""
    found = [folder / name for name in NAMES if (folder / name).is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} holds both {' and '.join(NAMES)}: remove one of them")
    return BoxTable(found[0], table_text(found[0], "boxes")) if found else None


def _case(file_name: Any, images: Mapping[str, Path], pictures: Collection[str]) -> str | None:
    """The case of an image in COCO: a PNG of this name, or what has such a slice, or a file with another ending.

    If none is there, it is told as what it was meant for: where all are PNGs, or a picture has this name, an image;
    else a slice.
    """
    name, place = stem(file_name), case_and_slice(file_name)
    there = images.get(name)
    if there is not None and is_png(there) and there.name == file_of(file_name):
        return name
    if place is not None and (place[0] in images or f"{place[0]}_0000" in images):
        return place[0]
    if there is not None:
        return name
    if place is None:
        return None
    return name if name in pictures or (images and all(map(is_png, images.values()))) else place[0]


def _class(value: Any) -> str:
    """The name of a class; of a whole number its digits, however it is written."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise ValueError(f"class is {shown(value)}: a name or a whole number is needed")
    name = str(value).strip()
    whole, point, zeros = name.partition(".")
    return whole if point and whole.isdecimal() and not zeros.strip("0") else name


def _order(name: str) -> tuple[bool, int, str]:
    number = name.isdecimal() and len(name) <= len(str(MOST))
    return not number, int(name) if number else 0, name
