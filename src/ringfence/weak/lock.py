"""One process at a time in a folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_here(lock: Path, done: str) -> Iterator[None]:
    """Nobody else works in the lock's folder meanwhile; who does already is named.

    Args:
        lock: a file that is there as long as somebody does.
        done: what is done to the folder, as in "is being prepared".
    """
    path = lock.parent
    try:
        path.mkdir(parents=True, exist_ok=True)
        for _ in range(3):
            try:
                descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                break
            except FileExistsError:
                _check_left_behind(lock, done)
        else:
            raise FileExistsError(f"{path}: it is being {done} by others again and again; try later")
    except PermissionError:
        raise PermissionError(f"{path} cannot be written to: choose another folder") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{path} would be inside a file: choose another folder") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {platform.node()}\n")
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _check_left_behind(lock: Path, done: str) -> None:
    """Remove the lock of a process that is gone; refuse while it may be at work."""
    try:
        words = lock.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return
    if len(words) == 2 and words[0].isdecimal() and words[1] == platform.node() and not _runs(int(words[0])):
        lock.unlink(missing_ok=True)
        return
    who = f"process {words[0]} on {words[1]}" if len(words) == 2 else "another process"
    raise FileExistsError(
        f"{lock.parent} is being {done} by {who}: wait until it has ended. If it has, remove {lock}"
    )


def _runs(process: int) -> bool:
    if process == os.getpid():  # in a container, the one before had the same number
        return False
    if os.name != "posix":  # where to ask would be to end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
