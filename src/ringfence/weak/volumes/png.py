"""PNG, grey or in colour, in and out: a volume of one slice that says neither where nor how large it is.

Its chunks are read here, and each must have its checksum. Pillow, which undoes the filters, gets a file of a header
and pixels alone, once it is certain that these are as many as the header promises.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ringfence import memory
from ringfence.extras import require
from ringfence.files import write_bytes
from ringfence.weak.volumes.arrays import HANDLED
from ringfence.weak.volumes.content import PIECE, Content, Inflated, in_a_line
from ringfence.weak.volumes.places import Place, naming

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"
"""How one begins: renaming is what many take for converting."""
FIRST: Final = b"\0\0\0\x0dIHDR"
"""The length and name of the first chunk."""
GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA = 0, 2, 3, 4, 6
"""Colour types, as headers number them."""
SAMPLES: Final = {GREY: 1, COLOUR: 3, PALETTE: 1, GREY_ALPHA: 2, COLOUR_ALPHA: 4}
"""Numbers that are stored of each pixel."""
DEPTHS: Final = {
    GREY: (1, 2, 4, 8, 16),
    COLOUR: (8, 16),
    PALETTE: (1, 2, 4, 8),
    GREY_ALPHA: (8, 16),
    COLOUR_ALPHA: (8, 16),
}
"""Bits of each of them."""
LARGEST: Final = 2**31 - 1
"""Of a side, and of a chunk's bytes."""
PASSES: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of an interlaced image: its first column and row, and the steps between them."""
LEVEL: Final = 6
"""Of compression: masks are flat, and it costs little."""


@dataclass(frozen=True)
class PngGeometry:
    """Where a PNG's pixels are, which nobody knows."""

    placed: ClassVar[bool] = False

    @property
    def affine(self) -> NDArray[np.float64]:
        """From x, y, z in voxels to where viewers show the image as it is stored, ``[4, 4]``."""
        return np.diag([-1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True)
class Header:
    """What the first chunk says, once checked.

    Attributes:
        width: pixels of a row.
        height: rows.
        depth: bits of a number.
        kind: the colour type.
        interlaced: whether it is stored in seven passes.
    """

    width: int
    height: int
    depth: int
    kind: int
    interlaced: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Width, height and depth, and three channels if it is in colour."""
        grey = self.kind in (GREY, GREY_ALPHA)
        return (self.width, self.height, 1) if grey else (self.width, self.height, 1, 3)

    @property
    def memory(self) -> int:
        """Bytes that the pixels take until they are dealt with."""
        numbers = max(SAMPLES[self.kind], 3 if self.kind == PALETTE else 1)
        return HANDLED * self.width * self.height * numbers * (1 + self.depth // 16)

    @property
    def packed(self) -> int:
        """Bytes of all rows as they are compressed, each with its filter."""
        passes = PASSES if self.interlaced else ((0, 0, 1, 1),)
        sizes = ((-((x - self.width) // dx), -((y - self.height) // dy)) for x, y, dx, dy in passes)
        bits = self.depth * SAMPLES[self.kind]
        return sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sizes if columns > 0)

    def plain(self) -> bytes:
        """The header of a file with the same numbers, and no palette to look them up in."""
        kind = GREY if self.kind == PALETTE else self.kind
        sides = self.width.to_bytes(4, "big") + self.height.to_bytes(4, "big")
        return sides + bytes((self.depth, kind, 0, 0, self.interlaced))


def read_png(place: Place, labels: bool = False) -> tuple[NDArray[Any], tuple[float, float, float], PngGeometry]:
    """Voxels ``[(3,) 1, y, x]``, a spacing that is unknown, and no place; a damaged file is refused.

    Transparency is ignored. Grey values are those that are stored, also of fewer than 8 bits.

    Args:
        place: where it is.
        labels: whether a palette's numbers are wanted, not its colours.
    """
    with place.reading() as content, naming(place):
        header = _header(content)
        memory.check(content.size + header.memory, str(place))
        palette, packed = _chunks(content, header)
        content.skip(content.size - content.position)
        _check_length(content.name, header, packed)
        numbers = _numbers(header, packed)
        if header.kind == PALETTE:
            numbers = _looked_up(numbers, palette, labels)
    voxels = numbers[None] if numbers.ndim == 2 else np.ascontiguousarray(numbers.transpose(2, 0, 1))[:, None]
    return voxels, (1.0, 1.0, 1.0), PngGeometry()


def png_steps(place: Place) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Width, height, a slice, three channels if in colour; and an unknown spacing: without reading a pixel.

    Not of more pixels than would be read.
    """
    with place.reading() as content, naming(place):
        header = _header(content)
    memory.check(header.memory, str(place))
    return header.sizes, (1.0, 1.0, 1.0)


def write_png(path: Path, voxels: NDArray[Any]) -> None:
    """Write voxels ``[1, y, x]`` of one or two bytes as grey values.

    Raises:
        WriteFailed: with the reason; a file that was there is as it was.
    """
    if voxels.dtype.kind != "u" or voxels.dtype.itemsize > 2:
        raise ValueError(f"{path}: a PNG holds no voxels of the kind {voxels.dtype}")
    rows = np.ascontiguousarray(voxels[0], voxels.dtype.newbyteorder(">")).view(np.uint8)
    filtered = np.pad(rows, ((0, 0), (1, 0)))  # by filter 0, which is none
    header = Header(voxels.shape[2], voxels.shape[1], 8 * voxels.dtype.itemsize, GREY, False)
    write_bytes(path, _file(header, zlib.compress(filtered.tobytes(), LEVEL)))


def _header(content: Content) -> Header:
    start = content.read(len(SIGNATURE))
    if not start:
        raise ValueError("it is empty")
    if start.startswith(JPEG):
        raise ValueError("it is a JPEG by another name: convert it to PNG")
    if start != SIGNATURE:
        raise ValueError("it is not PNG: it does not begin as one")
    start = _exactly(content, len(FIRST))
    if start != FIRST:
        raise ValueError(f"its first chunk is {_shown(start[4:])}, and should be IHDR: it is no plain PNG")
    block = _rest(content, b"IHDR", 13)
    width, height = int.from_bytes(block[:4], "big"), int.from_bytes(block[4:8], "big")
    depth, kind, compression, filtering, interlaced = block[8:]
    if not (1 <= width <= LARGEST and 1 <= height <= LARGEST):
        raise ValueError(f"its header has {width} × {height} pixels; sizes should be above 0")
    if depth not in DEPTHS.get(kind, ()) or compression or filtering or interlaced > 1:
        raise ValueError(f"its header is none that PNG knows: {' '.join(map(str, block[8:]))} after the sizes")
    if depth == 16 and kind != GREY:
        raise ValueError(
            "it has 16 bits of each colour, or of grey and transparency: save it with 8, or as grey alone"
        )
    return Header(width, height, depth, kind, bool(interlaced))


def _chunks(content: Content, header: Header) -> tuple[bytes, bytearray]:
    """The palette, and the compressed pixels; an animation's other pictures, texts and profiles are passed over."""
    palette, packed = b"", bytearray()
    for name, block in iter(lambda: _chunk(content), (b"IEND", b"")):
        if name == b"PLTE":
            palette = block
        elif name == b"IDAT":
            packed += block
        elif name[:1].isupper():
            raise ValueError(f"it has a chunk {_shown(name)} that PNG does not know, and cannot do without")
    if header.kind == PALETTE and (not palette or len(palette) % 3 or len(palette) > 3 * 256):
        raise ValueError(f"its palette has {len(palette)} bytes; three for each of up to 256 colours are needed")
    return palette, packed


def _chunk(content: Content) -> tuple[bytes, bytes]:
    """The next chunk's name and bytes."""
    start = _exactly(content, 8)
    return start[4:], _rest(content, start[4:], int.from_bytes(start[:4], "big"))


def _rest(content: Content, name: bytes, length: int) -> bytes:
    """A chunk's bytes, as many as it promises and with their checksum."""
    if length + 4 > content.size - content.position:
        raise ValueError(f"it ends within its chunk {_shown(name)}: the file is cut off")
    block = _exactly(content, length)
    if _exactly(content, 4) != _checksum(name, block):
        raise ValueError(f"its chunk {_shown(name)} has another checksum than it says: the file is damaged")
    return block


def _exactly(content: Content, count: int) -> bytes:
    block = bytearray()
    while len(block) < count and (piece := content.read(min(PIECE, count - len(block)))):
        block += piece
    if len(block) < count:
        raise ValueError("it ends before its last chunk: the file is cut off")
    return bytes(block)


def _check_length(name: str, header: Header, packed: bytearray) -> None:
    """Refuse pixels that are not as many as the header promises: Pillow leaves black what is not there."""
    source, found = Inflated(Content(name, io.BytesIO(packed), len(packed))), 0
    while found <= header.packed and (piece := source.read(PIECE)):
        found += len(piece)
    if found != header.packed:
        there = f"there are {found}" if found < header.packed else "there are more"
        raise ValueError(
            f"the header promises {header.width} × {header.height} pixels, {header.packed} bytes, and {there}: the "
            "file is damaged, or the header is wrong"
        )


def _numbers(header: Header, packed: bytearray) -> NDArray[Any]:
    """What is stored of each pixel, without its transparency: ``[y, x]``, or ``[y, x, 3]`` if it is in colour."""
    plugin = require("PIL.PngImagePlugin", "reading PNG", "train")
    try:
        with plugin.PngImageFile(io.BytesIO(_file(header, packed))) as image:
            pixels = np.asarray(image)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises OSError, SyntaxError, struct.error, and others
        raise ValueError(f"its pixels are damaged: {in_a_line(error)}") from None
    if header.kind in (GREY_ALPHA, COLOUR_ALPHA):
        pixels = pixels[..., 0] if header.kind == GREY_ALPHA else pixels[..., :3]
    if header.depth == 16:
        return pixels.astype(np.uint16)  # which Pillow has in 32 bits, by its version
    if header.depth in (2, 4):
        pixels = pixels // (255 // (2**header.depth - 1))  # which Pillow stretches
    return pixels.astype(np.uint8)


def _looked_up(numbers: NDArray[np.uint8], palette: bytes, labels: bool) -> NDArray[np.uint8]:
    colours = np.frombuffer(palette, np.uint8).reshape(-1, 3)
    highest = int(numbers.max())
    if highest >= len(colours):
        raise ValueError(f"its palette has {len(colours)} colours, and a pixel has number {highest}")
    return numbers if labels else colours[numbers]


def _file(header: Header, packed: bytes | bytearray) -> bytes:
    return b"".join(
        (SIGNATURE, *_as_chunk(b"IHDR", header.plain()), *_as_chunk(b"IDAT", packed), *_as_chunk(b"IEND", b""))
    )


def _as_chunk(name: bytes, block: bytes | bytearray) -> Iterator[bytes | bytearray]:
    yield len(block).to_bytes(4, "big") + name
    yield block
    yield _checksum(name, block)


def _checksum(name: bytes, block: bytes | bytearray) -> bytes:
    return zlib.crc32(block, zlib.crc32(name)).to_bytes(4, "big")


def _shown(name: bytes) -> str:
    return ascii(name.decode("latin-1"))
