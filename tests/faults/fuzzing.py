"""Inputs by the thousand in forked workers: each has a number, and can be made again from it alone.

A worker notes in shared memory which input it reads and since when, so that the parent can tell a hang, and which
input a crash belongs to; the worker's counts are there as well, and outlive it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import canary
from faults.reader import Reader, Wrong, emptied
from faults.watch import Watch

ACCEPTED, REFUSED = "accepted", "refused"
FAULTS = ("wrong", "traceback", "hang", "crash", "code", "memory", "unclear", "valid refused")
OUTCOMES = (ACCEPTED, REFUSED, *FAULTS)
HANG = 10.0
"""Seconds."""
LIMIT, SPARE = 50, 150
"""MB: what RINGFENCE_MEMORY allows in a worker, and how far its peak may rise in one input."""
BROKEN = 87
"""How a worker ends when the harness is at fault, not the reader."""
LINES, LONGEST = 40, 20_000
"""Of a refusal's message."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\ud800-\udfff]")
_BARE = re.compile(
    r"\[Errno \d+\]|'[\w-]+' codec can't|Expecting (value|property|',')|could not convert|invalid literal"
)
_STATE = struct.Struct(f"=qd{len(OUTCOMES)}q")


def random_for(seed: int, reader: str, number: int) -> random.Random:
    """What an input is made from."""
    return random.Random(f"{seed}/{reader}/{number}")


def judged(reader: Reader, path: Path) -> tuple[str, str]:
    """Read an input; the outcome, and what there is to say of it."""
    try:
        found = reader.read(path)
    except (ValueError, OSError) as error:
        fault = message_fault(str(error), path, reader.named)
        return ("unclear", f"{fault}: {type(error).__name__}: {error}") if fault else (REFUSED, str(error))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "traceback", "".join(traceback.format_exception(error)[-6:])
    try:
        what = reader.check(path, found)
    except Wrong as error:
        what = str(error)
    except Exception as error:  # what another way cannot read at all should not have been accepted
        what = f"the oracle refuses it: {type(error).__name__}: {error}"
    return ("wrong", what) if what else (ACCEPTED, "")


def message_fault(text: str, path: Path, named: bool) -> str | None:
    """What is wrong with a refusal's message."""
    if not text.strip():
        return "no message"
    if _CONTROL.search(text):
        return "control characters"
    if _BARE.match(text):
        return "as the system or Python says it"
    if len(text.splitlines()) > LINES or len(text) > LONGEST:
        return "too long"
    if named and path.name not in text and path.parent.name not in text and path.stem not in text:
        return "names no file"
    return None


