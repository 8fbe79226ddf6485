"""A prepared set: every case as small arrays of the same in-plane size, and a manifest that says what they are.

    manifest.json     format, name, preprocessing, channels, classes, the classes' labels in the source, and for
                      each case: file, checksum, split, native shape, spacing where known, whether it has a mask,
                      and where all have one spacing, which rows and columns its slices fill
    CASE.npz          image uint8 [slices, channels, height, width]; mask uint8 [slices, height, width] if it has
                      one, 0 for background and k for the k-th of the classes; not packed, so that slices and
                      patches can be read alone (older sets are packed)
    boxes.csv         the table of boxes that lay beside the images, as it was; or boxes.json

Nothing in it is pickled, so a set from elsewhere is safe to read; and a case is used only if its file is the one
that the manifest describes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence import memory
from ringfence.documents import read_json
from ringfence.files import checksum_of, read_bytes, write_text
from ringfence.hints import listed, one_line, shown
from ringfence.options import inside
from ringfence.weak.prepared import fields
from ringfence.weak.prepared.arrays import Damaged, most_bytes, promised_bytes, read_arrays
from ringfence.weak.prepared.case_file import CaseFile, find_arrays
from ringfence.weak.prepared.frame import Frame
from ringfence.weak.prepared.kept_boxes import KeptBoxes
from ringfence.weak.prepared.preprocessing import LARGEST, Preprocessing
from ringfence.weak.prepared.summary import as_html, as_text, counted

MANIFEST: Final = "manifest.json"
FORMAT: Final = "ringfence prepared set 2"
FIRST_FORMAT: Final = "ringfence prepared set 1"

MOST_CLASSES: Final = 255
"""Masks are bytes."""
MOST_CHANNELS: Final = 10_000
"""nnU-Net's files have four digits for them."""
MANIFEST_BYTES: Final = 100_000_000
"""Of the longest manifest that is read: hundreds of thousands of cases."""

