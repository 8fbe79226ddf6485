"""All that is wrong with a file, in one message: nobody should run a command ten times to mend ten lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ringfence.hints import one_line

MOST: Final = 10
"""Problems that are listed; a file with more is probably wrong throughout, and is read no further."""


class Problems:
    """What is wrong with a file, and where.

    Args:
        path: the file; or what all of it is about, in words.
    """

    def __init__(self, path: Path | str) -> None:
        self._path, self._found, self._guess = path, list[str](), ""

    @property
    def enough(self) -> bool:
        """Whether to stop looking."""
        return len(self._found) >= MOST

    @property
    def any(self) -> bool:
        """Whether something is wrong."""
        return bool(self._found)

    def guess(self, why: str) -> None:
        """Say what all of it may come from, after the problems themselves."""
        self._guess = one_line(why)

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Note a ValueError as a problem of this place, and go on after the block."""
        try:
            yield
        except ValueError as error:
            self.note(f"{where}: {error}")

    def note(self, problem: str) -> None:
        """One more, told with its place."""
        self._found.append(one_line(problem))

    def check(self) -> None:
        """Raise if there was any."""
        if not self._found:
            return
        guess = [self._guess] if self._guess else []
        if len(self._found) == 1:
            raise ValueError("\n  ".join([f"{self._path}: {self._found[0]}", *guess]))
        count = f"the first {len(self._found)} problems" if self.enough else f"{len(self._found)} problems"
        raise ValueError("\n  ".join([f"{self._path}: {count}:", *self._found, *guess]))
