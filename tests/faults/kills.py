"""SIGKILL at every step of a command, in the middle of a file, or at any time; then the command again, until it ends."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from faults.commands import COMMANDS, OUT, Command, made_inputs, reference
from faults.trials import Child, content, differences, removed, spread

COUNT = 24
"""Kills of each command."""


def run(
    names: Sequence[str], folder: Path, kept: Path, *, seed: int, count: int | None, jobs: int
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Each command's counts, and the seconds they took."""
    inputs = made_inputs(folder.parent / "inputs")
    for name in names or COMMANDS:
        began = time.monotonic()
        counts, faults = killed(COMMANDS[name], inputs, folder, seed, count or COUNT, jobs)
        note(kept, "kills", name, faults)
        yield name, counts, time.monotonic() - began


def killed(
    command: Command, inputs: Path, folder: Path, seed: int, count: int, jobs: int
) -> tuple[dict[str, Any], list[str]]:
    """Kill it so often, each time from its beginning; the counts, and what went wrong."""
    expected, steps, seconds = reference(command, inputs, folder / "reference" / command.name)
    rng = random.Random(f"{seed}/{command.name}")
    points: list[tuple[str, float]] = []
    every = list(range(1, steps + 1))
    for number in range(count):
        kind = ("step", "torn", "step", "time")[number % 4]
        points.append(
            (
                kind,
                rng.uniform(0, seconds)
                if kind == "time"
                else every[round((number + rng.random()) / count * steps) % steps],
            )
        )
    results = spread(
        enumerate(points),
        lambda task: _trial(command, inputs, folder / f"{command.name}-{task[0]}", expected, task[1]),
        jobs,
    )
    counts: Counter[str] = Counter({"kills": 0, "differ": 0, "stuck": 0, "left over": 0})
    for result in results:
        counts.update(result["counts"])
    return dict(counts) | {"steps": steps}, [fault for result in results for fault in result["faults"]]


def _trial(
    command: Command, inputs: Path, place: Path, expected: dict[str, Any], point: tuple[str, float]
) -> dict[str, Any]:
    """Kill once, or sometimes a second time while it goes on; then let it end."""
    place.mkdir(parents=True)
    kind, value = point
    counts: Counter[str] = Counter()
    faults: list[str] = []
    at = f"{command.name}, {kind} {value:.3g}"
    child = Child(command.begin(inputs), place, int(value) if kind != "time" else None, kind == "torn").start()
    ended = child.wait(value if kind == "time" else None)
    counts["kills"] += ended.status == -9
    if ended.status == -9 and int(value * 1000) % 3 == 0:  # once more, while it goes on
        again = Child((command.resume or command.begin)(inputs), place, max(1, int(value) // 2)).start().wait()
        counts["kills"] += again.status == -9
    said = (
        command.finished(inputs, place, expected)
        if ended.status == -9
        else ("" if ended.status == 0 else ended.output)
    )
    if said:
        counts["stuck"] += 1
        faults.append(f"{at}: stuck: {said[-800:]}")
    else:
        differ, left = differences(content(place / OUT), expected)
        left += [f"TMPDIR/{name}" for name in content(child.temporary)] + [
            one.name for one in place.iterdir() if one.name != OUT
        ]
        counts["differ"] += bool(differ)
        counts["left over"] += bool(left)
        faults += [f"{at}: differ: {differ[:8]}"] * bool(differ) + [f"{at}: left over: {left[:8]}"] * bool(left)
    removed(place)
    removed(child.temporary)
    return {"counts": counts, "faults": faults}


def note(kept: Path, part: str, name: str, faults: Sequence[str]) -> None:
    """What went wrong, for whoever mends it."""
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / f"{part}.jsonl").open("a") as file:
        for fault in faults:
            file.write(json.dumps({"name": name, "what": fault}) + "\n")
