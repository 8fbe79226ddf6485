"""Files that are read only if they are files, and written whole or not at all; their checksums; room on a disk.

A folder that one process at a time may write to is ``folders.locked``.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

try:
    import fcntl as _fcntl

    fcntl: Any = _fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None

SPARE: Final = 1_000_000
"""Bytes that must be left on a disk for tables and figures."""
TEXT: Final = 256_000_000
"""Bytes of the longest text that is read: a table of boxes has less, what has more is something else."""
_PART: Final = re.compile(r"\..+\.[0-9a-f]+\.part")
_REASONS: Final = {
    errno.ENOSPC: "the disk is full; free some room",
    errno.EDQUOT: "your disk quota is used up; free some room",
    errno.EFBIG: "files may not be as large here (ulimit -f, or the file system); raise the limit",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose another folder",
    errno.EPERM: "permission denied; choose another folder",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ENOTDIR: "it would be inside a file; choose another folder",
    errno.EEXIST: "it would be inside a file; choose another folder",
    errno.EIO: "the disk reports an error; choose another one",
}


class WriteFailed(OSError):  # noqa: N818 - the disk did, not the program
    """A file that could not be written, and why, in a line; ``errno`` as the system has it."""

    def __init__(self, path: str | Path, error: OSError) -> None:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        super().__init__(f"{path} cannot be written: {reason}. It is as it was before")
        self.errno = error.errno


# Reading


def opened(path: Path) -> BinaryIO:
    """A file, for reading. A pipe, a socket or a device of that name is refused: it could block, or never end."""
    try:
        # not blocking: to open a pipe is to wait for whoever writes to it
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except PermissionError:
        raise PermissionError(f"{path} may not be read: permission denied") from None
    except ValueError:  # a null byte in the name
        raise ValueError(f"'{path}' is no name of a file") from None
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror or error}") from None
    kind = os.fstat(number).st_mode
    if not stat.S_ISREG(kind):
        os.close(number)
        raise ValueError(f"{path} is {_kind(kind)}, not a file that can be read")
    return os.fdopen(number, "rb")


def read_bytes(path: Path, most: int) -> bytes:
    """All of a file; one of more than ``most`` bytes is refused before it is read."""
    with opened(path) as file:
        content = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else b""
        if len(content) > most or (not content and os.fstat(file.fileno()).st_size > most):
            size = os.fstat(file.fileno()).st_size
            raise ValueError(f"{path} has {size:,} bytes, and at most {most:,} are read of such a file")
    return content


def read_text(path: Path, most: int = TEXT) -> str:
    """All of a text file, which is UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 (byte {error.start}): save it as such") from None


def checksum_of(content: bytes | bytearray | memoryview) -> str:
    """The SHA-256 of what a file holds."""
    return hashlib.sha256(content).hexdigest()


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()  # Python 3.10 has no hashlib.file_digest
    with opened(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


# Writing


def write_bytes(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a file whole or not at all, and so that it is still there after a loss of power.

    It is written beside, brought to the disk, and renamed: readers see the file as it was or as it is to be. What a
    killed process leaves is a hidden ``.NAME.LETTERS.part``: the next one to write this file removes it, as does
    ``folders.locked``.

    Raises:
        WriteFailed: with the reason, in a line; the file is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(path.parent, path.name)
        while not _written(path, content):
            pass
        sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib whole or not at all, in the format of the path's ending; options of savefig."""
    path, drawn = Path(path), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # of names in other alphabets: a box is drawn
        figure.savefig(drawn, format=path.suffix.removeprefix(".") or "png", **options)
    write_bytes(path, drawn.getbuffer())


def move_all(paths: Sequence[Path], folder: Path) -> None:
    """Move files that ``write_bytes`` wrote into another folder of the same disk, one after the other."""
    for path in paths:
        try:
            path.replace(folder / path.name)
        except OSError as error:
            raise WriteFailed(folder / path.name, error) from error
    sync_folder(folder)


def is_part(name: str) -> bool:
    """Whether a file's name is that of one being written, or of one whose process was killed."""
    return _PART.fullmatch(name) is not None


def remove_parts(folder: Path, of: str | None = None) -> None:
    """Remove what killed processes left of files that they were writing in a folder; of one name, or of all.

    Whoever writes a part holds a lock on it, which the system lets go when the process ends: one that nobody holds
    is of no more use.
    """
    with os.scandir(folder) as entries:
        names = [one.name for one in entries if is_part(one.name) and one.is_file(follow_symlinks=False)]
    for name in names:
        if of is None or name.startswith(_begins(of)):
            with suppress(OSError), (folder / name).open("rb") as file:
                if _held(file):
                    (folder / name).unlink()


def check_room(path: Path, needed: int) -> None:
    """Refuse to begin where the disk cannot hold what will be written to ``path`` (``needed`` bytes)."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if needed and free < needed + SPARE:
        raise OSError(
            f"{path}: the run needs about {(needed + SPARE) / 1e6:.0f} MB and the disk has {free / 1e6:.0f} MB "
            "left; free some, or choose another folder"
        )


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders that may be gone already; what may not be removed stays."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue


def sync_folder(folder: Path) -> None:
    """Bring a renaming to the disk, where the system can: not every file system lets a folder be opened."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        pass
    finally:
        os.close(number)


def _written(path: Path, content: bytes | bytearray | memoryview) -> bool:
    """Write a part and rename it; False if somebody took it for a leftover before it was held."""
    part = path.with_name(f"{_begins(path.name)}{os.urandom(4).hex()}.part")
    try:
        with part.open("xb") as file:
            if not _held(file):
                return False
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            try:
                part.replace(path)
            except FileNotFoundError:
                if path.parent.is_dir():
                    return False
                raise
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return True


def _begins(name: str) -> str:
    """How the parts of a file's name begin; shortened, since a name has at most 255 bytes."""
    return f".{os.fsencode(name)[:200].decode(errors='ignore')}."


def _held(file: BinaryIO) -> bool:
    """Take the system's lock on an open file; False if another process has it. Not every system has such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe (FIFO)"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((words for is_kind, words in kinds if is_kind(mode)), "something special")
