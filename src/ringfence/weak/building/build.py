"""From a data set as downloaded to a prepared set: every case read, checked, normalised, resized, written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.files import WriteFailed
from ringfence.folders import locked
from ringfence.hints import hint, one_line, shown
from ringfence.weak.building.checked_boxes import checked_table, left_as
from ringfence.weak.building.common_spacing import Grid, choose_grid, grid_of
from ringfence.weak.building.needs import Needs, needs_of
from ringfence.weak.building.preparation import Preparation
from ringfence.weak.building.unfinished import (
    SHOWN,
    SOURCES,
    Arrays,
    Facts,
    Preparing,
    open_preparing,
    stored_grid,
    write_arrays,
)
from ringfence.weak.datasets import Layout, Source, SourceCase, layout_named
from ringfence.weak.datasets.layout import Spacing
from ringfence.weak.datasets.source import Stamp, check_places
from ringfence.weak.prepared.kept_boxes import KeptBoxes
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.prepared.preprocessing import PERCENTILES, Preprocessing
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.volumes import Volume, check_same_grid, read_channels, read_volume


class PreparationFailed(ValueError):  # noqa: N818 - some cases did, not the program
    """Cases that could not be prepared, a line each."""


def prepare(
    layout: str | Layout,
    source: str | Path,
    out: str | Path,
    *,
    size: tuple[int, int] | None = None,
    spacing: Spacing | None = None,
    percentiles: tuple[float, float] = PERCENTILES,
    validation: Sequence[str] | None = None,
    skip_failures: bool = False,
    tell: Callable[[str], None] = lambda case: None,
    crew: Crew | None = None,
    **options: Any,
) -> Preparation:
    """Make a set to train on of a data set as downloaded; what ``ringfence prepare`` does.

    Args:
        layout: its name (those of ``ringfence.weak.datasets.LAYOUTS``), a :class:`Layout`, or the path of one,
            ``my_module.MY_LAYOUT``.
        source: the data set as downloaded; it is only read.
        out: a new or empty folder, or one where the same was begun: that is gone on with.
        size: height and width of every slice; default: the layout's, or the medians of the cases, up to a multiple
            of 16; at a common spacing, the largest's.
        spacing: millimetres between rows and between columns of every slice; "auto": the median of the cases' own,
            if all are known and slices of one size would have pixels that differ by more than a tenth; "none":
            whole slices are resized to one size. Default: the layout's, mostly "auto".
        percentiles: of each volume's voxels, which become 0 and 255.
        validation: names of the cases for validation; default: the layout's own split.
        skip_failures: finish without the cases that fail; else there will be no manifest.
        tell: called with a case's name after it.
        crew: ``Crew(workers=4)``: processes that do the cases; files are the same.
        options: those of the layout.

    Raises:
        PreparationFailed: cases failed, each is listed; the others are ready, and need not be made again.
        BoxesRefused: the table of boxes beside the images does not fit them; they are ready likewise.
    """
    layout = layout_named(layout)
    known = [option.name for option in layout.options]
    for name in options:
        if name not in known:
            raise TypeError(f"the layout {layout.name} has no option '{name}'; {hint(name, known or ['none'])}")
    check_places(source, out)
    found = layout.source_at(Path(source), validation=validation, **options)
    return prepare_source(
        found,
        out,
        **grid_of(layout, size, spacing),
        percentiles=percentiles,
        skip_failures=skip_failures,
        tell=tell,
        crew=crew,
    )


def prepare_source(
    source: Source,
    out: str | Path,
    *,
    size: tuple[int, int] | None = None,
    spacing: Spacing = "auto",
    percentiles: tuple[float, float] = PERCENTILES,
    skip_failures: bool = False,
    tell: Callable[[str], None] = lambda case: None,
    before: Callable[[Needs], None] = lambda needs: None,
    crew: Crew | None = None,
) -> Preparation:
    """Make a prepared set of cases that were found, or go on with the same one. The manifest is written last.

    Args:
        source: the data set as downloaded, as a layout's ``find`` returns it.
        out: a new or empty folder, or one where the same was begun.
        size: height and width of every slice; default: the medians of the cases, up to a multiple of 16; at a
            common spacing, the largest's.
        spacing: millimetres between rows and between columns, "auto" or "none": as of :func:`prepare`.
        percentiles: of each volume's voxels, which become 0 and 255.
        skip_failures: finish without the cases that fail; else there will be no manifest.
        tell: called with a case's name after it.
        before: called once, with what it will take.
        crew: ``Crew(workers=4)``: processes that do the cases; files are the same.
    """
    folder, crew = Path(out), crew or Crew()
    crew.check_same(
        SRC=[[case.name, *(str(volume.path.name) for volume in case.images)] for case in source.cases],
        options=(
            size,
            spacing,
            percentiles,
            skip_failures,
            sorted(source.validation),
            source.channels,
            source.classes,
            source.labels,
            source.boxes.sha256 if source.boxes else None,
        ),
    )
    with locked(folder, "prepared") if crew.world.first else nullcontext():
        begun = _begun(folder, source, size, spacing, percentiles) if crew.world.first else None
        crew.check_sees(folder / SOURCES)
        preparing = crew.from_first(begun)
        assert preparing is not None  # noqa: S101 - rank 0 has it
        if crew.world.first:
            before(needs_of(source, preparing, crew))
        return _prepare(preparing, source, skip_failures, tell, crew)


def _begun(
    folder: Path,
    source: Source,
    size: tuple[int, int] | None,
    spacing: Spacing,
    percentiles: tuple[float, float],
) -> Preparing:
    if isinstance(spacing, str) and spacing not in ("auto", "none"):
        raise ValueError(f"spacing is {shown(spacing)}; auto, none or a number of millimetres is needed")
    stored = stored_grid(folder)  # which refuses a folder of something else before headers are read
    if stored is None or not isinstance(spacing, str):
        grid = choose_grid(source, size or (stored and stored.size), spacing)
    else:  # what was begun is gone on with: other cases may be readable by now
        grid = Grid(size or stored.size, stored.spacing if spacing == "auto" else None)
    return open_preparing(folder, source, Preprocessing(grid.size, percentiles, grid.spacing))


def _prepare(
    preparing: Preparing, source: Source, skip_failures: bool, tell: Callable[[str], None], crew: Crew
) -> Preparation:
    failures = [f"{name}: {problem}" for name, problem in source.problems.items()]
    cases: list[Case] = []
    kept = 0
    kind = replace(source, cases=(), validation=frozenset(), problems={})  # each worker gets it
    with _noting(preparing, crew) as note, closing(crew.results(_making, (preparing, kind), source.cases)) as made:
        for case, result in zip(source.cases, made, strict=True):
            if isinstance(result, str):
                failures.append(f"{case.name}: {result}")
            else:
                kept += isinstance(result, Case)
                done = result if isinstance(result, Case) else note(case, result)
                cases.append(replace(done, split="validation" if case.name in source.validation else "train"))
            tell(case.name)
    if failures and not (skip_failures and cases):
        raise PreparationFailed(_failed(sorted(failures), len(cases), preparing.path))
    ready = [case.name for case in cases]
    prepared = PreparedSet(
        preparing.path,
        source.name,
        preparing.preprocessing,
        source.channels,
        source.classes,
        tuple(cases),
        source.labels,
        left_out=tuple(sorted({*source.problems, *(case.name for case in source.cases)}.difference(ready))),
    )
    table, remarks = checked_table(source, prepared, before=preparing.boxes is not None)
    if table is not None:
        prepared = replace(prepared, boxes=KeptBoxes(table.name, table.sha256))
    if crew.world.first:
        preparing.keep(table)
        prepared.write_manifest()
    return Preparation(prepared, tuple(sorted(failures)), kept, source.split, remarks)


@contextmanager
def _noting(preparing: Preparing, crew: Crew) -> Iterator[Callable[[SourceCase, Facts], Case]]:
    """How a case is noted. The note grows with the cases: it takes a twentieth of the time at the most."""
    due = 0.0

    def note(case: SourceCase, facts: Facts) -> Case:
        nonlocal due
        begin = time.monotonic()
        now = crew.world.first and begin >= due
        done = preparing.note(case, facts, write=now)
        if now:
            due = begin + 20.0 * (time.monotonic() - begin)
        return done

    try:
        yield note
    finally:
        if crew.world.first and due:
            preparing.write()


def _making(preparing: Preparing, source: Source) -> Callable[[Iterable[SourceCase]], Iterator[Case | Facts | str]]:
    """From cases to each as it was ready, or what there is to note of it, or what is wrong with it."""
    return lambda cases: (_made(case, source, preparing) for case in cases)


def _made(case: SourceCase, source: Source, preparing: Preparing) -> Case | Facts | str:
    read = _read(case, source, preparing)
    return write_arrays(preparing.path, case.name, read) if isinstance(read, Arrays) else read


def _read(case: SourceCase, source: Source, preparing: Preparing) -> Case | Arrays | str:
    """The case as it is ready, or what there is to write, or what is wrong with it."""
    try:
        if any("\ud800" <= letter <= "\udfff" for letter in case.name):  # bytes that are no text
            raise ValueError(f"the name {one_line(case.name)} is not UTF-8: rename its files")
        stamps = case.stamps()
        return preparing.ready(case, stamps) or _arrays(case, stamps, source, preparing.preprocessing)
    except WriteFailed:
        raise  # not the case's fault, and the next will have no room either
    except (ValueError, OSError) as error:
        return one_line(str(error))  # it may name members of a zip
    except MemoryError:
        return f"{case.images[0]} needs more memory than there is"


def _arrays(case: SourceCase, stamps: list[Stamp], source: Source, preprocessing: Preprocessing) -> Arrays:
    images, mask = _volumes(case)
    if len(images) != len(source.channels):
        names = ", ".join(source.channels)
        raise ValueError(
            f"{images[0].path} has {len(images)} channel{'s' * (len(images) != 1)}; "
            f"the data set has {len(source.channels)}: {names}"
        )
    depth, height, width = images[0].voxels.shape
    spacing = _spacing(images[0])
    steps = None if spacing is None else spacing[1:]
    frame = preprocessing.frame((height, width), steps)
    grey = [preprocessing.image(image.voxels, steps) for image in images]
    labels = None if mask is None else preprocessing.labels(_classes(mask, source), steps)
    rows, columns = frame.inside
    inside = None if preprocessing.spacing is None else ((rows.start, rows.stop), (columns.start, columns.stop))
    return Arrays(np.stack(grey, axis=1), labels, (depth, height, width), spacing, stamps, inside)


def _volumes(case: SourceCase) -> tuple[list[Volume], Volume | None]:
    """The channels and the mask, of one shape."""
    images = read_channels(case.images)
    mask = read_volume(case.mask) if case.mask else None
    if mask is not None:
        check_same_grid(images[0], mask)
    return images, mask


def _classes(mask: Volume, source: Source) -> NDArray[np.uint8]:
    """A mask with k for the k-th class."""
    values: list[Any] = np.unique(mask.voxels).tolist()
    wrong = [value for value in values if value not in (0, *source.labels)]
    if wrong:
        shown = ", ".join(f"{value:g}" for value in wrong[:SHOWN]) + (", ..." if len(wrong) > SHOWN else "")
        known = ", ".join(f"{label} {name}" for label, name in zip(source.labels, source.classes, strict=True))
        white = "; if white stands for a class, write its label instead" if wrong == [255] else ""
        raise ValueError(f"{mask.path} has unknown labels: {shown}; known are 0 background, {known}{white}")
    classes: NDArray[np.uint8] = np.zeros(mask.voxels.shape, np.uint8)
    for number, label in enumerate(source.labels, start=1):
        classes[mask.voxels == label] = number
    return classes


def _spacing(volume: Volume) -> tuple[float, float, float] | None:
    usable = all(math.isfinite(step) and step > 0 for step in volume.spacing)
    return volume.spacing if volume.spacing_known and usable else None


def _failed(failures: list[str], ready: int, folder: Path) -> str:
    what = (
        f"{len(failures)} failed and {ready} are ready in {folder}, which is {left_as(folder)}. Repair these and "
        "run the same command again, which does only what is missing"
    )
    what += ", or go without them (skip_failures; on the command line --skip-failures):" if ready else ":"
    return "\n  ".join([what, *failures])
