"""Commands in forked children: counted, killed at any step of theirs, with little room, two at once; and compared.

The parent has imported everything, so that a child is a command's own time. A step is a change of what is on the
disk (a file opened for writing, renamed, removed, synced; a folder made): a kill before each is every state that a
killed process can leave, and a kill in the middle of a file's writing is that of half a file.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLOW = 240.0
"""Seconds after which a command hangs."""
CHANGES = {
    "os.rename": 1,
    "os.remove": 1,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.truncate": 1,
    "os.link": 1,
    "os.symlink": 1,
}
_WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: of the process; minus the signal that killed it.
        output: what it printed, both streams.
        steps: how many changes on the disk it made; 0 if it was killed.
        peak: MB that its memory rose by at most; 0 if it was killed.
    """

    status: int
    output: str
    steps: int = 0
    peak: float = 0.0

    @property
    def fault(self) -> str | None:
        """What is wrong with how a command failed, if it did: it should say so in a line."""
        if self.status in (0, -signal.SIGKILL):
            return None
        last = [line for line in self.output.splitlines() if line.startswith("ringfence ")]
        if "Traceback" in self.output or self.status not in (1, 2, 130):
            return f"status {self.status}: {self.output[-1500:]}"
        return None if last else f"says nothing: {self.output[-500:]}"


@dataclass
class Child:
    """A command in a child of its own.

    Attributes:
        arguments: of ``ringfence``.
        place: its current folder.
        kill_at: the step before which it is killed; None for never.
        torn: whether the file that is being synced at that step is cut in half first.
        bytes: the largest file that it may write.
        delay: seconds before it begins.
        environment: more variables.
        memory: bytes that it may ask the system for, beyond what it has.
    """

    arguments: Sequence[str]
    place: Path
    kill_at: int | None = None
    torn: bool = False
    bytes: int | None = None
    delay: float = 0.0
    environment: dict[str, str] | None = None
    memory: int | None = None

    def start(self) -> Child:
        """Fork it."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._output, written = os.pipe()
        self._facts, told = os.pipe()
        self.temporary = self.place.parent / f"{self.place.name}.tmp"
        self.temporary.mkdir(exist_ok=True)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._output)
            self._run(written, told)
        os.close(written)
        os.close(told)
        return self

    def kill(self) -> None:
        """Without a word."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, kill_after: float | None = None) -> Ended:
        """Until it ends, or is killed."""
        began, output, killed = time.monotonic(), bytearray(), False
        while True:
            ready, _, _ = select.select([self._output], [], [], 0.02)
            if ready:
                some = os.read(self._output, 65536)
                output += some
                if not some:
                    break
            passed = time.monotonic() - began
            if not killed and (passed > SLOW or (kill_after is not None and passed > kill_after)):
                killed = True
                self.kill()
        _, status = os.waitpid(self.pid, 0)
        facts = os.read(self._facts, 100).decode().split()
        os.close(self._output)
        os.close(self._facts)
        if kill_after is None and killed:
            output += b"\nTraceback: it hangs"
        steps, peak = (int(facts[0]), float(facts[1])) if facts else (0, 0.0)
        return Ended(os.waitstatus_to_exitcode(status), output.decode(errors="replace"), steps, peak)

    def _run(self, written: int, told: int) -> None:
        status = 70
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.dup2(written, 1)
            os.dup2(written, 2)
            sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
            os.chdir(self.place)
            tempfile.tempdir = None
            os.environ |= {"TMPDIR": str(self.temporary), "RINGFENCE_COMMIT": "faults", "COLUMNS": "100"} | (
                self.environment or {}
            )
            sys.argv = ["ringfence", *self.arguments]
            time.sleep(self.delay)
            if self.bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.bytes, self.bytes))
            if self.memory is not None:
                now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (now + self.memory, now + self.memory))
            steps = Steps(self.place.parent, self.kill_at, self.torn)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            from ringfence.cli import main

            try:
                status = main(list(self.arguments))
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else 1
            steps.on = False
            peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            os.write(told, f"{steps.count} {peak:.0f}".encode())
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(status)


