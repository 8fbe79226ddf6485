"""A folder that is being prepared: what was asked, and for each case that is ready, what it was made from.

``sources.json`` says so, beside the prepared set. A case is written whole or not at all, so that the folder can be
gone on with at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.documents import read_json
from ringfence.files import check_room, checksum, checksum_of, remove, write_text
from ringfence.folders import content
from ringfence.hints import one_line
from ringfence.weak.building.common_spacing import Grid
from ringfence.weak.datasets.box_table import BoxTable
from ringfence.weak.datasets.source import Source, SourceCase, Stamp
from ringfence.weak.prepared.case_file import case_file_name, write_case
from ringfence.weak.prepared.kept_boxes import KeptBoxes, check_kept, keep_boxes
from ringfence.weak.prepared.prepared_set import MANIFEST, Case, read_prepared
from ringfence.weak.prepared.preprocessing import Preprocessing, checked_spacing

SOURCES: Final = "sources.json"
SHOWN: Final = 8
"""Names listed of many."""
Facts: TypeAlias = Mapping[str, Any]
"""What is noted of a case: its file's checksum, the source's shape and spacing, stamps of the source's files."""


@dataclass(frozen=True)
class Arrays:
    """A case as it is stored.

    Attributes:
        image: ``[slices, channels, height, width]``.
        mask: ``[slices, height, width]``, if it has one.
        shape: of the volume it came from.
        spacing: of that volume, where known.
        sources: what tells whether the files it came from have changed.
        inside: start and stop of rows and columns that its slices fill, where they are not all.
    """

    image: NDArray[np.uint8]
    mask: NDArray[np.uint8] | None
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    sources: list[Stamp]
    inside: tuple[tuple[int, int], tuple[int, int]] | None = None


@dataclass(frozen=True)
class Preparing:
    """The folder, how its cases are made, what was asked, the cases that are ready, and the boxes kept there."""

    path: Path
    preprocessing: Preprocessing
    asked: Mapping[str, Any]
    cases: dict[str, dict[str, Any]]
    boxes: KeptBoxes | None = None

    def ready(self, case: SourceCase, stamps: list[Stamp]) -> Case | None:
        """The case as an earlier call made it, if from these very files, and still whole."""
        facts = self.cases.get(case.name)
        file = self.path / case_file_name(case.name)
        if facts is None or facts["sources"] != stamps or not file.exists() or checksum(file) != facts["sha256"]:
            return None
        return _case(case, facts)

    def note(self, case: SourceCase, facts: Facts, *, write: bool = True) -> Case:
        """Note that a case's file is there, which ``write_arrays`` wrote, in whatever process.

        Args:
            case: which.
            facts: of ``write_arrays``.
            write: else the next ``write`` does.
        """
        self.cases[case.name] = dict(facts)
        if write:
            self.write()
        return _case(case, facts)

    def write(self) -> None:
        """Note what was asked and what is ready."""
        facts = {"asked": self.asked, "cases": self.cases}
        boxes = {"boxes": self.boxes.to_facts()} if self.boxes else {}
        write_text(self.path / SOURCES, json.dumps({**facts, "sha256": _digest(facts), **boxes}, indent=1) + "\n")

    def keep(self, table: BoxTable | None) -> None:
        """Keep the table of boxes, in place of the one that an earlier call kept, and note it."""
        boxes = keep_boxes(table, self.path, self.boxes)
        if boxes != self.boxes:
            replace(self, boxes=boxes).write()


def write_arrays(folder: Path, case: str, arrays: Arrays) -> Facts:
    """Write a case's file into a folder that is being prepared; any process may, and one notes it.

    Returns:
        What there is to note: plain values.
    """
    check_room(folder, arrays.image.nbytes + (0 if arrays.mask is None else arrays.mask.nbytes))
    remove([folder / MANIFEST])  # until it is written anew, this is not a prepared set
    sha256 = write_case(folder, case, arrays.image, arrays.mask).sha256
    facts = {"sha256": sha256, "shape": arrays.shape, "spacing": arrays.spacing, "sources": arrays.sources}
    return facts if arrays.inside is None else facts | {"inside": arrays.inside}


def stored_grid(path: Path) -> Grid | None:
    """The slices' grid in a folder that is being prepared; None if it is new or empty, and any other is refused."""
    stored = _stored(path)
    if stored is None:
        return None
    height, width = stored["asked"]["size"]
    if type(height) is not int or type(width) is not int:
        return None
    return Grid((height, width), checked_spacing(stored["asked"].get("spacing")))


