"""A prepared set: every case as small arrays of the same in-plane size, and a manifest that says what they are.

    manifest.json     format, name, preprocessing, channels, classes, the classes' labels in the source, and for
                      each case: file, checksum, split, native shape, spacing where known, whether it has a mask
    CASE.npz          image uint8 [slices, channels, height, width]; mask uint8 [slices, height, width] if it has
                      one, 0 for background and k for the k-th of the classes

Nothing in it is pickled, so a set from elsewhere is safe to read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.files import write_text
from ringfence.hints import shown
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.prepared.summary import as_html, as_text, counted

MANIFEST: Final = "manifest.json"
FORMAT: Final = "ringfence prepared set 2"
FIRST_FORMAT: Final = "ringfence prepared set 1"

Split: TypeAlias = Literal["train", "validation"]


@dataclass(frozen=True)
class Case:
    """One patient.

    Attributes:
        name: as in the source's file names.
        split: what it is for.
        file: its arrays, in the set's folder.
        sha256: of that file.
        shape: of the source's volume: slices, height, width.
        spacing: millimetres between voxels along z, y, x in the source; None if unknown.
        masked: whether it has a mask.
    """

    name: str
    split: Split
    file: str
    sha256: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    masked: bool


@dataclass(frozen=True, repr=False)
class PreparedSet:
    """What ``ringfence prepare`` wrote.

    Attributes:
        path: its folder.
        name: of the data set.
        preprocessing: how the source's voxels became the set's.
        channels: names of the images' channels.
        classes: names of the foreground classes; the k-th is k in the prepared masks.
        cases: all of them.
        labels: the classes' values in the source's masks, in the same order; default: 1, 2, ...
    """

    path: Path
    name: str
    preprocessing: Preprocessing
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    cases: tuple[Case, ...]
    labels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", checked_labels(self.labels, self.classes))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every slice."""
        return self.preprocessing.size

    def of(self, split: Split) -> tuple[Case, ...]:
        """The cases of a split."""
        return tuple(case for case in self.cases if case.split == split)

    def load(self, case: Case) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
        """A case's image ``[slices, channels, height, width]`` and its mask ``[slices, height, width]``, if any."""
        path = self.path / case.file
        try:
            with np.load(path, allow_pickle=False) as arrays:
                image, mask = arrays["image"], arrays["mask"] if case.masked else None
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} is missing: prepare the set again") from None
        except Exception as error:  # zipfile's, zlib's, NumPy's own
            raise ValueError(f"{path} is damaged ({type(error).__name__}): prepare the set again") from None
        expected = (case.shape[0], len(self.channels), *self.size)
        if image.shape != expected or (mask is not None and mask.shape != (expected[0], *self.size)):
            raise ValueError(f"{path}: an image {list(image.shape)}, but {MANIFEST} says {list(expected)}")
        if mask is not None and int(mask.max(initial=0)) > len(self.classes):
            raise ValueError(
                f"{path}: label {mask.max()} in its mask, and {len(self.classes)} classes in {MANIFEST}"
            )
        return image, mask

    def write_manifest(self) -> None:
        """Write the manifest, last of all: a folder without one is not a prepared set."""
        facts = {
            "format": FORMAT,
            "name": self.name,
            "preprocessing": self.preprocessing.to_facts(),
            "channels": self.channels,
            "classes": self.classes,
            "labels": self.labels,
            "cases": [asdict(case) for case in self.cases],
        }
        write_text(self.path / MANIFEST, json.dumps(facts, indent=1) + "\n")

    def rows(self, split: str = "") -> list[tuple[str, str]]:
        """What there is to say of the set, by name; ``split`` says where the choice of validation cases is from."""
        masked = sum(case.masked for case in self.cases)
        words = f" ({split})" if split else ""
        return [
            ("train", counted(case.shape[0] for case in self.of("train"))),
            ("validation", counted(case.shape[0] for case in self.of("validation")) + words),
            ("masks", f"{masked} with, {len(self.cases) - masked} without"),
            ("size", "{} × {}".format(*self.size)),
            ("channels", ", ".join(self.channels)),
            ("classes", ", ".join(self.classes)),
            ("folder", str(self.path)),
        ]

    def _title(self) -> str:
        return f"{self.name}: {counted(case.shape[0] for case in self.cases)}"

    def __str__(self) -> str:
        return as_text(self._title(), self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self._title(), self.rows())


def read_prepared(path: str | Path) -> PreparedSet:
    """Read the manifest of a prepared set; its arrays are read by ``load``."""
    path = Path(path)
    if path.name == MANIFEST and path.is_file():  # it was meant so
        path = path.parent
    file = path / MANIFEST
    if not file.exists():
        raise FileNotFoundError(
            f"{path} is not a prepared set: there is no {MANIFEST} in it. Make one with `ringfence prepare`"
        )
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        prepared = PreparedSet(
            path,
            str(facts["name"]),
            _preprocessing(facts),
            tuple(map(str, facts["channels"])),
            tuple(map(str, facts["classes"])),
            tuple(_case(one) for one in facts["cases"]),
            tuple(facts.get("labels", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{file} cannot be used: {what}") from None
    _check_split(file, prepared)
    return prepared


def checked_labels(labels: Sequence[int], classes: Sequence[str]) -> tuple[int, ...]:
    """The classes' values in masks: 1, 2, ... by default; each must be from 1 to 255, and different."""
    found = tuple(labels) or tuple(range(1, 1 + len(classes)))
    if (
        len(found) != len(classes)
        or len(set(found)) != len(found)
        or not all(type(label) is int and 1 <= label <= 255 for label in found)
    ):
        raise ValueError(f"labels {list(found)}: each of {', '.join(classes)} has one of its own, from 1 to 255")
    return found


def _preprocessing(facts: Any) -> Preprocessing:
    """What the manifest says of it; format 1 had no choice of percentiles."""
    if facts["format"] == FORMAT:
        return Preprocessing.from_facts(facts["preprocessing"])
    if facts["format"] == FIRST_FORMAT:
        return Preprocessing(tuple(facts["size"]), (0.5, 99.5))
    raise ValueError(
        f"its format is {shown(facts['format'])}, and this version reads '{FORMAT}' and older: get a newer "
        "ringfence, or prepare the set again"
    )


def _case(facts: Any) -> Case:
    if facts["split"] not in ("train", "validation"):
        raise ValueError(f"case {facts['name']} is in split '{facts['split']}': train or validation")
    name = Path(str(facts["file"]))
    if name.name != str(name):
        raise ValueError(f"case {facts['name']}: its file '{name}' should be in the set's own folder")
    slices, height, width = (int(value) for value in facts["shape"])
    spacing = None
    if facts["spacing"] is not None:
        depth, row, column = (float(value) for value in facts["spacing"])
        spacing = (depth, row, column)
    return Case(
        str(facts["name"]),
        facts["split"],
        str(name),
        str(facts["sha256"]),
        (slices, height, width),
        spacing,
        bool(facts["masked"]),
    )


def _check_split(file: Path, prepared: PreparedSet) -> None:
    names = [case.name for case in prepared.cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{file}: {', '.join(twice)} is there more than once; no patient may be in both splits")
