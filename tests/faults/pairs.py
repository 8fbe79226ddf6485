"""Two processes on one folder, at almost the same time: one works, and the result is its own; or both, one after the other."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.commands import COMMANDS, OUT, TINY, made_inputs
from faults.kills import note
from faults.trials import Child, content, differences, removed, spread

COUNT = 30
"""Rounds of each pair."""
Arguments = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Pair:
    """Two commands that want the same folder.

    Attributes:
        name: in the table.
        one: the first's arguments.
        other: the second's.
        begun: whether the folder holds a killed run of the first when they start.
    """

    name: str
    one: Arguments
    other: Arguments
    begun: bool = False


def _with(command: str, *more: str) -> Arguments:
    return lambda inputs: [*COMMANDS[command].begin(inputs), *more]


_PREDICT: Arguments = lambda inputs: ["predict", str(inputs / "model"), str(inputs / "metaimage"), OUT]  # noqa: E731
_OTHER_REPORT: Arguments = lambda inputs: ["report", str(inputs / "compared"), "--out", OUT, "--pictures", "1"]  # noqa: E731
_RESUME: Arguments = lambda inputs: ["train", "--out", OUT, "--resume"]  # noqa: E731
PAIRS: dict[str, Pair] = {
    one.name: one
    for one in (
        Pair(
            "prepare, prepare of another size",
            _with("prepare, NIfTI"),
            lambda i: ["prepare", "folder", str(i / "nifti"), OUT, "--size", "32", "32"],
        ),
        Pair("prepare, prepare", _with("prepare, NIfTI"), _with("prepare, NIfTI")),
        Pair("train, train with another seed", _with("train, penalty"), _with("train, penalty", "--seed", "7")),
        Pair("train --resume, the same", _RESUME, _RESUME, begun=True),
        Pair(
            "compare, compare of other methods",
            _with("compare synthetic"),
            lambda i: [
                "compare",
                "synthetic",
                "--out",
                OUT,
                "--methods",
                "lagrangian",
                "--data.size",
                "16",
                "--data.train",
                "8",
                "--data.validation",
                "4",
                *TINY,
            ],
        ),
        Pair("predict, predict with probabilities", _PREDICT, lambda i: [*_PREDICT(i), "--probabilities"]),
        Pair("predict, predict", _PREDICT, _PREDICT),
        Pair("predict, train", _PREDICT, _with("train, penalty")),
        Pair("prepare, train", _with("prepare, NIfTI"), _with("train, penalty")),
        Pair("report, report of fewer pictures", _with("report"), _OTHER_REPORT),
        Pair("evaluate, evaluate of other labels", _with("evaluate"), _with("evaluate", "--labels", "1", "2")),
    )
}


def run(
    names: Sequence[str], folder: Path, kept: Path, *, seed: int, count: int | None, jobs: int
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Each pair's counts, and the seconds they took."""
    inputs = made_inputs(folder.parent / "inputs")
    for name in names or PAIRS:
        began = time.monotonic()
        counts, faults = rounds(PAIRS[name], inputs, folder, seed, count or COUNT, jobs)
        note(kept, "pairs", name, faults)
        yield name, counts, time.monotonic() - began


def rounds(
    pair: Pair, inputs: Path, folder: Path, seed: int, count: int, jobs: int
) -> tuple[dict[str, Any], list[str]]:
    """The counts, and what went wrong."""
    begun = _begun(pair, inputs, folder) if pair.begun else None
    alone = []
    for number, arguments in enumerate((pair.one, pair.other)):
        place = _place(folder / f"{pair.name}-alone-{number}", begun)
        ended = Child(arguments(inputs), place).start().wait()
        if ended.status:
            raise RuntimeError(f"{pair.name}: {ended.output}")
        alone.append(content(place / OUT))
    rng = random.Random(f"{seed}/{pair.name}")
    delays = [
        rng.choice((0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.5))) * rng.choice((-1, 1)) for _ in range(count)
    ]
    results = spread(
        enumerate(delays),
        lambda task: _round(pair, inputs, folder / f"round-{task[0]}", alone, begun, task[1]),
        jobs,
    )
    counts: Counter[str] = Counter(
        {"rounds": 0, "one worked": 0, "both worked": 0, "wrong": 0, "unclear": 0, "left over": 0}
    )
    for result in results:
        counts.update(result["counts"])
    return dict(counts), [fault for result in results for fault in result["faults"]]


def _round(
    pair: Pair, inputs: Path, folder: Path, alone: list[dict[str, Any]], begun: Path | None, delay: float
) -> dict[str, Any]:
    place = _place(folder, begun)
    children = [
        Child(arguments(inputs), place, delay=max(0.0, delay if number else -delay)).start()
        for number, arguments in enumerate((pair.one, pair.other))
    ]
    ended = [child.wait() for child in children]
    counts, faults = Counter({"rounds": 1}), []
    at = f"{pair.name}, {delay:+.3f} s"
    worked = [number for number, one in enumerate(ended) if one.status == 0]
    unclear = [one.fault for one in ended if one.fault]
    counts["one worked"] += len(worked) == 1
    counts["both worked"] += len(worked) == 2
    found = content(place / OUT)
    results = [differences(found, alone[number]) for number in worked]
    if not any(differ == [] for differ, _ in results):
        counts["wrong"] += 1
        faults.append(f"{at}: {len(worked)} worked, {results}; {[one.output[-300:] for one in ended]}")
    elif all(left for _, left in results) or list(content(children[0].temporary)):
        counts["left over"] += 1
        faults.append(f"{at}: left over: {results}")
    if unclear:
        counts["unclear"] += 1
        faults.append(f"{at}: {unclear}")
    removed(folder)
    return {"counts": counts, "faults": faults}


def _begun(pair: Pair, inputs: Path, folder: Path) -> Path:
    """A folder with a run that was killed after its first epoch."""
    place = folder / "begun"
    place.mkdir(parents=True)
    for step in range(40, 4, -4):
        ended = Child(COMMANDS["train, penalty"].begin(inputs), place, step).start().wait()
        if ended.status == -9 and any(place.rglob("last.ckpt")):
            return place / OUT
        removed(place / OUT)
    raise RuntimeError("no kill leaves a checkpoint")


def _place(folder: Path, begun: Path | None) -> Path:
    place = folder / "place"
    place.mkdir(parents=True)
    if begun is not None:
        shutil.copytree(begun, place / OUT)
    return place
