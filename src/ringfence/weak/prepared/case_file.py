"""A case's file: an npz whose arrays are not packed, so that a slice or a patch is read without the rest.

One file holds image and mask, so that a case is there or not; ``np.load`` reads it, and earlier ringfences do.
Parts are read by position, not mapped into memory: a file that was cut short is then an error in a line, and the
system's own cache of the disk is not counted as ours.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.files import checksum_of, opened, write_bytes
from ringfence.hints import one_line
from ringfence.weak.prepared.arrays import Shape, most_bytes, npy_header

SUFFIX: Final = ".npz"
Bytes: TypeAlias = NDArray[np.uint8]
_LOCAL: Final = struct.Struct("<26xHH")
"""A member's own header in a zip ends with the lengths of its name and of what is extra; then they follow."""
_MOSTLY: Final = 0.5
"""Of a slice's rows: where more are wanted, the slice is read as a whole, in one go with its neighbours."""


@dataclass(frozen=True)
class Written:
    """A case's file as it was written.

    Attributes:
        file: its name in the set's folder.
        sha256: of its content.
    """

    file: str
    sha256: str


def case_file_name(case: str) -> str:
    """The name of a case's file in the set's folder."""
    return f"{case}{SUFFIX}"


def write_case(folder: Path, case: str, image: Bytes, mask: Bytes | None) -> Written:
    """Write a case's file whole or not at all.

    Args:
        folder: the set's.
        case: its name.
        image: ``[slices, channels, height, width]``.
        mask: ``[slices, height, width]``, if it has one.
    """
    return write_npz(folder, case_file_name(case), {"image": image} | ({} if mask is None else {"mask": mask}))


def write_npz(folder: Path, name: str, arrays: Mapping[str, Bytes]) -> Written:
    """Write arrays as a file of this name, whole or not at all; not packed, so that parts can be read."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_bytes(folder / name, content.getbuffer())
    return Written(name, checksum_of(content.getbuffer()))


@dataclass(frozen=True)
class CaseFile:
    """Where a case's arrays are in its file. A few numbers, which any process can read parts by.

    Attributes:
        path: the file.
        stamp: bytes, time of the last change and number of the file when it was looked at: it must stay so.
        offsets: of the arrays' first bytes, by name.
        shapes: of the arrays, by name: slices first, rows and columns last.
    """

    path: Path
    stamp: tuple[int, ...]
    offsets: Mapping[str, int]
    shapes: Mapping[str, Shape]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file, for :meth:`fill`; one that has changed since it was looked at is refused."""
        try:
            file = opened(self.path)
        except OSError as error:
            raise type(error)(f"{one_line(str(error))}: it was there when training began") from None
        with file:
            self.check(file)
            yield file

    def check(self, file: BinaryIO) -> None:
        """Refuse a file that is not as it was when it was looked at."""
        if _stamp(file) != self.stamp:
            raise ValueError(
                f"{one_line(str(self.path))} has changed since it was checked: nobody may write to a prepared set "
                "while it is trained on. Prepare the set again, then go on with --resume"
            )

    def fill(self, file: BinaryIO, name: str, start: tuple[int, int, int], window: Bytes) -> None:
        """Read a window of an array: slices, rows and columns from ``start`` on; what is beyond its end stays.

        Args:
            file: as :meth:`open` gives it.
            name: of the array.
            start: the first slice, row and column.
            window: contiguous, ``[slices, height, width]``, or with channels after the slices; it is written to.
        """
        slices, *planes, height, width = self.shapes[name]
        there = [
            max(0, min(length - first, wanted))
            for length, first, wanted in zip((slices, height, width), start, self._sides(window), strict=True)
        ]
        if 0 in there:
            return
        depth, rows, columns = there
        if (rows, columns) == (height, width) and window.shape[1:] == (*planes, height, width):
            _read(file, self, window[:depth], self._place(name, start[0]))
        elif rows > _MOSTLY * height:
            whole: Bytes = np.empty((depth, *planes, height, width), np.uint8)
            _read(file, self, whole, self._place(name, start[0]))
            window[:depth, ..., :rows, :columns] = whole[
                ..., start[1] : start[1] + rows, start[2] : start[2] + columns
            ]
        else:
            some: Bytes = np.empty((rows, width), np.uint8)
            for place in np.ndindex(depth, *planes):
                plane = np.ravel_multi_index((start[0] + place[0], *place[1:]), (slices, *planes))
                offset = self.offsets[name] + (int(plane) * height + start[1]) * width
                _read(file, self, some, offset)
                window[place][:rows, :columns] = some[:, start[2] : start[2] + columns]

    def _place(self, name: str, number: int) -> int:
        """Where a slice begins."""
        return self.offsets[name] + number * math.prod(self.shapes[name][1:])

    @staticmethod
    def _sides(window: Bytes) -> tuple[int, int, int]:
        return window.shape[0], window.shape[-2], window.shape[-1]


def find_arrays(path: Path, shapes: Mapping[str, Shape]) -> CaseFile | None:
    """Where arrays of these shapes are in a case's file; None if they are packed, or are not as they should be.

    What is wrong with it, ``read_arrays`` says: nothing is used that has not been read by it.
    """
    with opened(path) as file:
        stamp = _stamp(file)
        if stamp[0] > most_bytes(shapes):
            return None
        try:
            with zipfile.ZipFile(file) as archive:
                members = {one.filename: one for one in archive.infolist()}
                offsets = {name: _offset(file, members[f"{name}.npy"], shape) for name, shape in shapes.items()}
        except Exception:  # zipfile's, NumPy's own
            return None
    found = {name: offset for name, offset in offsets.items() if offset is not None}
    return CaseFile(path, stamp, found, dict(shapes)) if len(found) == len(shapes) else None


def _offset(file: BinaryIO, member: zipfile.ZipInfo, shape: Shape) -> int | None:
    """Where a member's array begins in the file; None if it cannot be read from there."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        return None
    file.seek(member.header_offset)
    name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
    begin = file.seek(name + extra, os.SEEK_CUR)
    stored, fortran, dtype = npy_header(file, member.filename)
    whole = file.tell() + math.prod(shape) == begin + member.file_size
    return file.tell() if whole and stored == shape and dtype == np.uint8 and not fortran else None


def _stamp(file: BinaryIO) -> tuple[int, ...]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ino


def _read(file: BinaryIO, case: CaseFile, array: Bytes, offset: int) -> None:
    """Fill an array with the bytes from here on."""
    view = memoryview(array.reshape(-1).data)
    file.seek(offset)
    while len(view) and (count := file.readinto(view)):  # type: ignore[attr-defined]
        view = view[count:]
    if len(view):
        raise ValueError(
            f"{one_line(str(case.path))} ends {len(view):,} bytes too early: it was cut off while it was read"
        )
