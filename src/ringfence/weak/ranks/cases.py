"""Many cases, each for itself: done by this process, by worker processes, or by several ranks; results in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import torch

from ringfence import memory
from ringfence.hints import one_line, shown
from ringfence.weak.ranks.processes import end_all, end_by_signal, end_with_parent, how_ended
from ringfence.weak.ranks.together import MISTAKES, together
from ringfence.weak.ranks.world import POLL, World, from_all, world_of_environment

MOST: Final = 256
"""Worker processes: each has an interpreter and torch of its own."""
LOOKING: Final = 10.0
"""Seconds in which a rank must see what another wrote."""
ROUND: Final = 16
"""Cases that a worker of a rank does before ranks tell each other what they have."""


class Named(Protocol):
    """A case of any kind."""

    @property
    def name(self) -> str:
        """Which."""


C = TypeVar("C", bound=Named)
R = TypeVar("R")
Work = Callable[[Iterable[C]], Iterator[R]]
"""From cases to their results, in their order."""


class WorkerLost(ChildProcessError):  # noqa: N818 - as one says it
    """A worker process that ended without a word."""


@dataclass(frozen=True)
class Crew:
    """Who does the cases.

    Attributes:
        workers: processes of each rank; 1: no others.
        world: the ranks.
    """

    workers: int = 1
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MOST:
            raise ValueError(f"--workers: {self.workers} must be from 1 to {MOST}")

    def take_gpu(self) -> None:
        """Each rank of a machine works on a GPU of its own, as far as there are enough."""
        if self.world.several and torch.cuda.is_available():
            torch.cuda.set_device(self.world.local_rank % torch.cuda.device_count())

    def check_same(self, **asked: object) -> None:
        """Refuse ranks that were asked for different things, or see different files: halves of two would be made.

        Args:
            **asked: by the name that the user knows.
        """
        mine = {name: repr(value) for name, value in asked.items()}
        for rank, theirs in enumerate(from_all(mine)):
            for name, value in theirs.items():
                if value != mine[name]:
                    raise ValueError(
                        f"ranks {self.world.rank} and {rank} differ in {name} ({_apart(mine[name], value)}): start "
                        "all with the same command, and with folders that all of them see"
                    )

    def check_sees(self, path: Path) -> None:
        """Refuse ranks that do not see what rank 0 has just written. Nobody goes on before all have looked."""
        from_all(None)
        until = time.monotonic() + LOOKING  # a network's file system may be slow to tell
        while not path.exists() and time.monotonic() < until:
            time.sleep(POLL)
        blind = [rank for rank, sees in enumerate(from_all(path.exists())) if not sees]
        if blind:
            raise ValueError(
                f"rank {blind[0]} does not see {path}, which rank 0 wrote: name a folder that all machines share"
            )

    def from_first(self, value: R) -> R:
        """What rank 0 has."""
        first: R = from_all(value)[0]
        return first

    def results(
        self, begin: Callable[..., Work[C, R]], arguments: Sequence[Any], cases: Sequence[C]
    ) -> Generator[R, None, None]:
        """``begin(*arguments)(cases)``, done together: every rank gets every case's result, in the cases' order.

        Args:
            begin: a function of a module, and arguments that can be pickled: each process makes its own work of it.
            arguments: of ``begin``.
            cases: the same on all ranks.

        Raises:
            WorkerLost: a worker is gone; with the case that it was at.
        """
        with _here(begin, arguments) if self.workers == 1 else _workers(begin, arguments, self) as work:
            if not self.world.several:
                yield from work(cases)
                return
            rank, size = self.world.rank, self.world.size
            step = ROUND * self.workers * size
            for first in range(0, len(cases), step):
                some = cases[first : first + step]
                everyones = from_all(list(work(some[rank::size])))
                yield from (everyones[number % size][number // size] for number in range(len(some)))


@contextmanager
def crew_of(workers: int) -> Iterator[Crew]:
    """This process with its workers, and the ranks that torchrun or srun started beside it, for one command."""
    world = world_of_environment()
    crew = Crew(workers, world)
    with together(world):
        if world.several:
            memory.divide(world.local_size)
            if "OMP_NUM_THREADS" not in os.environ:
                torch.set_num_threads(max(1, torch.get_num_threads() // world.local_size))
        yield crew


def _apart(mine: str, theirs: str) -> str:
    """The two, from a little before where they part."""
    same = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
    first = max(0, same - 20)
    return f"{shown(mine[first:])} and {shown(theirs[first:])}"


@contextmanager
def _here(begin: Callable[..., Work[C, R]], arguments: Sequence[Any]) -> Iterator[Work[C, R]]:
    yield begin(*arguments)


# Worker processes


@dataclass
class _Worker(Generic[C]):
    """A process, the line to it, and what it is at: the case's number, or None."""

    process: BaseProcess
    line: Connection
    at: tuple[int, C] | None = None


