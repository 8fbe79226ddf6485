"""What a fuzzed reader is: valid inputs, how they are damaged, how they are read, and who says what is right."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar


class Reader(ABC):
    """One way into the program for a file of unknown origin.

    Attributes:
        name: in the table, and on the command line.
        count: inputs of the long run.
        named: whether a refusal must name the file.
        trusted: whether the file is the user's own, and may name code in the current folder.
    """

    name: ClassVar[str]
    count: ClassVar[int] = 100_000
    named: ClassVar[bool] = True
    trusted: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make the valid inputs, once, before workers are forked; ``folder`` stays."""

    @property
    @abstractmethod
    def valid(self) -> int:
        """How many there are. The first inputs are these, undamaged: they must be accepted."""

    @abstractmethod
    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        """Write an input into an empty folder: the valid one of this number, or if there is none a damaged one."""

    @abstractmethod
    def read(self, path: Path) -> Any:
        """What the program makes of it."""

    def check(self, path: Path, found: Any) -> str | None:  # noqa: B027 - not every reader has one
        """What is wrong with what was accepted, by another way to read it; None if nothing is."""


class Wrong(Exception):  # noqa: N818
    """What an oracle raises."""


def expect(condition: Any, what: str) -> None:
    """Note what is wrong."""
    if not condition:
        raise Wrong(what)


def emptied(folder: Path) -> Path:
    """The folder, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
