"""No room: file-size limits, a full disk, one that may only be read; then room, and the same command again."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from faults.commands import COMMANDS, OUT, Command, made_inputs, reference
from faults.kills import note
from faults.trials import Child, Ended, content, differences, removed, spread

COUNT = 12
"""Trials of each command and kind."""
KINDS = ("limit", "full", "read-only")


def run(
    names: Sequence[str], folder: Path, kept: Path, *, seed: int, count: int | None, jobs: int
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Each command's counts, and the seconds they took."""
    inputs = made_inputs(folder.parent / "inputs")
    mounts = may_mount(folder)
    for name in names or COMMANDS:
        began = time.monotonic()
        counts, faults = starved(COMMANDS[name], inputs, folder, seed, count or COUNT, jobs, mounts=mounts)
        note(kept, "disks", name, faults)
        yield name, counts, time.monotonic() - began


def may_mount(folder: Path) -> bool:
    """Whether this process may make file systems."""
    place = folder / "mount"
    place.mkdir(parents=True, exist_ok=True)
    if _mount(place, "100k"):
        _unmount(place)
        return True
    return False


def starved(
    command: Command, inputs: Path, folder: Path, seed: int, count: int, jobs: int, *, mounts: bool
) -> tuple[dict[str, Any], list[str]]:
    """The counts, and what went wrong."""
    expected, steps, _ = reference(command, inputs, folder / "reference-disks" / command.name)
    sizes = [
        file.stat().st_size
        for file in (folder / "reference-disks" / command.name / OUT).rglob("*")
        if file.is_file()
    ]
    rng = random.Random(f"{seed}/{command.name}")
    tasks: list[tuple[str, float, int]] = []
    for number in range(count):
        share = (number + rng.random()) / count
        tasks.append(("limit", share**3 * max(sizes), rng.randrange(steps) if number % 2 else 0))
        if mounts:
            tasks.append(("full", share * 1.3 * sum(sizes), rng.randrange(steps) if number % 2 else 0))
        if mounts and number % 4 == 0:
            tasks.append(("read-only", 0, rng.randrange(steps) if number % 8 else 0))
    work = lambda task: _trial(command, inputs, folder / f"disk-{task[0]}", expected, *task[1])  # noqa: E731
    results = spread(enumerate(tasks), work, jobs)
    counts: Counter[str] = Counter(
        {"trials": 0, "failed": 0, "unclear": 0, "lost": 0, "differ": 0, "stuck": 0, "left over": 0}
    )
    for result in results:
        counts.update(result["counts"])
    skipped = {} if mounts else {"skipped": "a full and a read-only disk: this process may not mount one"}
    return dict(counts) | skipped, [fault for result in results for fault in result["faults"]]


def _trial(
    command: Command, inputs: Path, top: Path, expected: dict[str, Any], kind: str, size: float, kill_at: int
) -> dict[str, Any]:
    """Begin (killed at a step, if one is given), go on without room, then with room."""
    top.mkdir(parents=True)
    place = top / "place"
    place.mkdir()
    if kind != "limit" and not _mount(place, "64m"):
        raise RuntimeError("cannot mount")
    try:
        begun = Child(command.begin(inputs), place, kill_at).start().wait() if kill_at else None
        before = _files(place)
        ended, roomy = _without_room(command, inputs, place, kind, int(size), resume=begun is not None)
        counts, faults = Counter({"trials": 1, "failed": int(ended.status != 0)}), []
        at = f"{command.name}, {kind} {size:.0f}, killed before at {kill_at}"
        if ended.fault:
            counts["unclear"] += 1
            faults.append(f"{at}: {ended.fault}")
        after = _files(place)
        lost = [name for name, length in before.items() if length and not after.get(name) and not _passing(name)]
        roomy()
        said = command.finished(inputs, place, expected) if ended.status else ""
        differ, left = differences(content(place / OUT), expected)
        left += [one.name for one in place.iterdir() if one.name != OUT] + list(content(top / "place.tmp"))
        for name, fault in (
            ("lost", lost if ended.status else []),
            ("stuck", said[-800:]),
            ("differ", [] if said else differ),
            ("left over", [] if said else left),
        ):
            if fault:
                counts[name] += 1
                faults.append(f"{at}: {name}: {fault[:800]}")
    finally:
        if kind != "limit":
            _unmount(place)
    removed(top)
    return {"counts": counts, "faults": faults}


def _without_room(
    command: Command, inputs: Path, place: Path, kind: str, size: int, *, resume: bool
) -> tuple[Ended, Callable[[], Any]]:
    """How it ends; and what to call to have room again."""
    arguments = (
        command.resume if resume and command.resume and (place / OUT / "config.yaml").exists() else command.begin
    )(inputs)
    if kind == "limit":
        return Child(arguments, place, bytes=size).start().wait(), lambda: None
    used = sum(file.stat().st_size + 4096 for file in place.rglob("*") if file.is_file())
    option = "ro" if kind == "read-only" else f"size={max(8192, used + size) // 4096 * 4096}"
    _mount(place, option, again=True)
    try:
        ended = Child(arguments, place).start().wait()
    finally:
        _mount(place, "rw,size=64m", again=True)
    return ended, lambda: None


def _passing(name: str) -> bool:
    """Files that a command removes when it has no more use for them."""
    parts = Path(name).parts
    return parts[-1] in ("last.ckpt", "unfinished.json", "manifest.json") or any(one[0] == "." for one in parts)


def _files(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def _mount(place: Path, options: str, *, again: bool = False) -> bool:
    options = options if again else f"size={options}"
    command = ["mount", "-o", f"remount,{options}" if again else options, "-t", "tmpfs", "tmpfs", str(place)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], capture_output=True)