class Steps:
    """Counts the changes that this process makes below a folder, and kills it before a given one."""

    def __init__(self, folder: Path, kill_at: int | None, torn: bool) -> None:
        self.folder, self.kill_at, self.torn, self.count, self.on = str(folder), kill_at, torn, 0, True
        sys.addaudithook(self._hear)
        self._sync, os.fsync = os.fsync, self._synced

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and (event in CHANGES or (event == "open" and (args[2] or 0) & _WRITING)):
            path = args[0]
            if not isinstance(path, int) and os.path.abspath(os.fsdecode(path)).startswith(self.folder):
                self._step(None)

    def _synced(self, file: Any) -> None:
        if self.on:
            self._step(file if isinstance(file, int) else file.fileno())
        self._sync(file)

    def _step(self, file: int | None) -> None:
        self.count += 1
        if self.count == self.kill_at:
            if self.torn and file is not None and not os.path.isdir(f"/proc/self/fd/{file}"):
                with contextlib.suppress(OSError):
                    os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def content(folder: Path) -> dict[str, Any]:
    """Every file below a folder, also hidden ones, as it is compared; a folder that holds nothing is None."""
    found: dict[str, Any] = {}
    for place, folders, files in os.walk(folder):
        name = os.path.relpath(place, folder)
        for file in files:
            found[os.path.normpath(os.path.join(name, file))] = comparable(Path(place, file))
        if not files and not folders and name != ".":
            found[name] = None
    return found


def comparable(file: Path) -> Any:
    """A file without what may differ between two runs: how long things took, when and by which command they began."""
    try:
        if file.name == "environment.json":
            facts = json.loads(file.read_text())
            return {name: value for name, value in facts.items() if name not in ("started", "resumed", "command")}
        if file.name == "result.json":
            facts = json.loads(file.read_text())
            facts["last_epoch"] = {
                name: value for name, value in facts["last_epoch"].items() if "seconds" not in name
            }
            return facts
        if file.suffix == ".csv":
            rows = list(csv.DictReader(io.StringIO(file.read_text())))
            return [{name: value for name, value in row.items() if "second" not in str(name)} for row in rows]
        if file.name == "table.md":
            header, *lines = file.read_text().splitlines()
            timed = [number for number, title in enumerate(header.split("|")) if "s/" in title or "second" in title]
            return [[cell for number, cell in enumerate(line.split("|")) if number not in timed] for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{error}: {file.read_bytes()!r}"
    return file.read_bytes()


def differences(found: dict[str, Any], expected: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The files that differ or are missing, and those that are left over."""
    differ = [name for name, value in expected.items() if name not in found or found[name] != value]
    return sorted(differ), sorted(found.keys() - expected.keys())


def spread(tasks: Iterable[Any], each: Callable[[Any], dict[str, Any]], jobs: int) -> list[dict[str, Any]]:
    """``each`` of the tasks, in so many forked processes; those may fork in turn."""
    tasks, results, workers = list(tasks), [], []
    for job in range(jobs):
        source, sink = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(source)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = 0
            with os.fdopen(sink, "w") as told:
                for task in tasks[job::jobs]:
                    try:
                        print(json.dumps(each(task)), file=told, flush=True)
                    except BaseException:
                        traceback.print_exc()
                        status = 1
                        break
            os._exit(status)
        os.close(sink)
        workers.append((pid, os.fdopen(source)))
    failed = False
    for pid, source in workers:
        with source:
            results += [json.loads(line) for line in source]
        failed |= os.waitpid(pid, 0)[1] != 0
    if failed:
        raise RuntimeError("the harness itself failed, see above")
    return results


def removed(folder: Path) -> None:
    """With what it holds."""
    shutil.rmtree(folder, ignore_errors=True)
