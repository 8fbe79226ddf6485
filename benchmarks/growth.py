"""How a constraint step grows: with residuals, constraints, and samples up to ten million multipliers.

    python benchmarks/growth.py --out results/speed/growth

A step is the call, the backward pass and the dual step, taken after each call. Times are ratios, to one line of
PyTorch or to the smallest of their kind, of rounds in which every variant has its turn; absolute ones are for GPUs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ringfence as rf
from core import Times, interleaved, ratios
from ringfence.environment import commit, environment

RESIDUALS = (100, 1_000, 10_000, 100_000, 1_000_000)
CONSTRAINTS = (1, 2, 4, 8, 16, 32)
SAMPLES = (10_000, 100_000, 1_000_000, 10_000_000)
BATCHES = (32, 4096)
ONE_LINE = "relu(f).square().sum()"
METHODS: dict[str, Callable[..., rf.Method]] = {
    "LogBarrier": lambda **_: rf.LogBarrier(t=5.0, mu=1.0),
    "Lagrangian": partial(rf.Lagrangian, dual_lr=0.1),
    "Lagrangian by Adam": partial(rf.Lagrangian, dual_optimiser=partial(torch.optim.Adam, lr=0.1)),
    "Lagrangian by nuPI": partial(rf.Lagrangian, dual_optimiser=partial(rf.NuPI, lr=0.1)),
    "AugmentedLagrangian": partial(rf.AugmentedLagrangian, rho=0.1),
}


def over_residuals(device: str, rounds: int) -> dict[str, Times]:
    """By number of residuals: every method, and one line of PyTorch."""
    found = {}
    for number in RESIDUALS:
        f = torch.randn(number, device=device).requires_grad_()
        index = torch.arange(number, device=device)
        variants: dict[str, Callable[[], None]] = {ONE_LINE: partial(one_line, f)}
        for name, make in METHODS.items():
            variants[name] = partial(step, make(samples=number), {"a": f}, cycle([index]))
        found[str(number)] = interleaved(variants, rounds)
    return found


def over_constraints(device: str, rounds: int) -> dict[str, Times]:
    """By method: 32 rows of as many named constraints as the key says."""
    found = {}
    index = torch.arange(32, device=device)
    for name, make in METHODS.items():
        variants = {}
        for number in CONSTRAINTS:
            given = {f"c{one}": torch.randn(32, device=device).requires_grad_() for one in range(number)}
            variants[str(number)] = partial(step, make(samples=1000), given, cycle([index]))
        found[name] = interleaved(variants, rounds)
    return found


def over_samples(device: str, rounds: int, batch: int) -> tuple[dict[str, Times], dict[str, dict[str, float]]]:
    """By method: as many data points as the key says, of which each step has another batch; and bytes held."""
    found, held = {}, {}
    f = torch.randn(batch, device=device).requires_grad_()
    for name, make in METHODS.items():
        if name == "LogBarrier":
            continue
        variants, fences = {}, {}
        for number in SAMPLES:
            random = torch.Generator().manual_seed(0)
            apart = number // batch  # no row twice, all over the table
            batches = [
                torch.arange(batch) * apart + torch.randint(apart, (batch,), generator=random) for _ in range(16)
            ]
            several = cycle([one.to(device) for one in batches])
            fences[str(number)] = make(samples=number)
            variants[str(number)] = partial(step, fences[str(number)], {"a": f}, several)
        found[name] = interleaved(variants, rounds)
        held[name] = {
            number: sum(one.nbytes for one in fence.state_dict().values()) / int(number)
            for number, fence in fences.items()
        }
    return found, held


def one_line(f: Tensor) -> None:
    """What a quadratic penalty is without a library."""
    torch.relu(f).square().sum().backward()


def step(fence: rf.Method, given: dict[str, Tensor], batches: Any) -> None:
    """One call, backward, one dual step."""
    index = next(batches)
    fence(index=index, **{name: one[: len(index)] for name, one in given.items()}).backward()
    fence.step()


def main() -> None:
    """Measure, print, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: no GPU on this machine")
    torch.manual_seed(0)
    device, rounds = options.device, options.rounds
    residuals = over_residuals(device, rounds)
    constraints = over_constraints(device, rounds)
    samples = {batch: over_samples(device, rounds, batch) for batch in BATCHES}
    record: dict[str, Any] = {
        "command": f"python benchmarks/growth.py --device {device} --rounds {rounds} --out {options.out}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "residuals, over one line of PyTorch": {
            number: ratios(times, ONE_LINE) for number, times in residuals.items()
        },
        "constraints, over one": {name: ratios(times, str(CONSTRAINTS[0])) for name, times in constraints.items()},
        "samples, over ten thousand": {
            f"batch {batch}": {name: ratios(times, str(SAMPLES[0])) for name, times in found.items()}
            for batch, (found, _) in samples.items()
        },
        "bytes a multiplier": samples[BATCHES[0]][1],
    }
    if device == "cuda":
        record["median seconds"] = {
            f"{number} residuals, {name}": statistics.median(seconds)
            for number, times in residuals.items()
            for name, seconds in times.items()
        }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")
    print(as_markdown(record))


def as_markdown(record: dict[str, Any]) -> str:
    """Three tables of ratios, and one of bytes."""
    facts = record["environment"]
    residuals = record["residuals, over one line of PyTorch"]
    lines = [
        f"A step (call, backward, dual step) over `{ONE_LINE}` and its backward, by the number of residuals:",
        "",
    ]
    lines += table("method", {name: {n: one[name] for n, one in residuals.items()} for name in METHODS})
    lines += ["", "A step with more named constraints of 32 rows each, over one with one:", ""]
    lines += table("method", record["constraints, over one"])
    for batch, found in record["samples, over ten thousand"].items():
        lines += [
            "",
            f"A step of a {batch}, by the number of samples (a multiplier each), over ten thousand:",
            "",
        ]
        lines += table("method", found)
    lines += ["", "Bytes of state for each multiplier:", ""]
    lines += table(
        "method",
        {
            name: {n: b for n, b in one.items() if n == str(SAMPLES[-1])}
            for name, one in record["bytes a multiplier"].items()
        },
    )
    machine = facts["cpu"] if "--device cpu" in record["command"] else facts["gpu"]
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {machine}, commit {facts['commit']}."]
    return "\n".join(lines) + "\n"


def table(title: str, rows: dict[str, dict[str, float]]) -> list[str]:
    """Rows of ratios by number."""
    numbers = list(next(iter(rows.values())))
    head = [f"| {title} | {' | '.join(f'{int(one):,}' for one in numbers)} |", "|---" * (len(numbers) + 1) + "|"]
    return head + [f"| {name} | {' | '.join(f'{one[n]:.2f}' for n in numbers)} |" for name, one in rows.items()]


if __name__ == "__main__":
    main()
