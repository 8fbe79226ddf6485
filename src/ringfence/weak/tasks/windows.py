"""Samples as windows of cases: a slice, a volume, a tile or a patch of one, cut from arrays or from their files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.weak.prepared.case_file import CaseFile
from ringfence.weak.tasks.tiles import judged_window

PIXELS: Final = ("image", "mask", "judged", "unsure")
"""What a sample has of every pixel; the rest of it is small."""
UNSURE: Final = 255
"""The label, in a teacher's file, of pixels that nothing is taught about."""
Size = tuple[int, int, int]


@dataclass(frozen=True)
class Windows:
    """How windows of cases become samples; what is beyond a case's end is 0, so that a network learns what is.

    Attributes:
        size: slices, rows and columns.
        channels: of the images.
        classes: of the masks.
        flat: samples are slices: they have no axis of slices.
    """

    size: Size
    channels: int
    classes: int
    flat: bool = False

    def empty(self, rows: int, names: Sequence[str]) -> dict[str, NDArray[np.uint8]]:
        """Windows without content, slices before channels as in files; ``mask`` has labels."""
        depth, *plane = self.size
        shapes = {
            "image": (rows, depth, self.channels, *plane),
            "mask": (rows, depth, *plane),
            "judged": (rows, *self.size),
        }
        return {name: np.zeros(shapes[name], np.uint8) for name in names}

    def samples(self, windows: Mapping[str, NDArray[np.uint8]], *, unsure: bool = False) -> dict[str, Tensor]:
        """``image`` uint8 ``[N, channels, *space]``, ``mask`` bool ``[N, classes, *space]``, ``judged`` bool.

        With ``unsure``, that of the labels as well: bool ``[N, 1, *space]``, moved and cut as masks are.
        """
        found = {name: torch.from_numpy(array) for name, array in windows.items()}
        if unsure:
            found["unsure"] = found["mask"].unsqueeze(1) == UNSURE
        if "image" in found:
            found["image"] = found["image"].transpose(1, 2)
        if "mask" in found:
            labels = torch.arange(1, 1 + self.classes, dtype=torch.uint8).view(1, -1, 1, 1, 1)
            found["mask"] = found["mask"].unsqueeze(1) == labels
        if "judged" in found:
            found["judged"] = found["judged"] > 0
        axis = {"image": 2, "mask": 2, "judged": 1, "unsure": 2}
        if self.flat:
            found = {name: tensor.squeeze(axis[name]) for name, tensor in found.items()}
        return {name: tensor.contiguous() for name, tensor in found.items()}

    def bytes_of(self, rows: int, names: Sequence[str] = PIXELS[:2]) -> int:
        """What so many samples take in memory."""
        planes = {"image": self.channels, "mask": self.classes, "judged": 1, "unsure": 1}
        return rows * math.prod(self.size) * sum(planes[name] for name in names)


def cut(array: NDArray[np.uint8], start: Size, window: NDArray[np.uint8]) -> None:
    """Copy a window of an array, slices first, rows and columns last; what is beyond its end stays."""
    sides = zip((0, -2, -1), start, strict=True)
    there = [max(0, min(array.shape[axis] - first, window.shape[axis])) for axis, first in sides]
    depth, rows, columns = there
    window[:depth, ..., :rows, :columns] = array[
        start[0] : start[0] + depth, ..., start[1] : start[1] + rows, start[2] : start[2] + columns
    ]


@dataclass(frozen=True)
class WindowReader:
    """Reads windows of cases out of their files, in whatever process: it is small, and has no pixels.

    Attributes:
        files: of the cases, all found to be the manifest's.
        windows: how windows become samples.
        teachers: files of a teacher's labels, which take the masks' place; none where nobody taught.
    """

    files: Sequence[CaseFile]
    windows: Windows
    teachers: Sequence[CaseFile] = ()

    def read(self, places: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, Tensor]:
        """The pixels of samples.

        Args:
            places: for each sample its case, first slice, row and column.
            names: of what is wanted: those of ``PIXELS``.
        """
        found = self.windows.empty(len(places), [name for name in names if name != "unsure"])
        wanted: dict[int, dict[int, Sequence[int]]] = {}
        for row, (case, *start) in enumerate(places):
            wanted.setdefault(case, {})[row] = start
        for case, starts in wanted.items():  # a case's file is opened once
            self._fill(case, starts, found)
        return self.windows.samples(found, unsure="unsure" in names)

    def _fill(
        self, number: int, starts: Mapping[int, Sequence[int]], found: Mapping[str, NDArray[np.uint8]]
    ) -> None:
        """Read a case's windows: those of these rows, from these starts on."""
        case = self.files[number]
        sources: list[tuple[CaseFile, tuple[str, ...]]] = [(case, ("image", "mask"))]
        if self.teachers:
            sources = [(case, ("image",)), (self.teachers[number], ("mask",))]
        for source, names in sources:
            stored = [name for name in names if name in found and name in source.shapes]
            if stored:
                with source.open() as file:
                    for row, (first, top, left) in starts.items():
                        for name in stored:
                            source.fill(file, name, (first, top, left), found[name][row])
        if "judged" in found:
            slices, *_, height, width = case.shapes["image"]
            for row, start in starts.items():
                found["judged"][row][judged_window((slices, height, width), self.windows.size, start)] = 1


class StreamedRows(Mapping[str, Tensor]):
    """Samples whose pixels stay on the disk: a mapping of all else, which is in memory.

    Args:
        targets: tensors of equal length by name.
        reader: of the cases that the samples are windows of.
        places: int64 ``[N, 4]``: each sample's case, first slice, row and column.
        names: what can be read of its pixels: those of ``PIXELS``.
    """

    def __init__(
        self, targets: Mapping[str, Tensor], reader: WindowReader, places: Tensor, names: Sequence[str]
    ) -> None:
        self.targets, self.reader, self.places, self.names = dict(targets), reader, places, tuple(names)

    def __getitem__(self, name: str) -> Tensor:
        if name in self.names:
            raise KeyError(f"'{name}' is on the disk: pixels(numbers) reads that of some samples")
        return self.targets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.targets)

    def __len__(self) -> int:
        return len(self.targets)

    def pixels(self, numbers: Tensor, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """``image``, ``mask`` (and ``judged``, ``unsure``) of these samples, read now."""
        return self.reader.read(self.places[numbers].tolist(), self.names if names is None else names)

    @property
    def nbytes(self) -> int:
        """What the images and masks take on the disk: all of their files, wherever samples are cut."""
        return sum(math.prod(shape) for file in self.reader.files for shape in file.shapes.values())


def pixels_of(rows: Mapping[str, Tensor], numbers: Tensor) -> dict[str, Tensor]:
    """``image``, ``mask`` (and ``judged``) of some samples, from memory or from the disk."""
    if isinstance(rows, StreamedRows):
        return rows.pixels(numbers)
    return {name: rows[name][numbers] for name in PIXELS if name in rows}


def count_of(rows: Mapping[str, Tensor]) -> int:
    """How many samples there are."""
    return len(next(iter(rows.values())))
