"""One rank of a thousand, with a billion samples: the code of sharded multipliers, and the other ranks made up.

    python benchmarks/simulated_ranks.py --out results/speed/simulated_ranks

The process is one rank: it has that rank's shard, answers what the others ask it for in an iteration, takes in what
they saw of its data points, and takes the dual step. The others' batches are drawn at random, and routed and packed
by the code that ranks run. Nothing goes over a network: bytes are those of what would be sent. Time is the ratio to
the same iteration of a rank whose shard is a thousand times smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ringfence as rf
from ringfence.environment import commit, environment
from ringfence.methods.multipliers.exchange import Rows, parcelled
from ringfence.methods.multipliers.kinds import INEQUALITY
from ringfence.methods.multipliers.ranks import share_rows
from ringfence.methods.multipliers.sharded import Sharded, routes, shard_length


def one_rank(samples: int, rank: int, ranks: int) -> tuple[rf.Lagrangian, Sharded]:
    """A fence with the shard of that rank."""
    fence = rf.Lagrangian(dual_lr=0.1)
    store = Sharded("a", INEQUALITY, False, 0.0, samples, rank, ranks)
    store.fit(torch.Size((1,)), torch.zeros(1), None)
    fence._stores["a"] = store
    return fence, store


def iteration(fence: rf.Lagrangian, store: Sharded, batches: Tensor) -> dict[str, Any]:
    """What this rank gets and does in one; ``batches`` ``[ranks, rows]`` are everybody's data points."""
    ranks = store.ranks
    owner = batches % ranks
    asked = batches[owner == store.rank].div(ranks, rounding_mode="floor")
    parcels, sent = [], 0
    for other, batch in enumerate(batches):
        mine = owner[other] == store.rank
        if other == store.rank:
            sent = bytes_sent(batch, ranks, int(asked.numel()))
        if not bool(mine.any()):
            parcels.append(torch.empty(0, dtype=torch.uint8))
            continue
        way = routes(batch, ranks)
        rows = way.rows.split(way.number)[store.rank]
        ones = torch.ones(len(rows))
        parcels.append(parcelled([Rows(rows, ones, ones)], [0]))
    start = time.perf_counter()
    answers = store.answer(asked)
    share_rows([store.own], parcels)
    fence.step()
    seconds = time.perf_counter() - start
    if answers.shape != (len(asked), 1):
        raise SystemExit("not as many answers as were asked for")
    return {
        "asked": len(asked),
        "seconds": seconds,
        "sent": sent,
        "loads": torch.bincount(owner.view(-1), minlength=ranks),
    }


def bytes_sent(batch: Tensor, ranks: int, answers: int) -> int:
    """Of one constraint of one entry, by one rank: a call's three exchanges, and a step's three."""
    owners = len((batch % ranks).unique())
    call = 16 * ranks + 8 * len(batch) + 4 * answers
    step = 32 + 8 * ranks + sum((24 * owners, 16 * len(batch), 8 * owners))
    return call + step


def resident() -> int:
    """Bytes of memory that this process takes up."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def simulated(samples: int, ranks: int, rank: int, batch: int, iterations: int) -> dict[str, Any]:
    """Some iterations of one rank."""
    before = resident()
    fence, store = one_rank(samples, rank, ranks)
    small_fence, small = one_rank(ranks * 1000, rank, ranks)
    random = torch.Generator().manual_seed(0)
    made = resident()
    found, times = [], []
    for _ in range(iterations):
        batches = torch.randint(samples, (ranks, batch), generator=random)
        found.append(iteration(fence, store, batches))
        times.append(found[-1]["seconds"] / iteration(small_fence, small, batches % (ranks * 1000))["seconds"])
    loads = torch.stack([one["loads"] for one in found]).double()
    lengths = [shard_length(samples, one, ranks) for one in range(ranks)]
    moved = int((store.value > 0).sum())
    if not 0 < moved <= sum(one["asked"] for one in found):
        raise SystemExit(f"{moved} multipliers moved")
    return {
        "rows of a rank, least and most": [min(lengths), max(lengths)],
        "table of this rank, MB": round(store.value.nbytes / 1e6, 3),
        "memory of both tables, MB": round((made - before) / 1e6, 1),
        "whole table, MB": samples * 4 / 1e6,
        "rows asked of a rank in an iteration, mean": loads.mean().item(),
        "rows asked of a rank in an iteration, most": loads.max().item(),
        "busiest rank over the mean, median iteration": (loads.max(dim=1).values / loads.mean(dim=1))
        .median()
        .item(),
        "share of a batch that is on other ranks": 1.0 - 1.0 / ranks,
        "bytes this rank sends in an iteration": round(statistics.fmean(one["sent"] for one in found)),
        "time over a shard of 1,000 rows": statistics.median(times[1:]),
        "multipliers moved on this rank": moved,
    }


def main() -> None:
    """Simulate, print, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10**9)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=137)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not 0 <= options.rank < options.ranks:
        parser.error(f"--rank must be from 0 to {options.ranks - 1}, got {options.rank}")
    torch.set_num_threads(1)
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    record: dict[str, Any] = {
        "command": "python benchmarks/simulated_ranks.py "
        + " ".join(f"--{key} {value}" for key, value in settings.items())
        + f" --out {options.out}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "found": simulated(**settings),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")
    print(as_markdown(record))


def as_markdown(record: dict[str, Any]) -> str:
    """What was found, a line each."""
    facts = record["environment"]
    lines = ["| one rank, simulated | |", "|---|---|"]
    for what, value in record["found"].items():
        numbers = value if isinstance(value, list) else [value]
        shown = [f"{one:,.6g}" if isinstance(one, float) else f"{one:,}" for one in numbers]
        lines.append(f"| {what} | {' and '.join(shown)} |")
    lines += [
        "",
        f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['cpu']}, commit {facts['commit']}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
