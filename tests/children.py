"""Processes that tests start: with time enough on a slow machine, a word from one that hangs, and imports only once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

PATIENCE = 280.0
"""Seconds that a process may take; three times what the slowest takes on a busy machine. A test has 900."""
STACK = 5.0
"""Seconds that a process may take to show its stack."""
FORKED_WITH = [
    "monai.networks.nets",
    "pytorch_lightning",
    "torch._dynamo",
    "ringfence.weak.evaluation",
    "ringfence.weak.experiments.train",
    "ringfence.weak.inference.export",
    "ringfence.weak.building.build",
    "ringfence.weak.training.loading.streaming",
]
"""What ranks import: half a minute of two cores for four of them, each time anew."""


def python(
    *words: str | Path, typed: str | None = None, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """``python words``: how it ended, and what it said."""
    return called([sys.executable, *words], typed=typed, cwd=cwd, variables=variables)


def called(
    words: Sequence[str | Path],
    *,
    typed: str | None = None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same of any program, with these variables beside our own."""
    process = started(words, cwd=cwd, variables=variables, stdin=subprocess.PIPE if typed else subprocess.DEVNULL)
    out, said = ended(process, typed)
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


def started(
    words: Sequence[str | Path], *, variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """A program that runs meanwhile, in a group of its own; wait for it with ``ended``."""
    return subprocess.Popen(
        [str(word) for word in words],
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        **options,
    )


def ended(process: subprocess.Popen[str], typed: str | None = None, patience: float = PATIENCE) -> tuple[str, str]:
    """What it said on its two streams; who hangs, and all whom it started, must show their stacks, and the test fails."""
    try:
        return process.communicate(typed, timeout=patience)
    except subprocess.TimeoutExpired:
        _show_stacks(process)
        try:
            out, said = process.communicate(timeout=20)
        except subprocess.TimeoutExpired as late:
            out, said = (one.decode(errors="replace") if one else "" for one in (late.stdout, late.stderr))
        _tell_all(process, signal.SIGKILL)
        pytest.fail(f"{process.args} did not end in {patience:.0f} s. It said:\n{out}\n{said}", pytrace=False)
    except BaseException:  # Ctrl-C, or the test's own time is over
        _tell_all(process, signal.SIGKILL)
        raise


def _show_stacks(process: subprocess.Popen[str]) -> None:
    """One process after another: a stack is written in pieces, and those of two at once cannot be read."""
    for pid in _group(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)
        until = time.monotonic() + STACK
        while pid in _group(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
    _tell_all(process, signal.SIGABRT)  # where there is no /proc, and whoever was started meanwhile


def _group(leader: int) -> list[int]:
    """The processes of a group that still run, as Linux lists them; none elsewhere."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, group = file.read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader and state not in "ZX":
                found.append(int(file.parent.name))
    return sorted(found)


def _tell_all(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """The process and all of its group, if any is left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# Ranks and workers


def ranks(run: Callable[..., None], world: int, *arguments: Any) -> None:
    """``run(rank, world, *arguments)`` by so many new processes, as by ``torch.multiprocessing.spawn``."""
    torch.multiprocessing.start_processes(run, (world, *arguments), world, start_method="forkserver")


@contextmanager
def quick_processes() -> Iterator[None]:
    """Whoever spawns processes meanwhile has them forked, from one that has imported everything and done nothing."""
    plain = multiprocessing.get_context

    def context(method: str | None = None) -> Any:
        return _Quick() if method == "spawn" else plain(method)

    with mock.patch.object(multiprocessing, "get_context", context):
        yield


@contextmanager
def one_server() -> Iterator[None]:
    """All forks are of one process, whoever asks for it first: those of ``ranks`` and those that read streamed images."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(FORKED_WITH)
    with mock.patch.object(context, "set_forkserver_preload"):
        yield


class _Quick:
    """In place of multiprocessing's context ``spawn``."""

    def Process(self, *, target: Callable[..., None], args: Sequence[Any], daemon: bool | None = None) -> Any:  # noqa: N802
        return multiprocessing.get_context("forkserver").Process(
            target=_as_here, args=(dict(os.environ), target, args), daemon=daemon
        )

    def Pipe(self) -> Any:  # noqa: N802
        return multiprocessing.get_context("forkserver").Pipe()


def _as_here(variables: dict[str, str], target: Callable[..., None], arguments: Sequence[Any]) -> None:
    """Forks have the environment of who forks them, which is not ours of now."""
    os.environ.clear()
    os.environ.update(variables)
    target(*arguments)
