"""Bytes read once, from first to last, and inflated no further than they are asked for.

Whatever the system, ``zipfile`` or ``zlib`` say of them becomes one line with the file's name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import IO, Final, Protocol

CHUNK: Final = 1 << 16
"""Bytes that are inflated from at a time; the rest of it is copied at each member's end."""
PIECE: Final = 1 << 20
"""Bytes that are read or inflated at a time."""
MEMBERS: Final = 100_000
"""Of one gzip file, at most: bgzip makes one of every 64 kB, and empty ones could go on for ever."""


class Content:
    """The bytes of a file, or of a zip's member.

    Args:
        name: the file's, for messages.
        stream: where they come from.
        size: how many there are.
    """

    def __init__(self, name: str, stream: IO[bytes], size: int) -> None:
        self.name, self.size, self.position = name, size, 0
        self._stream = stream

    def read(self, most: int) -> bytes:
        """The next bytes: as many as these, or all that are left."""
        return self._counted(self._stream.read, most)

    def line(self, most: int) -> bytes:
        """The next bytes to the end of the line, or as many as these."""
        return self._counted(self._stream.readline, most)

    def skip(self, count: int) -> None:
        """Pass over bytes, as far as there are any: a zip's member is checked only if all of it is read."""
        while count > 0 and (piece := self.read(min(count, PIECE))):
            count -= len(piece)

    def _counted(self, read: Callable[[int], bytes], most: int) -> bytes:
        try:
            found = read(most)
        except Exception as error:  # OSError, and what zipfile raises: its own, zlib's, EOFError, and others
            raise ValueError(f"{self.name} cannot be read: {in_a_line(error)}") from None
        self.position += len(found)
        return found


class Inflated:
    """What compressed bytes, zlib's or gzip's, are when unpacked.

    Args:
        content: the compressed bytes, from where it is to its end.
        members: whether there may be several gzip files, one after the other, and zeros, as gzip has it.
    """

    def __init__(self, content: Content, *, members: bool = False) -> None:
        self._content, self._left = content, MEMBERS if members else 1
        self._wbits = (16 if members else 32) + zlib.MAX_WBITS  # gzip, or whichever of the two its header says
        self._unpacker = zlib.decompressobj(self._wbits)
        self._given = b""

    def read(self, most: int) -> bytes:
        """The next bytes, at most so many; none only at the end."""
        while True:
            if self._unpacker.eof and not self._next():
                return b""
            given, self._given = self._given or self._unpacker.unconsumed_tail, b""
            piece = self._inflate(given, most)  # without any given: what zlib still has
            if not piece and not self._unpacker.eof:
                given = self._content.read(CHUNK)
                if not given:
                    raise ValueError(f"{self._content.name} cannot be read: its compressed bytes end too early")
                piece = self._inflate(given, most)
            if piece:
                return piece

    def _inflate(self, given: bytes, most: int) -> bytes:
        try:
            return self._unpacker.decompress(given, most)
        except zlib.error as error:
            raise ValueError(
                f"{self._content.name} cannot be read: its compressed bytes are damaged ({error})"
            ) from None

    def _next(self) -> bool:
        """Whether another member follows, which is then begun; anything else is refused."""
        rest = self._unpacker.unused_data
        if self._wbits < 32 + zlib.MAX_WBITS:
            rest = rest.lstrip(b"\0")
            while not rest and (more := self._content.read(CHUNK)):
                rest = more.lstrip(b"\0")
        rest = rest or self._content.read(1)
        if not rest:
            return False
        self._left -= 1
        if self._left < 1:
            raise ValueError(f"{self._content.name} cannot be read: other bytes follow its compressed ones")
        self._unpacker, self._given = zlib.decompressobj(self._wbits), rest
        return True


class Readable(Protocol):
    """Bytes, one piece after the other; none at the end."""

    def read(self, most: int, /) -> bytes:
        """The next bytes, at most so many."""


def fill(buffer: memoryview, source: Readable) -> int:
    """How many bytes were there for the buffer, which are in it; one more than it has if there were others."""
    done = 0
    while done < len(buffer):
        piece = source.read(min(PIECE, len(buffer) - done))
        if not piece:
            return done
        buffer[done : done + len(piece)] = piece
        done += len(piece)
    return done + len(source.read(1))


def in_a_line(error: BaseException) -> str:
    """What an error of another library says, in a line."""
    said = getattr(error, "strerror", None) or str(error)
    return " ".join(str(said).split()) or type(error).__name__
