"""Files of boxes, of sizes and of scribbles, for a prepared set of two cases."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any, ClassVar

from faults.mutations.trees import mutate_rows, mutate_tree, to_json
from faults.reader import Reader, expect
from ringfence.weak.annotations import read_boxes, read_scribbles, read_sizes
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.prepared.preprocessing import Preprocessing

SHAPE = (4, 24, 20)
CASES = ("case0", "case1", "case2")


class _Annotations(Reader):
    ending: ClassVar[str] = ".json"
    inputs: list[Any]

    def prepare(self, folder: Path) -> None:
        cases = tuple(
            Case(
                name,
                "validation" if name == CASES[-1] else "train",
                f"{name}.npz",
                "0" * 64,
                SHAPE,
                (3.0, 1.0, 1.0),
                True,
            )
            for name in CASES
        )
        self.prepared = PreparedSet(folder, "set", Preprocessing((24, 20)), ("T2",), ("gland", "lesion"), cases)
        self.inputs = self.made()

    def made(self) -> list[Any]:
        raise NotImplementedError

    @property
    def valid(self) -> int:
        return len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / f"annotations{self.ending}"
        if number < self.valid:
            path.write_text(json.dumps(self.inputs[number]))
        else:
            path.write_bytes(to_json(rng, mutate_tree(rng, rng.choice(self.inputs))))
        return path

    def read(self, path: Path) -> Any:
        return read_boxes(path, self.prepared)

    def check(self, path: Path, found: Any) -> str | None:
        for box in found:
            expect(box.case in CASES and box.label in (1, 2), f"{box}")
            expect(box.slice is None or (type(box.slice) is int and 0 <= box.slice < SHAPE[0]), f"{box}")
            sides = SHAPE if box.slice is None else SHAPE[1:]
            for low, high, side in zip(box.low, box.high, sides, strict=True):
                expect(type(low) is int and type(high) is int and 0 <= low < high <= side, f"{box}")
        return None


def _boxes() -> list[dict[str, Any]]:
    return [
        {
            "case": case,
            "slice": place,
            "class": name,
            "row_low": 2 + place,
            "row_high": 9,
            "column_low": 3,
            "column_high": 10 + place,
        }
        for case in CASES
        for place in (0, 1)
        for name in ("gland", "lesion")
    ]


class BoxesCsv(_Annotations):
    """Boxes as CSV."""

    name: ClassVar[str] = "boxes-csv"
    ending: ClassVar[str] = ".csv"

    def made(self) -> list[Any]:
        rows = _boxes()
        wide = [["case", "slice_low", "slice_high", "class", "row_low", "row_high", "column_low", "column_high"]]
        wide += [[case, 0, 3, name, 2, 9, 3, 10] for case in CASES for name in ("gland", "lesion")]
        return [[list(rows[0]), *([row[name] for name in row] for row in rows)], wide]

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / f"annotations{self.ending}"
        header, *rows = self.inputs[number] if number < self.valid else rng.choice(self.inputs)
        if number < self.valid:
            path.write_text("\n".join(",".join(map(str, row)) for row in (header, *rows)) + "\n")
        else:
            path.write_bytes(mutate_rows(rng, header, rows))
        return path


class BoxesJson(_Annotations):
    """Boxes as JSON."""

    name: ClassVar[str] = "boxes-json"

    def made(self) -> list[Any]:
        return [_boxes(), {"boxes": _boxes()}]


class Coco(_Annotations):
    """Boxes as COCO."""

    name: ClassVar[str] = "coco"

    def made(self) -> list[Any]:
        images = [
            {"id": n, "file_name": f"{case}_{place}.png", "height": 24, "width": 20}
            for n, (case, place) in enumerate((c, p) for c in CASES for p in (0, 1))
        ]
        boxes = [
            {"id": n, "image_id": n % 6, "category_id": 1 + n // 6, "bbox": [3, 2, 7.0, 8], "iscrowd": 0}
            for n in range(12)
        ]
        return [
            {
                "images": images,
                "categories": [{"id": 1, "name": "gland"}, {"id": 2, "name": "lesion"}],
                "annotations": boxes,
            }
        ]


class Sizes(_Annotations):
    """Bounds on sizes as CSV or JSON."""

    name: ClassVar[str] = "sizes"

    def made(self) -> list[Any]:
        rows = [
            {"case": case, "slice": place, "class": name, "low": 5, "high": 40.5}
            for case in CASES
            for place in (0, None)
            for name in ("gland", "lesion")
        ]
        return [rows, {"sizes": rows}]

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        if number < self.valid or rng.random() < 0.5:
            return super().write(folder, rng, number)
        path = folder / "annotations.csv"
        rows = [["" if value is None else value for value in row.values()] for row in self.inputs[0]]
        path.write_bytes(mutate_rows(rng, list(self.inputs[0][0]), rows))
        return path

    def read(self, path: Path) -> Any:
        return read_sizes(path, self.prepared)

    def check(self, path: Path, found: Any) -> str | None:
        for size in found:
            expect(size.case in CASES and size.label in (1, 2), f"{size}")
            expect(
                (size.low <= size.high and not math.isnan(size.low + size.high)) or size.low == -math.inf, f"{size}"
            )
            expect(size.slice is None or (type(size.slice) is int and 0 <= size.slice < SHAPE[0]), f"{size}")
            expect(not math.isfinite(size.low) or 0 <= size.low <= math.prod(SHAPE), f"{size}")
        return None


class Scribbles(_Annotations):
    """Points of scribbles as JSON."""

    name: ClassVar[str] = "scribbles"

    def made(self) -> list[Any]:
        rows = [
            {"case": case, "slice": place, "class": name, "row": 3 + place, "column": 4 + number}
            for case in CASES
            for place in (0, 1)
            for number, name in enumerate(("gland", "lesion", "background"))
        ]
        return [rows, {"scribbles": rows}]

    def read(self, path: Path) -> Any:
        return read_scribbles(path, self.prepared)

    def check(self, path: Path, found: Any) -> str | None:
        for point in found:
            expect(point.case in CASES and point.label in (0, 1, 2), f"{point}")
            for place, side in zip((point.slice, point.row, point.column), SHAPE, strict=True):
                expect(type(place) is int and 0 <= place < side, f"{point}")
        expect(len({(one.case, one.slice, one.row, one.column) for one in found}) == len(found), "twice")
        return None
