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
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._found = path, list[str]()

    @property
    def enough(self) -> bool:
        """Whether to stop looking."""
        return len(self._found) >= MOST

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Note a ValueError as a problem of this place, and go on after the block."""
        try:
            yield
        except ValueError as error:
            self._found.append(one_line(f"{where}: {error}"))

    def check(self) -> None:
        """Raise if there was any."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise ValueError(f"{self._path}: {self._found[0]}")
        count = f"the first {len(self._found)} problems" if self.enough else f"{len(self._found)} problems"
        raise ValueError("\n  ".join([f"{self._path}: {count}:", *self._found]))
