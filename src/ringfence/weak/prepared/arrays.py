"""A case's arrays out of its file: bytes of the promised shape or an error, and no more memory than promised.

NumPy's own reader would make whatever the file says: another type, another shape, or zeros that fill the memory.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from typing import IO, Final, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ringfence.hints import first_line, shown

Shape: TypeAlias = tuple[int, ...]
AROUND: Final = 65_536
"""Bytes of an archive that are not its arrays: headers, and a directory of two names."""
CHUNK: Final = 1 << 20
_PLAIN: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Damaged(ValueError):  # noqa: N818 - the file is
    """What is wrong with an archive, in a few words."""


def most_bytes(shapes: Mapping[str, Shape]) -> int:
    """What an archive of these arrays has at most: what cannot be packed grows by a few bytes in 16,000."""
    promised = promised_bytes(shapes)
    return promised + promised // 1000 + AROUND


def promised_bytes(shapes: Mapping[str, Shape]) -> int:
    """What the arrays themselves have."""
    return sum(math.prod(shape) for shape in shapes.values())


def read_arrays(content: bytes, shapes: Mapping[str, Shape]) -> dict[str, NDArray[np.uint8]]:
    """The arrays of an npz archive, which must be these, of these shapes, of type uint8.

    Args:
        content: the archive.
        shapes: by name.

    Raises:
        Damaged: it is something else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {one.filename: one for one in archive.infolist()}
            if len(members) < len(archive.infolist()) or set(members) != {f"{name}.npy" for name in shapes}:
                raise Damaged(f"it holds {shown(sorted(members))}, and should hold {', '.join(shapes)}")
            return {name: _array(archive, members[f"{name}.npy"], shape) for name, shape in shapes.items()}
    except Damaged:
        raise
    except Exception as error:  # zipfile's, zlib's, NumPy's own
        raise Damaged(f"{type(error).__name__}: {first_line(error)}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, shape: Shape) -> NDArray[np.uint8]:
    name = member.filename.removesuffix(".npy")
    if member.flag_bits & 1 or member.compress_type not in _PLAIN:
        raise Damaged(f"{name} is encrypted, or packed in a way that is not used for such a file")
    with archive.open(member) as stream:
        stored, fortran, dtype = npy_header(stream, name)
        if dtype != np.uint8:
            raise Damaged(f"{name} is of type {dtype}; it should be uint8")
        if stored != shape:
            raise Damaged(f"{name} is {list(stored)}, and the manifest says {list(shape)}")
        array: NDArray[np.uint8] = np.empty(math.prod(shape), np.uint8)
        place = 0
        while place < len(array) and (chunk := stream.read(min(CHUNK, len(array) - place))):
            array[place : place + len(chunk)] = np.frombuffer(chunk, np.uint8)
            place += len(chunk)
        if place < len(array) or stream.read(1):  # at its end, the CRC is looked at
            raise Damaged(f"{name} does not have the {len(array):,} bytes of its shape")
    return np.ascontiguousarray(array.reshape(shape[::-1]).T) if fortran else array.reshape(shape)


def npy_header(stream: IO[bytes], name: str) -> tuple[Shape, bool, np.dtype[np.generic]]:
    """Shape, whether columns come first, and type of an array in NumPy's format."""
    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy.read_array_header_2_0(stream)
    raise Damaged(f"{name} is in version {version} of NumPy's format; 1.0 and 2.0 are read")
