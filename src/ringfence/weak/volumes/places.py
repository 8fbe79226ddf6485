"""Where a volume's bytes are: in a file, or in a zip's member, which is read where it is.

Nothing is unpacked to a disk, where a process that is killed would leave it.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from ringfence.files import opened
from ringfence.hints import one_line
from ringfence.weak.volumes.content import Content, in_a_line

DIRECTORY: Final = 4_000_000
"""Bytes of a zip's list of files, at most: some 40,000 files."""
METHODS: Final = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Of compressing a member. Python inflates the others without a limit."""
_ENCRYPTED: Final = 1


@dataclass(frozen=True)
class Place:
    """A file, or a member of a zip.

    Attributes:
        path: the file; inside ``archive``, if that is given.
        archive: the zip that holds it.
    """

    path: Path
    archive: Path | None = None

    def __str__(self) -> str:
        return str(self.archive / self.path if self.archive else self.path)

    def beside(self, name: str) -> Place:
        """Another file in the same folder, or in that of the zip."""
        return replace(self, path=self.path.with_name(name))

    @contextmanager
    def reading(self) -> Iterator[Content]:
        """Its bytes. What is no regular file is refused, and so is a member that is there twice."""
        if self.archive is None:
            with opened(self.path) as file:
                yield Content(str(self), file, os.fstat(file.fileno()).st_size)
            return
        with opened_zip(self.archive) as archive:
            member = self._only(archive)
            try:
                stream = archive.open(member)
            except Exception as error:  # zipfile raises its own, NotImplementedError, struct.error, and others
                raise ValueError(f"{self} cannot be read: {in_a_line(error)}") from None
            with stream:
                yield Content(str(self), stream, member.file_size)

    def _only(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        """The member of this name; one that is not there, or not once, or of an unusual kind is refused."""
        found = [
            one for one in members(archive) if PurePosixPath(one.filename) == PurePosixPath(self.path.as_posix())
        ]
        if not found:
            raise FileNotFoundError(f"{self} does not exist")
        if len(found) > 1:
            raise ValueError(f"{self} is in the zip {len(found)} times: which is meant? Pack it once")
        if found[0].flag_bits & _ENCRYPTED:
            raise ValueError(f"{self} cannot be read: it is encrypted; unpack the zip with its password")
        if found[0].compress_type not in METHODS:
            raise ValueError(
                f"{self} cannot be read: it is compressed by method {found[0].compress_type}, and only zip's usual "
                "one is known; unpack the zip"
            )
        return found[0]


@contextmanager
def naming(place: Place) -> Iterator[None]:
    """What is found wrong meanwhile is said with the file's name."""
    try:
        yield
    except ValueError as error:
        said = one_line(str(error))  # it may quote what the file says
        raise ValueError(said if said.startswith(str(place)) else f"{place} cannot be read: {said}") from None


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip with its list of files; a damaged one, or one with too long a list, is refused."""
    with opened(path) as file:
        try:
            archive = zipfile.ZipFile(_Bounded(file))
        except Exception as error:  # zipfile raises its own, NotImplementedError, struct.error, and others
            raise ValueError(
                f"{path} is not a zip, or a damaged one ({in_a_line(error)}): download it again"
            ) from None
        with archive:
            yield archive


def members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Its files, not its folders. ``is_dir`` fails on an empty name."""
    return [one for one in archive.infolist() if one.filename and not one.filename.endswith("/")]


class _Bounded:
    """A file of which ``zipfile`` reads no more at a time than a list of files may have."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._file.tell())
        wanted = left if size < 0 else min(size, left)
        if wanted > DIRECTORY:
            raise ValueError(f"its list of files has {wanted:,} bytes, and at most {DIRECTORY:,} are read")
        return self._file.read(wanted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
