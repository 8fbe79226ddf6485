"""What a reader does besides reading: code it runs, the network, files it writes or reads elsewhere. All is stopped."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

from faults.canary import SECRET

SOURCES = Path(__file__).resolve().parent.parent.parent
OWN_CODE = (
    "dataclasses.py",
    "collections/__init__.py",
    "enum.py",
    "typing.py",
    "functools.py",
    "inspect.py",
    "attr/_make.py",
)
"""Of Python's library: they make code of text by themselves."""
NETWORK = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.bind",
    "socket.sendto",
    "urllib.Request",
)
PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
)
WRITES = {
    "os.remove": 1,
    "os.rename": 2,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 1,
}
"""Events that change what is on the disk, and how many of their arguments are paths."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Stopped(PermissionError):  # noqa: N818
    """What a reader gets that tries."""


class Watch:
    """An audit hook; it cannot be taken off again, so it belongs into a process of its own.

    Attributes:
        seen: what was tried since it was last cleared.
    """

    def __init__(self, folder: Path, *, trusted: bool = False) -> None:
        self.seen: list[str] = []
        self.on = False
        self._own = (f"{folder.resolve()}{os.sep}", "/dev/null", "/dev/shm/sem.")
        paths = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        code = {
            *paths,
            *site.getsitepackages(),
            str(SOURCES / "src"),
            str(SOURCES / "tests"),
            os.path.dirname(os.__file__),
        }
        code |= {one for one in sys.path if one and os.path.isabs(one) and not one.startswith(self._own[0])}
        code |= {str(folder)} if trusted else set()
        self._code = tuple(f"{os.path.realpath(one)}{os.sep}" for one in code)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        self.on = False  # what is done in here is not the reader's
        try:
            what = self._judged(event, args)
        finally:
            self.on = True
        if what is not None:
            self.seen.append(what)
            raise Stopped(f"{what}: stopped by the harness")

    def _judged(self, event: str, args: tuple[Any, ...]) -> str | None:
        if event == "open":
            return self._opened(*args[:3])
        if event == "exec":
            return self._executed(args[0])
        if event in NETWORK:
            return f"{event} {args[-1] if event == 'socket.connect' else args[:2]}"
        if event in PROCESSES:
            return f"{event} {str(args)[:200]}"
        if event in WRITES:
            strange = [path for path in args[: WRITES[event]] if not self._inside(path)]
            return f"{event} {strange[0]}" if strange else None
        return None

    def _opened(self, path: Any, mode: Any, flags: Any) -> str | None:
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if text.endswith(SECRET):
            return f"open {text}"
        writes = (
            any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
        )
        return f"open for writing {text}" if writes and not self._inside(text) else None

    def _executed(self, code: Any) -> str | None:
        name = getattr(code, "co_filename", "")
        if name.startswith("<frozen"):
            return None
        if name.startswith("<"):
            frame = sys._getframe(3)
            return (
                None
                if frame.f_code.co_filename.endswith(OWN_CODE)
                else f"exec {name} by {frame.f_code.co_filename}"
            )
        return None if os.path.realpath(name).startswith(self._code) else f"exec {name}"

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return True
        return (
            os.path.abspath(os.fsdecode(path)).startswith(self._own)
            or f"{os.path.abspath(os.fsdecode(path))}{os.sep}" == self._own[0]
        )
