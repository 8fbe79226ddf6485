"""PNG: its chunks, each with a checksum, which is made right again so that what is inside is looked at."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence

from faults.mutations.raw import ODD, mutate_bytes

SIGNATURE = b"\x89PNG\r\n\x1a\n"
Chunks = list[tuple[bytes, bytes]]


def made(
    pixels: bytes, sizes: tuple[int, int], depth: int, kind: int, *, palette: bytes = b"", interlaced: bool = False
) -> bytes:
    """A PNG of filtered rows."""
    header = struct.pack(">IIBBBBB", *sizes, depth, kind, 0, 0, interlaced)
    packed = zlib.compress(pixels)
    middle = len(packed) // 2
    chunks = [(b"IHDR", header), (b"tEXt", b"Title\0a"), *([(b"PLTE", palette)] if palette else [])]
    return joined([*chunks, (b"IDAT", packed[:middle]), (b"IDAT", packed[middle:]), (b"IEND", b"")])


def joined(chunks: Chunks) -> bytes:
    """The file of these chunks."""
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def chunks_of(data: bytes) -> Chunks:
    """The chunks of a file that is whole."""
    at, found = len(SIGNATURE), []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def mutate_png(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Other bytes, other chunks, another header, or other pixels."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data, others)
    chunks = chunks_of(data)
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice((_header, _header, _pixels, _pixels, _inside, _order))(rng, chunks)
    return joined(chunks)


def _header(rng: random.Random, chunks: Chunks) -> None:
    name, body = chunks[0]
    if len(body) != 13:
        return
    fields = list(struct.unpack(">IIBBBBB", body))
    at = rng.randrange(len(fields))
    value = rng.choice((*ODD, *range(9), 16, fields[at] + 1, fields[at] - 1, 2 * fields[at]))
    fields[at] = value % (2**32 if at < 2 else 256)
    chunks[0] = (name, struct.pack(">IIBBBBB", *fields))


def _pixels(rng: random.Random, chunks: Chunks) -> None:
    """Fewer or more of them, other ones, or other filters."""
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    try:
        rows = zlib.decompress(packed)
    except zlib.error:
        return
    rows = rng.choice(
        (
            rows[: rng.randrange(len(rows) + 1)],
            rows + bytes(rng.randrange(1, 9)),
            bytes(rng.randrange(256) for _ in rows),
            mutate_bytes(rng, rows) if rows else rows,
        )
    )
    packed = zlib.compress(rows) + rng.choice((b"", b"", b"", b"x", bytes(9)))
    where = [number for number, (name, _) in enumerate(chunks) if name == b"IDAT"]
    for number in reversed(where):
        del chunks[number]
    chunks.insert(min(where), (b"IDAT", packed))


def _inside(rng: random.Random, chunks: Chunks) -> None:
    at = rng.randrange(len(chunks))
    name, body = chunks[at]
    chunks[at] = (name, mutate_bytes(rng, body))


def _order(rng: random.Random, chunks: Chunks) -> None:
    at = rng.randrange(len(chunks))
    name, body = chunks[at]
    if rng.random() < 0.3:
        del chunks[at]
    elif rng.random() < 0.5:
        chunks.insert(rng.randrange(len(chunks) + 1), chunks[at])
    else:
        names = (
            b"IDAT",
            b"PLTE",
            b"IEND",
            b"IHDR",
            b"tRNS",
            b"acTL",
            b"fdAT",
            b"ABCD",
            b"abcd",
            b"iCCP",
            b"\xff\0a\n",
        )
        chunks[at] = (rng.choice(names), body)
    if not chunks:
        chunks.append((name, body))