Split: TypeAlias = Literal["train", "validation", "unused"]
"""What a case is for; unused are those for validation while others are cross-validated, and never in a manifest."""


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
        inside: start and stop of the rows and of the columns of prepared slices that its own fill, where these were
            brought to a common spacing: zeros are around them. None: they fill all.
    """

    name: str
    split: Split
    file: str
    sha256: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    masked: bool
    inside: tuple[tuple[int, int], tuple[int, int]] | None = None

    def frame(self, size: tuple[int, int]) -> Frame:
        """Where its slices lie in prepared ones, which are of this size."""
        height, width = self.shape[1:]
        if self.inside is None:
            return Frame((height, width), size, (0, 0), size)
        (top, bottom), (left, right) = self.inside
        return Frame((height, width), (bottom - top, right - left), (top, left), size)

    @property
    def title(self) -> str:
        """Its name as it can be printed: names come from other people's files."""
        return one_line(self.name)


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
        boxes: the table of boxes that came with it, if there is one.
        left_out: names of cases that failed, and are not in it; annotations of theirs are passed over.
    """

    path: Path
    name: str
    preprocessing: Preprocessing
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    cases: tuple[Case, ...]
    labels: tuple[int, ...] = ()
    boxes: KeptBoxes | None = None
    left_out: tuple[str, ...] = ()

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
        """A case's image ``[slices, channels, height, width]`` and its mask ``[slices, height, width]``, if any.

        Its file is read once, and must have the manifest's checksum.
        """
        path, shapes = self.path / case.file, self.shapes(case)
        name = one_line(str(path))
        memory.check(promised_bytes(shapes), name)
        try:
            content = read_bytes(path, most_bytes(shapes))
        except FileNotFoundError:
            raise FileNotFoundError(f"{name} is missing: prepare the set again") from None
        if checksum_of(content) != case.sha256:
            raise ValueError(
                f"{name} is not the file that {MANIFEST} describes (its checksum differs): prepare the set again"
            )
        try:
            if not content.startswith(b"PK\x03\x04"):  # a zip may have other bytes before it; a case's has none
                raise Damaged("it is no npz")
            arrays = read_arrays(content, shapes)
        except Damaged as error:
            raise ValueError(f"{name} is damaged ({one_line(str(error))}): prepare the set again") from None
        mask = arrays.get("mask")
        if mask is not None and int(mask.max(initial=0)) > len(self.classes):
            raise ValueError(
                f"{name}: label {mask.max()} in its mask, and {len(self.classes)} classes in {MANIFEST}"
            )
        return arrays["image"], mask

    def located(self, case: Case) -> CaseFile | None:
        """Where a case's arrays are in its file, for reading parts; None if they are packed, as in older sets.

        The file's content is not checked: :meth:`load` it after this, and then let the place ``check`` its file.
        """
        return find_arrays(self.path / case.file, self.shapes(case))

    def shapes(self, case: Case) -> dict[str, tuple[int, ...]]:
        """Those of a case's arrays, by name."""
        image = {"image": (case.shape[0], len(self.channels), *self.size)}
        return image | ({"mask": (case.shape[0], *self.size)} if case.masked else {})

    @property
    def nbytes(self) -> int:
        """What all images and masks take: a byte a voxel."""
        return sum(promised_bytes(self.shapes(case)) for case in self.cases)

    def write_manifest(self) -> None:
        """Write the manifest, last of all: a folder without one is not a prepared set."""
        facts = {
            "format": FORMAT,
            "name": self.name,
            "preprocessing": self.preprocessing.to_facts(),
            "channels": self.channels,
            "classes": self.classes,
            "labels": self.labels,
            **({"boxes": self.boxes.to_facts()} if self.boxes else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            "cases": [_facts(case) for case in self.cases],
        }
        write_text(self.path / MANIFEST, _manifest_text(facts))

    @property
    def manifest_sha256(self) -> str:
        """The SHA-256 of its manifest but for the table of boxes: a training may have others."""
        facts = fields.mapping(read_json(self.path / MANIFEST, MANIFEST_BYTES), "the whole")
        return checksum_of(_manifest_text({name: facts[name] for name in facts if name != "boxes"}).encode())

    def rows(self, split: str = "") -> list[tuple[str, str]]:
        """What there is to say of the set, by name; ``split`` says where the choice of validation cases is from."""
        masked = sum(case.masked for case in self.cases)
        words = f" ({split})" if split else ""
        return [
            ("train", counted(case.shape[0] for case in self.of("train"))),
            ("validation", counted(case.shape[0] for case in self.of("validation")) + words),
            ("masks", f"{masked} with, {len(self.cases) - masked} without"),
            *([("boxes", f"from {self.boxes.file}")] if self.boxes else []),
            ("size", "{} × {}".format(*self.size) + self._pixels),
            ("channels", ", ".join(self.channels)),
            ("classes", ", ".join(self.classes)),
            ("folder", str(self.path)),
        ]

    @property
    def _pixels(self) -> str:
        return f", pixels of {self.preprocessing.spacing:g} mm" if self.preprocessing.spacing else ""

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
    facts = read_json(file, MANIFEST_BYTES)
    try:
        facts = fields.mapping(facts, "the whole")
        preprocessing = _preprocessing(facts)
        prepared = PreparedSet(
            path,
            fields.text(facts, "name"),
            preprocessing,
            fields.texts(facts, "channels", MOST_CHANNELS),
            fields.texts(facts, "classes", MOST_CLASSES),
            tuple(_case(one, number, preprocessing) for number, one in enumerate(fields.items(facts, "cases"))),
            tuple(fields.items(facts, "labels")) if "labels" in facts else (),
            KeptBoxes.from_facts(facts["boxes"]) if "boxes" in facts else None,
            fields.texts(facts, "left_out", MANIFEST_BYTES) if "left_out" in facts else (),
        )
        _check_split(prepared)
    except ValueError as error:
        raise ValueError(f"{file} cannot be used: {one_line(str(error))}") from None
    return prepared


def checked_labels(labels: Sequence[int], classes: Sequence[str]) -> tuple[int, ...]:
    """The classes' values in masks: 1, 2, ... by default; each must be from 1 to 255, and different."""
    found = tuple(labels) or tuple(range(1, 1 + len(classes)))
    if (
        len(found) != len(classes)
        or not all(type(label) is int and 1 <= label <= 255 for label in found)
        or len(set(found)) != len(found)
    ):
        raise ValueError(
            f"labels {shown(list(found))}: each of {listed(classes)} has one of its own, from 1 to 255"
        )
    return found


def _preprocessing(facts: Mapping[str, Any]) -> Preprocessing:
    """What the manifest says of it; format 1 had no choice of percentiles."""
    written = fields.field(facts, "format")
    if written == FORMAT:
        return Preprocessing.from_facts(fields.field(facts, "preprocessing"))
    if written == FIRST_FORMAT:
        return Preprocessing(fields.field(facts, "size"), (0.5, 99.5))
    raise ValueError(
        f"its format is {shown(written)}, and this version reads '{FORMAT}' and older: get a newer ringfence, or "
        "prepare the set again"
    )


def _manifest_text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1) + "\n"


def _facts(case: Case) -> dict[str, Any]:
    """A case as plain values, for JSON."""
    facts = asdict(case)
    if case.inside is None:
        del facts["inside"]
    return facts


def _case(one: Any, number: int, preprocessing: Preprocessing) -> Case:
    with inside(f"cases[{number}]: "):
        facts = fields.mapping(one, "it")
        split = fields.field(facts, "split")
        if split not in ("train", "validation"):
            raise ValueError(f"split is {shown(split)}: train or validation")
        return Case(
            fields.text(facts, "name"),
            split,
            fields.file_name(facts, "file"),
            fields.sha256(facts, "sha256"),
            fields.lengths(facts, "shape", LARGEST),
            fields.spacing(facts, "spacing"),
            fields.flag(facts, "masked"),
            None if preprocessing.spacing is None else fields.extents(facts, "inside", preprocessing.size),
        )


def _check_split(prepared: PreparedSet) -> None:
    """No patient is in both splits, neither by name nor by file; and a class is known by its name."""
    if len(set(prepared.classes)) < len(prepared.classes):
        raise ValueError(f"classes are {shown(prepared.classes)}; each must be there once")
    for values in ([case.name for case in prepared.cases], [case.file for case in prepared.cases]):
        counts = Counter(values)
        if twice := sorted(one_line(name) for name, count in counts.items() if count > 1):
            raise ValueError(f"{listed(twice)} is there more than once; no patient may be in both splits")
