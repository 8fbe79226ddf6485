"""What a dual step between ranks costs: bytes, time and memory, for tables that every rank has and for shards.

    python benchmarks/ranks.py --out results/speed/table

Each of 2 or 4 gloo processes calls a fence with 32 rows and takes a dual step, again and again. "Whole tables" is
how it was done before: every step compared and added up all rows. Bytes are those of the tensors that a rank gives
torch.distributed in a step, call included. Times are ratios of the same round; memory is what a process that does
nothing else takes up more than before it made its fence, after some steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing

import ringfence as rf
from ringfence.environment import commit, environment
from ringfence.methods.multipliers import ranks
from ringfence.methods.multipliers.exchange import gathered

BATCH = 32
WORLDS = (2, 4)
SAMPLES = (10_000, 1_000_000, 10_000_000)
WAYS = ("whole tables", "rows seen", "sharded")
BASE = "rows seen"
_SENDS = {"all_gather": 1, "all_reduce": 0, "all_to_all_single": 1, "all_gather_object": 1}
"""Which argument of each function is sent."""


def whole_tables(stores: Any, store_like: Any, seen: bool, fault: str | None, group: Any) -> bool:
    """``ranks.agree`` as it was: a sum over each table to compare, then all rows of all tables added up."""
    sums = {name: (one.value.double() - one.initial).abs().sum().item() for name, one in stores.items()}
    gathered(
        {"seen": seen, "layouts": {n: ranks.layout_of(s) | {"sum": sums[n]} for n, s in stores.items()}}, group
    )
    ranks.add_up(stores, group)
    return True


def measured(rank: int, world: int, folder: str, samples: int, rounds: int) -> None:
    """Time and bytes of each way on this rank, into a file."""
    with together(rank, world, folder, f"{world}-{samples}"):
        batches = [rows(rank, world, samples, number) for number in range(8)]
        fences = {way: made(way, samples) for way in WAYS}
        sent = {}
        for way, fence in fences.items():
            for batch in batches[:3]:
                step(fence, way, batch)
            with counted() as taken:
                step(fence, way, batches[3])
            sent[way] = taken[0]
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way, fence in fences.items():
                repeats = 1 if way == WAYS[0] and samples > SAMPLES[0] else 20
                dist.barrier()
                start = time.perf_counter()
                for one in range(repeats):
                    step(fence, way, batches[(number + one) % len(batches)])
                seconds[way].append((time.perf_counter() - start) / repeats)
    write(Path(folder, f"{world}-{samples}-{rank}.json"), {"sent": sent, "seconds": seconds})


def taken_up(rank: int, world: int, folder: str, way: str) -> None:
    """Memory of one way on this rank, into a file."""
    samples = SAMPLES[-1]
    with together(rank, world, folder, f"{world}-{way}"):
        warm = made(way, SAMPLES[0])  # what the first step loads is not the table's
        for number in range(3):
            step(warm, way, rows(rank, world, SAMPLES[0], number))
        before = resident()
        fence = made(way, samples)
        for number in range(5):
            step(fence, way, rows(rank, world, samples, number))
        gc.collect()
        memory = resident() - before
    write(Path(folder, f"{world}-{way}-{rank}.json"), {"memory": memory})


@contextmanager
def together(rank: int, world: int, folder: str, what: str) -> Iterator[None]:
    """This process as one of several, or alone."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/{what}-meet", rank=rank, world_size=world)
    yield
    if world > 1:
        dist.destroy_process_group()


def made(way: str, samples: int) -> rf.Lagrangian:
    """A fence for one way."""
    return rf.Lagrangian(dual_lr=0.1, samples=samples, sharded=way == "sharded")


def write(file: Path, found: dict[str, Any]) -> None:
    """For the process that waits."""
    file.write_text(json.dumps(found), encoding="utf-8")


def rows(rank: int, world: int, samples: int, number: int) -> Tensor:
    """Data points of this rank's batch, all over the table, other ones on each rank."""
    random = torch.Generator().manual_seed(number)
    everybodys = world * BATCH
    apart = samples // everybodys
    found = torch.arange(everybodys) * apart + torch.randint(apart, (everybodys,), generator=random)
    return found[rank::world]