def open_preparing(path: Path, source: Source, preprocessing: Preprocessing) -> Preparing:
    """Begin in a new or empty folder, or go on in one where the same was begun; any other is refused, untouched."""
    asked = {
        "layout": source.kind,
        "name": source.name,
        "size": list(preprocessing.size),
        "channels": list(source.channels),
        "classes": list(source.classes),
        "labels": list(source.labels),
        "percentiles": list(preprocessing.percentiles),
        "spacing": preprocessing.spacing,
    }
    stored = _stored(path)
    cases = stored["cases"] if stored else {}
    preparing, noted = Preparing(path, preprocessing, asked, cases, _kept(stored)), len(cases)
    if stored:
        _check_asked(
            path, stored["asked"], asked, ready=bool(cases), masked=any(case.mask for case in source.cases)
        )
        _check_cases(preparing, source)
    check_kept(source.boxes, path, preparing.boxes)
    if not stored or len(cases) < noted or json.dumps(stored["asked"]) != json.dumps(asked):
        preparing.write()
    return preparing


def _kept(stored: Mapping[str, Any] | None) -> KeptBoxes | None:
    """The boxes that an earlier call kept, as far as its note can be read."""
    try:
        return KeptBoxes.from_facts(stored["boxes"]) if stored and "boxes" in stored else None
    except ValueError:
        return None


def _case(case: SourceCase, facts: Facts) -> Case:
    """The case that was noted so; ``split`` is not, for it is not the file's."""
    slices, height, width = facts["shape"]
    spacing = None
    if facts["spacing"] is not None:
        depth, row, column = facts["spacing"]
        spacing = (depth, row, column)
    file, shape = case_file_name(case.name), (slices, height, width)
    inside = None
    if facts.get("inside") is not None:
        (top, bottom), (left, right) = facts["inside"]
        inside = (top, bottom), (left, right)
    return Case(case.name, "train", file, facts["sha256"], shape, spacing, case.mask is not None, inside)


def _stored(path: Path) -> dict[str, Any] | None:
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; a prepared set needs a folder")
    file = path / SOURCES
    if not file.exists() or file.stat().st_size == 0:  # empty: an older version on a full disk
        if any(one != file for one in content(path)):
            raise FileExistsError(
                f"{path} is not empty, and nothing was being prepared in it (there is no {SOURCES}): name a new "
                "folder. Nothing was changed"
            )
        return None
    try:
        stored = read_json(file)
        _, _ = stored["asked"]["size"]
        _, _ = stored["asked"].items(), stored["cases"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f" ({error})" if type(error) is ValueError else ""
        raise ValueError(f"{file} is damaged{reason}: name a new folder. Nothing was changed") from None
    if stored.get("sha256") != _digest({name: stored[name] for name in ("asked", "cases")}):
        stored["cases"] = {}  # damaged, or of an earlier version: the cases are made again
    return dict(stored)


def _digest(facts: Mapping[str, Any]) -> str:
    """The SHA-256 of what is noted: a number that changed on the disk would go into the manifest."""
    return checksum_of(json.dumps(facts, sort_keys=True).encode())


def _check_asked(
    path: Path, before: Mapping[str, Any], asked: Mapping[str, Any], *, ready: bool, masked: bool
) -> None:
    """Refuse what would make other arrays: classes may be renamed, and have other labels before there are any."""
    free = {"classes"} if not masked or before.get("labels") == asked["labels"] else set()
    free |= {"classes", "labels"} if not masked or not ready else set()
    different = [key for key in asked if before.get(key) != asked[key] and key not in free]
    if different:
        words = "; ".join(f"{key} was {one_line(str(before.get(key)))}, now {asked[key]}" for key in different)
        raise FileExistsError(f"{path} holds another preparation ({words}): name a new folder. Nothing was changed")


def _check_cases(preparing: Preparing, source: Source) -> None:
    """Refuse another data set of the same kind, and another split of a set that may have been trained on."""
    path, names = preparing.path, {case.name for case in source.cases}
    strangers = sorted(preparing.cases.keys() - names - source.problems.keys())
    if names & preparing.cases.keys() and not (path / MANIFEST).exists():  # taken out before it was a set
        remove(path / case_file_name(name) for name in strangers)
        for name in strangers:
            del preparing.cases[name]
    elif strangers:
        raise FileExistsError(
            f"{path} holds cases that are not in this data set ({', '.join(strangers[:SHOWN])}): name a new "
            "folder. Nothing was changed"
        )
    if not (path / MANIFEST).exists():
        return
    before = {case.name: case.split == "validation" for case in read_prepared(path).cases}
    moved = sorted(name for name in names & before.keys() if before[name] != (name in source.validation))
    if moved:
        raise FileExistsError(
            f"{path} is a prepared set with another split ({', '.join(moved[:SHOWN])} would change sides): name a "
            "new folder, or the cases that were for validation (--validation). Nothing was changed"
        )
