"""From a data set as downloaded to a prepared set: every case read, checked, normalised, resized, written."""

from __future__ import annotations

import errno
import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence.files import locked
from ringfence.weak.datasets.source import Source, SourceCase, Stamp
from ringfence.weak.prepared.prepared_set import MANIFEST, Case, PreparedSet, normalised, resized, resized_labels
from ringfence.weak.prepared.unfinished import LOCK, SHOWN, Arrays, Preparing, open_preparing, stored_size
from ringfence.weak.volumes.volume import Volume, check_same_grid, read_channels, read_shape, read_volume

MULTIPLE: Final = 16
"""Of which a chosen size is one: a U-Net of four levels halves it four times."""


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
    """Make a prepared set in ``folder``, or go on with the same one. The manifest is written last.

    Args:
        source: the data set as downloaded.
        folder: a new or empty folder, or one where this was begun.
        size: height and width of every slice; unless given, the medians over the cases, up to a multiple of 16.
        skip_failures: finish without the cases that fail; else there will be no manifest.
        tell: called with a case's name after it.
    """
    before = stored_size(folder)
    size = size or before or median_size(source)
    with locked(folder / LOCK, "prepared"):
        return _prepare(open_preparing(folder, source, size), source, skip_failures, tell)


def _prepare(preparing: Preparing, source: Source, skip_failures: bool, tell: Callable[[str], None]) -> Preparation:
    failures = [f"{name}: {problem}" for name, problem in source.problems.items()]
    cases: list[Case] = []
    kept = 0
    for case in source.cases:
        read = _read(case, source, preparing)
        if isinstance(read, str):
            failures.append(f"{case.name}: {read}")
        else:
            kept += isinstance(read, Case)
            done = read if isinstance(read, Case) else preparing.keep(case, read)
            cases.append(replace(done, split="validation" if case.name in source.validation else "train"))
        tell(case.name)
    if failures and not (skip_failures and cases):
        raise PreparationFailed(_failed(sorted(failures), len(cases), preparing.path))
    prepared = PreparedSet(
        preparing.path, source.name, preparing.size, source.channels, source.classes, tuple(cases), source.labels
    )
    prepared.write_manifest()
    return Preparation(prepared, tuple(sorted(failures)), kept)


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
    _, height, width = (
        math.ceil(statistics.median(sizes) / MULTIPLE) * MULTIPLE for sizes in zip(*shapes, strict=True)
    )
    return height, width


def _read(case: SourceCase, source: Source, preparing: Preparing) -> Case | Arrays | str:
    """The case as it is ready, or what there is to write, or what is wrong with it."""
    try:
        stamps = case.stamps()
        return preparing.ready(case, stamps) or _arrays(case, stamps, source, preparing.size)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise  # no fault of the case, and the next will have no room either
        return str(error)


def _arrays(case: SourceCase, stamps: list[Stamp], source: Source, size: tuple[int, int]) -> Arrays:
    images, mask = _volumes(case)
    if len(images) != len(source.channels):
        names = ", ".join(source.channels)
        raise ValueError(
            f"{images[0].path} has {len(images)} channels; the data set has {len(source.channels)}: {names}"
        )
    grey = [resized(normalised(image.voxels), size) for image in images]
    labels = None if mask is None else resized_labels(_classes(mask, source), size)
    depth, height, width = images[0].voxels.shape
    return Arrays(np.stack(grey, axis=1), labels, (depth, height, width), _spacing(images[0]), stamps)


def _volumes(case: SourceCase) -> tuple[list[Volume], Volume | None]:
    """The channels and the mask, of one shape; their paths are those a user knows, also of what was unpacked."""
    with tempfile.TemporaryDirectory(prefix="ringfence-") as temporary:
        try:
            images = read_channels([image.placed(Path(temporary)) for image in case.images])
            mask = read_volume(case.mask.placed(Path(temporary))) if case.mask else None
            if mask is not None:
                check_same_grid(images[0], mask)
        except ValueError as error:
            raise ValueError(str(error).replace(temporary, str(case.images[0].archive))) from None
    if images[0].voxels.size == 0:
        raise ValueError(f"{case.images[0]} has no voxels")
    if mask is not None:
        mask = replace(mask, path=Path(str(case.mask)))
    return [replace(images[0], path=Path(str(case.images[0]))), *images[1:]], mask


def _classes(mask: Volume, source: Source) -> NDArray[np.uint8]:
    """A mask with k for the k-th class."""
    values: list[Any] = np.unique(mask.voxels).tolist()
    wrong = [value for value in values if value not in (0, *source.labels)]
    if wrong:
        shown = ", ".join(f"{value:g}" for value in wrong[:SHOWN]) + (", ..." if len(wrong) > SHOWN else "")
        known = ", ".join(f"{label} {name}" for label, name in zip(source.labels, source.classes, strict=True))
        raise ValueError(f"{mask.path} has unknown labels: {shown}; known are 0 background, {known}")
    classes: NDArray[np.uint8] = np.zeros(mask.voxels.shape, np.uint8)
    for number, label in enumerate(source.labels, start=1):
        classes[mask.voxels == label] = number
    return classes


def _spacing(volume: Volume) -> tuple[float, float, float] | None:
    usable = all(math.isfinite(step) and step > 0 for step in volume.spacing)
    return volume.spacing if volume.spacing_known and usable else None


def _failed(failures: list[str], ready: int, folder: Path) -> str:
    state = "still the set of an earlier call" if (folder / MANIFEST).exists() else "no prepared set yet"
    what = (
        f"{len(failures)} failed and {ready} are ready in {folder}, which is {state}. Repair these and run the "
        "same command again, which does only what is missing"
    )
    what += ", or go without them by --skip-failures:" if ready else ":"
    return "\n  ".join([what, *failures])