def step(fence: rf.Lagrangian, way: str, index: Tensor) -> None:
    """A call and a dual step."""
    agree: Callable[..., bool] = whole_tables if way == WAYS[0] else ranks.agree
    with mock.patch.object(ranks, "agree", agree):
        fence(a=torch.ones(len(index), requires_grad=True), index=index)
        fence.step()


@contextmanager
def counted() -> Iterator[list[int]]:
    """Bytes given to torch.distributed meanwhile."""
    taken = [0]

    def call(function: Callable[..., Any], position: int, *arguments: Any, **options: Any) -> Any:
        given = arguments[position]
        taken[0] += given.nbytes if isinstance(given, Tensor) else len(json.dumps(given))
        return function(*arguments, **options)

    spies: dict[str, Any] = {
        name: partial(call, getattr(dist, name), position) for name, position in _SENDS.items()
    }
    with mock.patch.multiple(dist, **spies):
        yield taken


def resident() -> int:
    """Bytes of memory that this process takes up."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure, print, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table: list[dict[str, Any]] = []
    memory: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for world in WORLDS:
            for samples in SAMPLES:
                multiprocessing.spawn(measured, args=(world, folder, samples, options.rounds), nprocs=world)  # type: ignore[no-untyped-call,attr-defined]
                table.append(row(world, samples, read(folder, world, str(samples))))
                print(table[-1], flush=True)
        for world in (1, *WORLDS):
            memory[str(world)] = {}
            for way in WAYS[1:]:
                multiprocessing.spawn(taken_up, args=(world, folder, way), nprocs=world)  # type: ignore[no-untyped-call,attr-defined]
                most = max(one["memory"] for one in read(folder, world, way))
                memory[str(world)][way] = round(most / 1e6, 2)
            print(world, memory[str(world)], flush=True)
    record: dict[str, Any] = {
        "command": f"python benchmarks/ranks.py --rounds {options.rounds} --out {options.out}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "rows a call and rank": BATCH,
        "table": table,
        f"MB a rank, {SAMPLES[-1]:,} samples": memory,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")
    print(as_markdown(record))


def read(folder: str, world: int, what: str) -> list[dict[str, Any]]:
    """What every rank wrote."""
    return [json.loads(Path(folder, f"{world}-{what}-{rank}.json").read_text()) for rank in range(world)]


def row(world: int, samples: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the slowest and largest rank; time over that of the rows that were seen."""
    rounds = {
        way: [max(times) for times in zip(*(one["seconds"][way] for one in found), strict=True)] for way in WAYS
    }
    return {
        "ranks": world,
        "samples": samples,
        "bytes sent": {way: max(one["sent"][way] for one in found) for way in WAYS},
        "time": {
            way: statistics.median(a / b for a, b in zip(rounds[way], rounds[BASE], strict=True)) for way in WAYS
        },
    }


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each number of ranks and samples."""
    facts, ways = record["environment"], " / ".join(WAYS)
    lines = [
        f"A call of {BATCH} rows a rank and its dual step, by how ranks tell each other what they saw: {ways}.",
        "",
        f"| ranks | samples | bytes a rank sends a step | time over '{BASE}' |",
        "|---|---|---|---|",
    ]
    for one in record["table"]:
        sent = " / ".join(f"{number:,}" for number in one["bytes sent"].values())
        times = " / ".join(f"{number:.2f}" for number in one["time"].values())
        lines.append(f"| {one['ranks']} | {one['samples']:,} | {sent} | {times} |")
    title, memory = next((key, one) for key, one in record.items() if key.startswith("MB"))
    lines += ["", f"| {title} | {' | '.join(f'{ranks} rank(s)' for ranks in memory)} |", "|---" * 4 + "|"]
    lines += [f"| {way} | {' | '.join(str(one[way]) for one in memory.values())} |" for way in WAYS[1:]]
    lines += [
        "",
        f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['cpu']}, commit {facts['commit']}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
