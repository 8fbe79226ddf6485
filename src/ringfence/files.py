"""Files that are written whole or not at all, their checksums, and folders that one process at a time works in."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ringfence.extras import require

SPARE: Final = 1_000_000
"""Bytes that must be left on a disk for tables and figures."""


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Where to write instead of ``path``; renamed to it after the block, or removed if that fails.

    Readers see the file as it was or as it is to be, never a part of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replaced(path) as part:
        part.write_text(text, encoding="utf-8")


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()  # Python 3.10 has no hashlib.file_digest
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_room(path: Path, needed: int) -> None:
    """Refuse to begin where the disk cannot hold what will be written to ``path`` (``needed`` bytes)."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if needed and free < needed + SPARE:
        raise OSError(
            f"{path}: the run needs about {(needed + SPARE) / 1e6:.0f} MB and the disk has {free / 1e6:.0f} MB "
            "left; free some, or choose another folder"
        )


@contextmanager
def locked(lock: Path, doing: str) -> Iterator[None]:
    """Nobody else works in the lock's folder meanwhile; whoever finds it taken is refused at once.

    The operating system holds the lock, and lets it go when its process ends, however that is: the file that stays
    behind then locks nothing.

    Args:
        lock: the lock's file; its folder is made.
        doing: what is done in the folder, as in "is being prepared".
    """
    filelock = require("filelock", "working in a folder", "train")
    folder = lock.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(lock, timeout=0)
        held.acquire()
    except filelock.Timeout:
        raise FileExistsError(f"{folder} is being {doing} by another process: wait until it has ended") from None
    except PermissionError:
        raise PermissionError(f"{folder} cannot be written to: choose another folder") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{folder} would be inside a file: choose another folder") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        held.release()
