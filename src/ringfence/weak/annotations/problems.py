"""All that is wrong with a file, in one message: nobody should run a command ten times to mend ten lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MOST: Final = 10
"""Problems that are listed; a file with more is probably wrong throughout, and is read no further."""
LONGEST: Final = 60
"""Characters of a value that are shown."""


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
            self._found.append(f"{where}: {error}")

    def check(self) -> None:
        """Raise if there was any."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise ValueError(f"{self._path}: {self._found[0]}")
        count = f"the first {len(self._found)} problems" if self.enough else f"{len(self._found)} problems"
        raise ValueError("\n  ".join([f"{self._path}: {count}:", *self._found]))


def shown(value: object) -> str:
    """A value as it is quoted in a message: short, and without control characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def hint(value: str, known: Iterable[str]) -> str:
    """What the value may have been meant to be: 'did you mean ...?', or what there is if nothing is near."""
    names = list(known)
    near = difflib.get_close_matches(value[:LONGEST], names, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"there is {listed(names)}"


def listed(names: Iterable[str]) -> str:
    """Names with commas, no more than ten of them."""
    names = list(names)
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + rest
