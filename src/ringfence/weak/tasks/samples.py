"""From a prepared set to samples: slices, or whole volumes and tiles of them, with the constraints' targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ringfence.options import inside
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.constraints.boxes import box_targets, compacted, moved_boxes
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.prepared.case_file import CaseFile
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tasks.tiles import judged_window, tile_starts
from ringfence.weak.tasks.windows import PIXELS, Size, StreamedRows, WindowReader, Windows, cut

Rows = dict[str, Tensor]
Patch = Size
OWN: Final = (
    *PIXELS,
    "volume_size",
    "aim",
    "index",
    "key",
    "rows",
    "ghost",
    "yardstick",
    "turn",
    "around",
    "around_case",
)
"""What samples and batches have of their own: no constraint may call a target so."""


@dataclass(frozen=True)
class Reader:
    """Reads the samples of a set's cases, one case at a time.

    Attributes:
        prepared: the set.
        constraints: whose targets are read.
        boxes: from a file of annotations; None where boxes are taken from the masks.
        margin: pixels by which boxes may be too wide on every side.
        smallest: pixels; smaller parts of a mask get no box.
        each: called after every case.
        streamed: leave the pixels on the disk.
    """

    prepared: PreparedSet
    constraints: Mapping[str, Constraint]
    boxes: Sequence[BoxAnnotation] | None = None
    margin: int = 0
    smallest: int = 1
    each: Callable[[], None] = lambda: None
    streamed: bool = False

    def slices(self, cases: Sequence[Case]) -> Rows | StreamedRows:
        """A sample for each slice: ``image``, ``mask``, ``case`` and targets."""
        starts = [torch.tensor([[number, 0, 0] for number in range(case.shape[0])]) for case in cases]
        windows = self._windows((1, *self.prepared.size), flat=True)
        return self._read(cases, starts, windows, PIXELS[:2], lambda rows, start: rows)

    def volumes(self, cases: Sequence[Case], patch: Patch) -> Rows | StreamedRows:
        """A sample for each case, to cut patches from; ``volume_size`` is its size, or the patch's if that is more.

        ``aim``, int64 ``[N, classes, objects, 3, 2]``, is a box in space for each object: patches are aimed at it.
        In memory all are filled up with zeros to the same number of slices; of those on the disk, only patches are
        read.
        """
        extent = torch.tensor([(case.shape[0], *self.prepared.size) for case in cases])
        extent = torch.maximum(extent, torch.tensor(patch))
        depth, height, width = extent.max(dim=0).values.tolist()
        windows = self._windows(patch if self.streamed else (depth, height, width))
        starts = [torch.zeros(1, 3, dtype=torch.int64) for _ in cases]
        rows = self._read(cases, starts, windows, PIXELS[:2], lambda rows, start: rows)
        (rows.targets if isinstance(rows, StreamedRows) else rows)["volume_size"] = extent
        return rows

    def tiles(self, cases: Sequence[Case], patch: Patch) -> Rows | StreamedRows:
        """Cases in tiles that overlap; ``judged`` is True of each voxel in one of them, and nowhere beyond."""
        starts = []
        for case in cases:
            space = (case.shape[0], *self.prepared.size)
            axes = [torch.tensor(tile_starts(length, size)) for length, size in zip(space, patch, strict=True)]
            starts.append(torch.cartesian_prod(*axes))

        def moved(rows: Rows, start: Tensor) -> Rows:
            every = {name: tensor.expand(len(start), *tensor.shape[1:]) for name, tensor in rows.items()}
            every |= moved_targets(every, self.constraints, Motion.crop(start, patch, patch))
            del every["aim"]
            return every | compacted(every)

        return self._read(cases, starts, self._windows(patch), PIXELS[:3], moved)

    @cached_property
    def _annotated(self) -> dict[str, list[BoxAnnotation]]:
        found: dict[str, list[BoxAnnotation]] = {}
        for one in self.boxes or ():
            found.setdefault(one.case, []).append(one)
        return found

    def _windows(self, size: Size, *, flat: bool = False) -> Windows:
        return Windows(size, len(self.prepared.channels), len(self.prepared.classes), flat)

    def _read(
        self,
        cases: Sequence[Case],
        starts: Sequence[Tensor],
        windows: Windows,
        names: Sequence[str],
        moved: Callable[[Rows, Tensor], Rows],
    ) -> Rows | StreamedRows:
        """Samples that are windows of cases.

        Args:
            cases: all of them.
            starts: for each case int64 ``[samples, 3]``, where its windows begin.
            windows: how large they are.
            names: what is read of the pixels.
            moved: from a case's targets and the starts to those of its windows.
        """
        total = sum(map(len, starts))
        memory = None if self.streamed else self._room(windows, total, names)
        parts, files, first = [], [], 0
        for number, (case, start) in enumerate(zip(cases, starts, strict=True)):
            file = self._located(case) if self.streamed else None
            image, labels = self.prepared.load(case)
            parts.append(moved(self._targets(case, number, image, labels, volume=not windows.flat), start))
            if memory is not None:
                found = windows.empty(len(start), names)
                for row, (depth, top, left) in enumerate(start.tolist()):
                    _cut_case(image, labels, (depth, top, left), {name: found[name][row] for name in names})
                for name, tensor in windows.samples(found).items():
                    memory[name][first : first + len(start)] = tensor
            if file is not None:
                with file.open():  # what was just read and checked is what it was when it was located
                    files.append(file)
            first += len(start)
            self.each()
        targets = joined(parts)
        if memory is not None:
            return memory | targets
        places = torch.cat([F.pad(start, (1, 0), value=number) for number, start in enumerate(starts)])
        return StreamedRows(targets, WindowReader(tuple(files), windows), places, names)

    def _room(self, windows: Windows, count: int, names: Sequence[str]) -> Rows:
        """Where all pixels go, made before the first case is read: nothing is there twice."""
        space = windows.size[1:] if windows.flat else windows.size
        shapes = {
            "image": (count, windows.channels, *space),
            "mask": (count, windows.classes, *space),
            "judged": (count, *space),
        }
        return {
            name: torch.empty(shapes[name], dtype=torch.uint8 if name == "image" else torch.bool) for name in names
        }

    def _located(self, case: Case) -> CaseFile | None:
        found = self.prepared.located(case)
        if found is None:
            self.prepared.load(case)  # which says what is wrong with it, if more is than that it is packed
            raise ValueError(packed(self.prepared))
        return found

    def _targets(
        self, case: Case, number: int, image: NDArray[np.uint8], labels: NDArray[np.uint8] | None, *, volume: bool
    ) -> Rows:
        pixels, mask = torch.from_numpy(image), _masks(labels, case, self.prepared)
        if volume:
            pixels, mask = pixels.transpose(0, 1)[None], mask.transpose(0, 1)[None]
        samples = CaseSamples(
            pixels,
            mask,
            case,
            self.prepared.size,
            case.masked,
            self._annotated.get(case.name, []),
            self.margin,
            self.smallest,
        )
        rows = {"case": _numbers(case, number, len(pixels))}
        rows |= box_targets(samples)  # also where no constraint is about boxes: pictures are chosen by them
        if volume:
            rows["aim"] = samples.object_boxes
        for name, one in self.constraints.items():
            with inside(f"constraints.{name}: "):
                _add(rows, one.targets(samples), samples)
        return rows


def _cut_case(
    image: NDArray[np.uint8],
    labels: NDArray[np.uint8] | None,
    start: Size,
    windows: Mapping[str, NDArray[np.uint8]],
) -> None:
    """Cut image, mask and what is judged of a case."""
    cut(image, start, windows["image"])
    if labels is not None:
        cut(labels, start, windows["mask"])
    if "judged" in windows:
        judged = windows["judged"]
        judged[judged_window((len(image), *image.shape[2:]), judged.shape, start)] = 1


def _add(rows: Rows, targets: Mapping[str, Tensor], samples: CaseSamples) -> None:
    """Put a constraint's targets with the others; several may share one, as they do boxes, if it is the same."""
    for name, target in targets.items():
        if len(target) != len(samples.image):
            raise ValueError(f"{name} has {len(target)} rows, and {samples.name} has {len(samples.image)} samples")
        there = rows.setdefault(name, target)
        if name in OWN or (there is not target and not torch.equal(there, target)):
            raise ValueError(
                f"its target '{name}' of {samples.name} is there already, with other values: another constraint's, "
                "or the sample's own. Give it another name; a kind with targets of its own can be asked for once"
            )