@contextmanager
def _workers(begin: Callable[..., Work[C, R]], arguments: Sequence[Any], crew: Crew) -> Iterator[Work[C, R]]:
    """That work done by a crew's processes, of which none is left at the end."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit threads and a GPU's state
    count = crew.workers
    threads, sharers = max(1, torch.get_num_threads() // count), count * crew.world.local_size
    team: list[_Worker[C]] = []
    finished = False
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, begin, arguments, threads, sharers), daemon=True)
            process.start()
            theirs.close()
            team.append(_Worker(process, ours))
        yield lambda cases: _shared(team, cases)
        finished = True
    finally:
        for one in team:
            one.line.close()  # which they take for the end
            if not finished:
                one.process.terminate()
        end_all([one.process for one in team])


def _shared(team: Sequence[_Worker[C]], cases: Iterable[C]) -> Iterator[R]:
    """Hand cases out, one to whoever is free; results in the cases' order."""
    left = deque(enumerate(cases))
    done: dict[int, R] = {}
    for following in range(len(left)):
        while following not in done:
            for one in team:
                if one.at is None and left:
                    one.at = left.popleft()
                    with suppress(OSError):  # it is gone: seen below
                        one.line.send(one.at[1])
            busy = {one.line: one for one in team if one.at is not None}
            for line in wait(list(busy)):
                one = busy[line]  # type: ignore[index]
                done[_number(one)] = _received(one)
                one.at = None
        yield done.pop(following)


def _number(one: _Worker[C]) -> int:
    return -1 if one.at is None else one.at[0]


def _received(one: _Worker[C]) -> Any:
    """A worker's result; or the error that it met, as our own."""
    try:
        fine, what = one.line.recv()
    except (EOFError, OSError):
        raise WorkerLost(_lost(one)) from None
    if fine:
        return what
    kind, text = what
    raise kind(text)


def _lost(one: _Worker[C]) -> str:
    one.process.join(5)
    code = one.process.exitcode
    name = one_line(one.at[1].name) if one.at else "no case"
    if code is not None and code >= 0:
        return (
            f"a worker {how_ended(code)} at {name} before it could say why; in a script, call this under: "
            'if __name__ == "__main__":'
        )
    how = "gone" if code is None else how_ended(code)
    return (
        f"a worker is gone at {name} ({how}; for want of memory, perhaps: fewer --workers need less). The others "
        "were ended, and what is finished stays"
    )


def _serve(
    line: Connection, begin: Callable[..., Work[C, R]], arguments: Sequence[Any], threads: int, sharers: int
) -> None:
    """What a worker does: case after case, until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us, and who then ends us:
    signal.signal(signal.SIGTERM, end_by_signal)  # and what is half written is removed
    end_with_parent()
    memory.divide(sharers)
    torch.set_num_threads(threads)
    work: Work[C, R] | None = None
    while True:
        try:
            case = line.recv()
        except (EOFError, OSError):
            return
        try:
            work = work or begin(*arguments)
            (result,) = work([case])
            answer: tuple[bool, Any] = (True, result)
        except Exception as error:
            answer = (False, _packed(error))
        try:
            line.send(answer)
        except OSError:
            return


def _packed(error: Exception) -> tuple[type[Exception], str]:
    """An error's kind and words: many errors cannot be pickled."""
    kinds: Mapping[type[Exception], type[Exception]] = {one: one for one in MISTAKES}
    for kind in kinds:
        if isinstance(error, kind):
            return kind, str(error) or type(error).__name__
    return RuntimeError, f"in a worker:\n{''.join(traceback.format_exception(error)).rstrip()}"
