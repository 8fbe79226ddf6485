"""Folders that one process at a time writes to, and what killed processes left in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ringfence.extras import require
from ringfence.files import WriteFailed, is_part, remove, remove_parts

LOCK: Final = ".ringfence.lock"
"""One name for every command: two that would write to the same folder meet here."""
OLD_LOCKS: Final = ("preparing.lock", "training.lock")
"""Those of earlier versions: they lock nothing any more."""
UNFINISHED: Final = ".unfinished-"
"""Begins the names of folders in which a command puts files together before it moves them to their places."""


@contextmanager
def locked(folder: Path, doing: str, only: str | None = None) -> Iterator[None]:
    """Nobody else writes to the folder meanwhile; whoever finds it taken is refused, and nothing is changed.

    The operating system holds the lock, and lets it go when its process ends, however that is: the file that stays
    behind then locks nothing. What killed processes left is removed first. A folder that was made for this, and in
    which nothing was written, is removed at the end.

    Args:
        folder: it is made if it is not there.
        doing: what is done in it, as in "is being prepared".
        only: lock a single file of the folder, or what goes by this name, and leave the rest to others.
    """
    filelock = require("filelock", "working in a folder", "train")
    lock = folder / (LOCK if only is None else f".ringfence-{only}.lock")
    made = _make(folder)
    held = filelock.FileLock(lock, timeout=0)
    try:
        _acquire(held, lock)
    except filelock.Timeout:
        raise FileExistsError(
            f"{folder if only is None else folder / only} is being {doing} by another process: wait until it has "
            "ended. Nothing was changed"
        ) from None
    except OSError as error:
        raise WriteFailed(folder, error) from error
    try:
        if only is None:
            _tidy(folder)
        yield
    finally:
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        held.release()
        if made:
            with suppress(OSError):
                folder.rmdir()  # unless something is in it


def is_debris(path: Path) -> bool:
    """Whether a file or folder is no result: a lock, or a part of one that a process may have left when killed."""
    name = path.name
    ours = name.startswith(".ringfence") and name.endswith(".lock")
    return ours or name in OLD_LOCKS or is_part(name) or name.startswith(UNFINISHED)


def content(folder: Path) -> list[Path]:
    """What a folder holds, but for debris; nothing if there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not is_debris(path))
    except FileNotFoundError:
        return []


def _tidy(folder: Path) -> None:
    """Remove what killed processes left in a folder and below it, now that nobody else works there."""
    for place, folders, files in os.walk(folder):
        half = [name for name in folders if name.startswith(UNFINISHED)]
        folders[:] = [name for name in folders if name not in half]  # no need to look inside
        remove(Path(place, name) for name in (*half, *(name for name in files if name in OLD_LOCKS)))
        remove_parts(Path(place))


def _make(folder: Path) -> bool:
    """Make it; whether it was not there."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; a folder is needed. Nothing was changed")
    there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(folder, error) from error
    return not there


def _acquire(held: object, lock: Path) -> None:
    """Take the lock, and be sure that it is the file's that is there: its last holder may just have removed it."""
    while True:
        held.acquire()  # type: ignore[attr-defined]
        number = held._context.lock_file_fd  # type: ignore[attr-defined]
        try:
            if os.path.samestat(os.fstat(number), lock.stat()):
                return
        except FileNotFoundError:
            pass
        held.release()  # type: ignore[attr-defined]
