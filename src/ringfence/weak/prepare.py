"""From a data set as downloaded to a prepared set: every case read, checked, normalised, resized, written.

    sources.json      beside the prepared set: what was asked, and for each case that is ready what it was made from

The folder can be gone on with at any time: a case is written whole or not at all, and the manifest last.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.weak.prepared import (
    MANIFEST,
    PERCENTILES,
    Case,
    PreparedSet,
    checksum,
    normalised,
    read_prepared,
    resized,
    resized_labels,
)
from ringfence.weak.run_folder import check_room, write_text
from ringfence.weak.sources.source import Source, SourceCase
from ringfence.weak.volumes import Volume, check_same_shape, read_channels, read_shape, read_volume

SOURCES: Final = "sources.json"
MULTIPLE: Final = 16
"""Of which a chosen size is one: a U-Net of four levels halves it four times."""
SHOWN: Final = 8
"""Values listed of a mask with wrong ones."""


class PreparationFailed(ValueError):  # noqa: N818 - some cases did, not the program
    """Cases that could not be prepared, a line each."""


@dataclass(frozen=True)
class Preparation:
    """What came out.

    Attributes:
        prepared: the set.
        failures: a line for each case that was left out.
        kept: how many of its cases an earlier call had made.
    """

    prepared: PreparedSet
    failures: tuple[str, ...]
    kept: int


def prepare(
    source: Source,
    folder: Path,
    *,
    size: tuple[int, int] | None = None,
    skip_failures: bool = False,
    tell: Callable[[str], None] = lambda case: None,
) -> Preparation:
    """Make a prepared set in ``folder``, or go on with the same one.

    Args:
        source: the data set as downloaded.
        folder: a new or empty folder, or one where this began before.
        size: height and width of every slice; unless given, the medians over the cases, up to a multiple of 16.
        skip_failures: finish without the cases that fail; else the manifest is not written.
        tell: called with a case's name after it.
    """
    begun = _Begun.open(folder, source, size)
    failures, kept, cases = list(source.problems), 0, []
    for case in source.cases:
        try:
            stamps = case.stamps()
            if done := begun.ready(case, stamps):
                cases.append(done)
                kept += 1
                tell(case.name)
                continue
            arrays, shape, spacing = _arrays(case, source, begun.size)
        except (ValueError, OSError) as error:
            failures.append(f"{case.name}: {error}")
            tell(case.name)
            continue
        cases.append(begun.keep(case, stamps, arrays, shape, spacing))
        tell(case.name)
    if failures and not skip_failures:
        raise PreparationFailed(_failed(failures, len(cases), folder))
    if not cases:
        raise PreparationFailed("\n  ".join(["no case could be prepared:", *failures]))
    split = {True: "validation", False: "train"}
    prepared = PreparedSet(
        folder,
        source.name,
        begun.size,
        source.channels,
        source.classes,
        tuple(replace(case, split=split[case.name in source.validation]) for case in cases),
    )
    prepared.write_manifest()
    return Preparation(prepared, tuple(failures), kept)


@dataclass
class _Begun:
    """A folder that is being prepared, and what is in it."""

    folder: Path
    size: tuple[int, int]
    asked: dict[str, Any]
    cases: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, folder: Path, source: Source, size: tuple[int, int] | None) -> _Begun:
        before = _stored(folder)
        if before and size is None:
            size = (before["asked"]["size"][0], before["asked"]["size"][1])
        size = size or median_size(source)
        asked = {
            "layout": source.kind,
            "name": source.name,
            "size": list(size),
            "channels": list(source.channels),
            "classes": list(source.classes),
            "labels": list(source.labels),
            "percentiles": list(PERCENTILES),
        }
        if before:
            _check_same(folder, before, asked, source)
            return cls(folder, size, asked, before["cases"])
        begun = cls(folder, size, asked, {})
        begun._write()
        return begun

    def ready(self, case: SourceCase, stamps: list[Any]) -> Case | None:
        """The case as an earlier call made it, if from these very files and still whole."""
        facts = self.cases.get(case.name)
        if facts is None or facts["sources"] != stamps:
            return None
        file = self.folder / _file(case)
        if not file.exists() or checksum(file) != facts["sha256"]:
            return None
        spacing = tuple(facts["spacing"]) if facts["spacing"] else None
        return Case(
            case.name, "train", file.name, facts["sha256"], tuple(facts["shape"]), spacing, case.mask is not None
        )

    def keep(
        self,
        case: SourceCase,
        stamps: list[Any],
        arrays: dict[str, NDArray[np.uint8]],
        shape: tuple[int, int, int],
        spacing: tuple[float, float, float] | None,
    ) -> Case:
        """Write a case, then that it is there."""
        check_room(self.folder, sum(array.nbytes for array in arrays.values()))
        (self.folder / MANIFEST).unlink(missing_ok=True)  # until it is written anew, this is no prepared set
        file = self.folder / _file(case)
        unfinished = file.with_name(f".{file.name}.unfinished")
        try:
            with unfinished.open("wb") as opened:
                np.savez_compressed(opened, **arrays)  # type: ignore[arg-type]
            os.replace(unfinished, file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        done = Case(case.name, "train", file.name, checksum(file), shape, spacing, "mask" in arrays)
        facts = asdict(done)
        self.cases[case.name] = {key: facts[key] for key in ("sha256", "shape", "spacing")} | {"sources": stamps}
        self._write()
        return done

    def _write(self) -> None:
        try:
            write_text(
                self.folder / SOURCES, json.dumps({"asked": self.asked, "cases": self.cases}, indent=1) + "\n"
            )
        except PermissionError:
            raise PermissionError(f"{self.folder} cannot be written to: choose another folder") from None


def _file(case: SourceCase) -> str:
    return f"{case.name}.npz"


def _stored(folder: Path) -> dict[str, Any] | None:
    """What was asked of an earlier call, and what it did; None in a new or empty folder, and any other is refused."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; a prepared set needs a folder")
    file = folder / SOURCES
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not empty, and nothing was being prepared in it (there is no {SOURCES}): name a new "
                "folder. Nothing was changed"
            )
        return None
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        _, _ = stored["asked"]["size"]
        for facts in stored["cases"].values():
            _ = facts["sha256"], facts["shape"], facts["spacing"], facts["sources"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{file} is damaged: name a new folder. Nothing was changed") from None
    result: dict[str, Any] = stored
    return result


def _check_same(folder: Path, before: dict[str, Any], asked: dict[str, Any], source: Source) -> None:
    """Refuse to mix two data sets, two sizes, or two splits in one folder."""
    different = [key for key in asked if before["asked"].get(key) != asked[key]]
    if different:
        lines = "; ".join(f"{key}: was {before['asked'].get(key)}, now {asked[key]}" for key in different)
        raise FileExistsError(
            f"{folder} holds another preparation ({lines}): name a new folder. Nothing was changed"
        )
    names = {case.name for case in source.cases}
    strangers = sorted(before["cases"].keys() - names - {line.partition(":")[0] for line in source.problems})
    if strangers:
        raise FileExistsError(
            f"{folder} holds cases that are not in this data set ({', '.join(strangers[:SHOWN])}): name a new folder. "
            "Nothing was changed"
        )
    if (folder / MANIFEST).exists():
        moved = [
            case.name
            for case in read_prepared(folder).cases
            if case.name in names and (case.split == "validation") != (case.name in source.validation)
        ]
        if moved:
            raise FileExistsError(
                f"{folder} is a prepared set with another split ({', '.join(moved[:SHOWN])} would change sides): "
                "name a new folder. Nothing was changed"
            )


def median_size(source: Source) -> tuple[int, int]:
    """The median height and width of the cases whose headers can be read, up to a multiple of 16."""
    shapes = []
    for case in source.cases:
        try:
            shapes.append(read_shape(case.images[0].path))
        except (ValueError, OSError):
            continue  # said when the case's turn comes
    if not shapes:
        return MULTIPLE, MULTIPLE
    heights, widths = ([shape[axis] for shape in shapes] for axis in (1, 2))
    height, width = (
        -(-int(np.ceil(statistics.median(sizes))) // MULTIPLE) * MULTIPLE for sizes in (heights, widths)
    )
    return height, width


def _arrays(
    case: SourceCase, source: Source, size: tuple[int, int]
) -> tuple[dict[str, NDArray[np.uint8]], tuple[int, int, int], tuple[float, float, float] | None]:
    """A case's arrays as they are stored, the shape and the spacing it came with."""
    with tempfile.TemporaryDirectory(prefix="ringfence-") as temporary:
        try:
            images = read_channels([image.placed(Path(temporary)) for image in case.images])
            mask = read_volume(case.mask.placed(Path(temporary))) if case.mask else None
            if mask is not None:
                check_same_shape(images[0], mask)
        except (ValueError, OSError) as error:
            raise ValueError(str(error).replace(temporary, str(case.images[0].archive))) from None
    first = images[0]
    if len(images) != len(source.channels):
        raise ValueError(
            f"{case.images[0]} has {len(images)} channels, and the data set says {len(source.channels)} "
            f"({', '.join(source.channels)})"
        )
    if first.voxels.size == 0:
        raise ValueError(f"{case.images[0]} has no voxels")
    arrays = {"image": np.stack([resized(normalised(image.voxels), size) for image in images], axis=1)}
    if mask is not None and case.mask is not None:
        arrays["mask"] = resized_labels(_classes(mask.voxels, source, str(case.mask)), size)
    depth, height, width = first.voxels.shape
    return arrays, (depth, height, width), _spacing(first)


def _classes(voxels: NDArray[Any], source: Source, path: str) -> NDArray[np.uint8]:
    """A mask with k for the k-th class."""
    values = np.unique(voxels)
    wrong = [value for value in values.tolist() if value not in (0, *source.labels)]
    if wrong:
        shown = ", ".join(f"{value:g}" for value in wrong[:SHOWN]) + (", ..." if len(wrong) > SHOWN else "")
        known = ", ".join(f"{label} {name}" for label, name in zip(source.labels, source.classes, strict=True))
        raise ValueError(f"{path} has labels that are not known: {shown}; known are 0 background, {known}")
    index: NDArray[np.uint8] = np.zeros(voxels.shape, np.uint8)
    for number, label in enumerate(source.labels, start=1):
        index[voxels == label] = number
    return index


def _spacing(volume: Volume) -> tuple[float, float, float] | None:
    usable = all(np.isfinite(step) and step > 0 for step in volume.spacing)
    return volume.spacing if volume.spacing_known and usable else None


def _failed(failures: list[str], ready: int, folder: Path) -> str:
    return "\n  ".join(
        [
            f"{len(failures)} failed, {ready} ready in {folder}, which is no prepared set yet. Repair these and run the "
            "same command again (it does only what is missing), or go without them by --skip-failures:",
            *failures,
        ]
    )