class Fuzzing:
    """One reader's inputs.

    Args:
        reader: it must be prepared.
        folder: for the workers, in memory if possible.
        kept: where inputs that showed a fault are kept, and ``faults.jsonl`` says what it was.
        seed: of all inputs.
        jobs: workers.
        hang: seconds that an input may take.
    """

    def __init__(self, reader: Reader, folder: Path, kept: Path, seed: int, jobs: int, hang: float = HANG) -> None:
        self.reader, self.folder, self.kept, self.seed, self.jobs, self.hang = (
            reader,
            folder,
            kept,
            seed,
            jobs,
            hang,
        )
        self.memory = [mmap.mmap(-1, _STATE.size) for _ in range(jobs)]
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def run(self, count: int, told: Callable[[Counter[str]], None] = lambda counts: None) -> Counter[str]:
        """Read so many inputs; the outcomes' counts."""
        self.kept.mkdir(parents=True, exist_ok=True)
        workers: dict[int, int] = {}
        try:
            for worker in range(self.jobs):
                workers[self._fork(worker, worker, count)] = worker
            while workers:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    time.sleep(0.02)
                    self._stop_hanging(workers)
                    told(self.total())
                    continue
                worker = workers.pop(pid)
                if status == 0:
                    continue
                if os.waitstatus_to_exitcode(status) == BROKEN:
                    raise RuntimeError(f"the harness itself failed: see {self.kept}/worker-{worker}.log")
                number, began = self._at(worker)
                outcome = "hang" if began < 0 else "crash"
                self.lost[outcome] += 1
                self._note(worker, number, outcome, f"the worker ended with status {status}")
                workers[self._fork(worker, number + self.jobs, count)] = worker
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return self.total()

    def total(self) -> Counter[str]:
        """Of all workers, so far."""
        counts = Counter(self.lost)
        for memory in self.memory:
            for outcome, number in zip(OUTCOMES, _STATE.unpack(memory[:])[2:], strict=True):
                counts[outcome] += number
        return counts

    def _at(self, worker: int) -> tuple[int, float]:
        number, began = _STATE.unpack(self.memory[worker][:])[:2]
        return number, began

    def _stop_hanging(self, workers: dict[int, int]) -> None:
        for pid, worker in workers.items():
            number, began = self._at(worker)
            if began > 0 and time.monotonic() - began > self.hang:
                struct.pack_into("=qd", self.memory[worker], 0, number, -1.0)
                os.kill(pid, signal.SIGKILL)

    def _fork(self, worker: int, first: int, count: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._work(worker, first, count)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(BROKEN)
        os._exit(0)

    def _work(self, worker: int, first: int, count: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        folder = emptied(self.folder / f"worker-{worker}" / "own")
        os.chdir(folder)
        canary.lay(folder)
        place = folder / "input"
        tempfile.tempdir = str(folder)
        os.environ |= {"RINGFENCE_MEMORY": f"{LIMIT}MB", "TMPDIR": str(folder), "HOME": str(folder)}
        quiet(self.kept / f"worker-{worker}.log")
        watch, memory = Watch(folder, trusted=self.reader.trusted), self.memory[worker]
        self._warm(place)
        for number in range(first, count, self.jobs):
            struct.pack_into("=qd", memory, 0, number, 0.0)
            emptied(place)
            path = self.reader.write(place, random_for(self.seed, self.reader.name, number), number)
            struct.pack_into("=qd", memory, 0, number, time.monotonic())
            before = peak(reset=True)
            watch.seen.clear()
            watch.on = True
            outcome, what = judged(self.reader, path)
            watch.on = False
            grown = peak() - before
            if watch.seen:
                outcome, what = "code", "; ".join(watch.seen)
            elif grown > SPARE:
                outcome, what = "memory", f"{grown:.0f} MB more, ended as {outcome}: {what}"
            elif number < self.reader.valid and outcome != ACCEPTED:
                outcome, what = "valid refused", f"{outcome}: {what}"
            struct.pack_into("=qd", memory, 0, number, 0.0)
            at = 16 + 8 * OUTCOMES.index(outcome)
            struct.pack_into("=q", memory, at, struct.unpack_from("=q", memory, at)[0] + 1)
            if outcome in FAULTS:
                self._note(worker, number, outcome, what)

    def _warm(self, place: Path) -> None:
        """Read the valid inputs once: what is imported and made on first use is not any input's doing."""
        for number in range(self.reader.valid):
            emptied(place)
            judged(self.reader, self.reader.write(place, random_for(self.seed, self.reader.name, number), number))

    def _note(self, worker: int, number: int, outcome: str, what: str) -> None:
        """Keep the input, and what it did."""
        name = f"{self.reader.name}-{self.seed}-{number}"
        inputs = self.folder / f"worker-{worker}" / "own" / "input"
        if sum(1 for _ in self.kept.iterdir()) < 300:
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(inputs, self.kept / name, dirs_exist_ok=True)
        line = {"reader": self.reader.name, "number": number, "outcome": outcome, "what": what[:4000]}
        with (self.kept / "faults.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def one_input(reader: Reader, folder: Path, seed: int, number: int) -> tuple[str, str, Path]:
    """An input made again by its number and read here, without a watch; its outcome, what it says, where it is."""
    place = emptied(folder / "own" / "input")
    os.chdir(place.parent)
    canary.lay(place.parent)
    os.environ["RINGFENCE_MEMORY"] = f"{LIMIT}MB"
    path = reader.write(place, random_for(seed, reader.name, number), number)
    print(f"input {number} of {reader.name}: {path}", flush=True)
    return *judged(reader, path), path


def peak(*, reset: bool = False) -> float:
    """MB of memory that this process had at most, since it was last reset."""
    try:
        if reset:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
    except OSError:  # another system: since it began
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def quiet(file: Path) -> None:
    """What this process prints from now on goes to a file: C code prints too."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(number, 1)
    os.dup2(number, 2)
    os.close(number)


def as_counts(counts: Counter[str]) -> dict[str, Any]:
    """All outcomes, also those that never came."""
    return {"inputs": sum(counts.values())} | {outcome: counts[outcome] for outcome in OUTCOMES}
