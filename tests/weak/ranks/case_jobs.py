"""What worker processes do in the tests of cases."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from ringfence import memory
from ringfence.files import WriteFailed


@dataclass(frozen=True)
class Number:
    """A case."""

    name: str
    value: int


def squares(power: int) -> Callable[[Iterable[Number]], Iterator[tuple[int, int, int, int]]]:
    """value^power, who computed it, with how many threads and how much memory; later cases are faster."""

    def work(cases: Iterable[Number]) -> Iterator[tuple[int, int, int, int]]:
        for case in cases:
            time.sleep(0.1 / (1 + case.value))
            yield case.value**power, os.getpid(), torch.get_num_threads(), memory.limit()

    return work


def ending(how: str) -> Callable[[Iterable[Number]], Iterator[int]]:
    """The third case ends badly."""

    def work(cases: Iterable[Number]) -> Iterator[int]:
        for case in cases:
            if case.value == 2 and how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if case.value == 2 and how == "full":
                raise WriteFailed("out/c2.nii", OSError(28, "No space left on device"))
            yield case.value

    return work


def slow(folder: Path) -> Callable[[Iterable[Number]], Iterator[int]]:
    """Says that it has begun, and takes its time."""

    def work(cases: Iterable[Number]) -> Iterator[int]:
        for case in cases:
            (folder / f"{os.getpid()}").touch()
            try:
                time.sleep(60)
                yield case.value
            finally:
                (folder / f"{os.getpid()}").unlink()

    return work