def moved_targets(rows: Mapping[str, Tensor], constraints: Mapping[str, Constraint], motion: Motion) -> Rows:
    """The targets of all constraints after the images have moved."""
    moved = moved_boxes(rows, motion) if "box" in rows else {}
    for one in constraints.values():
        moved |= one.moved(rows, motion)
    return moved


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows one after another; where parts have fewer objects than others, zeros fill up: empty boxes, none cut."""
    return {name: _joined([part[name] for part in parts], filling=name == "whole") for name in parts[0]}


def _joined(parts: Sequence[Tensor], *, filling: bool = False) -> Tensor:
    largest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]

    def filled(part: Tensor) -> Tensor:
        missing = [most - there for most, there in zip(largest, part.shape[1:], strict=True)]
        widths = [width for one in reversed(missing) for width in (0, one)]
        return F.pad(part, widths, value=float(filling)) if any(missing) else part

    return torch.cat([filled(part) for part in parts])


def padded(volume: Tensor, shape: Sequence[int]) -> Tensor:
    """``[B, C, z, y, x]`` with zeros after the end of each axis of space: how a network learns what is beyond."""
    missing = [size - length for size, length in zip(shape, volume.shape[2:], strict=True)]
    return F.pad(volume, [width for pair in reversed(missing) for width in (0, pair)])


def packed(prepared: PreparedSet) -> str:
    """What to do with a set of an older ringfence, whose files cannot be read in part."""
    return (
        f"{prepared.path} was prepared by an older ringfence: its files are packed, and cannot be streamed from "
        "the disk. Prepare it again, into a new folder"
    )


def _numbers(case: Case, number: int, count: int) -> Tensor:
    """Which case each sample is part of; negative where there is no mask to judge by."""
    return torch.full((count,), number if case.masked else -1 - number)


def _masks(labels: NDArray[np.uint8] | None, case: Case, prepared: PreparedSet) -> Tensor:
    """bool ``[slices, classes, height, width]``; all False where there are none."""
    shape = (case.shape[0], len(prepared.classes), *prepared.size)
    if labels is None:
        return torch.zeros(shape, dtype=torch.bool)
    found = torch.from_numpy(labels)
    return torch.stack([found == number for number in range(1, 1 + shape[1])], dim=1)
