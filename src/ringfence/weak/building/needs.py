"""How much disk and memory a preparation will take, by the headers of its cases alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ringfence.files import check_room
from ringfence.memory import in_words
from ringfence.weak.building.unfinished import Preparing
from ringfence.weak.datasets.source import Source, SourceCase
from ringfence.weak.prepared.case_file import case_file_name
from ringfence.weak.prepared.preprocessing import AT_ONCE
from ringfence.weak.ranks.cases import Crew
from ringfence.weak.volumes import read_shape

FLOAT, IMAGE, MASK, ONCE = 4, 5, 2, 6
"""Bytes of memory: for a number; for a voxel of an image (as it came, and as a byte) and of a mask, which stay
until their case is written; for one of the volume whose percentiles are looked for. 16 bits take less."""


@dataclass(frozen=True)
class Needs:
    """What is needed.

    Attributes:
        cases: how many are to be made.
        disk: bytes of their files.
        memory: bytes for the largest case, about, beside the program itself: each process works at one at a time.
        processes: how many there are, in all.
    """

    cases: int
    disk: int
    memory: int
    processes: int = 1

    def __str__(self) -> str:
        each = f" for each of {self.processes} processes" if self.processes > 1 else ""
        return (
            f"{self.cases} case{'s' * (self.cases != 1)} to prepare: {in_words(self.disk)} on the disk, and up to "
            f"about {in_words(self.memory)} of memory{each}"
        )


def needs_of(source: Source, preparing: Preparing, crew: Crew) -> Needs:
    """What the cases that are not there yet will take; too little room on the disk is refused before the work."""
    left = [case for case in source.cases if not (preparing.path / case_file_name(case.name)).exists()]
    channels, size = len(source.channels), math.prod(preparing.preprocessing.size)
    disk = most = 0
    for case in left:
        depth, plane = _shape(case)
        maps = channels + (case.mask is not None)
        disk += depth * size * maps
        native = depth * plane * (IMAGE * channels + MASK * (case.mask is not None) + ONCE)
        resizing = FLOAT * min(depth, AT_ONCE) * (plane + size)
        most = max(most, native + resizing + 2 * depth * size * maps)  # its file is put together in memory
    check_room(preparing.path, disk)
    return Needs(len(left), disk, most, crew.workers * crew.world.size)


def _shape(case: SourceCase) -> tuple[int, int]:
    """Slices, and voxels of each."""
    try:
        depth, height, width = read_shape(case.images[0])
    except (ValueError, OSError):
        return 0, 0  # said when the case's turn comes
    return depth, height * width
