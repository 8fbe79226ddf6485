"""What the core costs, as ratios measured side by side: ``make bench``, or on a GPU ``python benchmarks/core.py``.

Three questions: how much faster is ψ_t on a tensor than the published scalar loop; what does each method's term
add to a training step that already has a network; and what does importing ringfence add to importing torch. Rounds
are interleaved and the median of their ratios is reported, because machines are noisy. Absolute times are for a
GPU alone.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

import ringfence as rf
from ringfence.environment import environment

Times: TypeAlias = dict[str, list[float]]
SAMPLES = 1000
METHODS: dict[str, Callable[[], rf.Method]] = {
    "LogBarrier": lambda: rf.LogBarrier(t=5.0),
    "Penalty": lambda: rf.Penalty(),
    "Lagrangian, per sample": lambda: rf.Lagrangian(samples=SAMPLES),
    "ReLULagrangian, per sample": lambda: rf.ReLULagrangian(samples=SAMPLES),
    "AugmentedLagrangian, per sample": lambda: rf.AugmentedLagrangian(samples=SAMPLES),
}


def scalar_loop(z: Tensor, t: float) -> Tensor:
    """ψ_t as published: one number after the other, each read back to decide its branch."""
    total = z.new_zeros(())
    for one in z:
        if one.item() <= -1 / t**2:
            total = total + -torch.log(-one) / t
        else:
            total = total + t * one + -math.log(1 / t**2) / t + 1 / t
    return total


def barrier_against_loop(device: str, count: int, rounds: int) -> Times:
    """Forward and backward over ``count`` residuals, both ways; they must agree to begin with."""
    z = torch.randn(count, device=device).requires_grad_()
    torch.testing.assert_close(rf.log_barrier(z, 5.0).sum(), scalar_loop(z, 5.0), rtol=1e-4, atol=1e-3)
    return interleaved(
        {
            "scalar loop": lambda: scalar_loop(z, 5.0).backward(),
            "log_barrier": lambda: rf.log_barrier(z, 5.0).sum().backward(),
        },
        rounds,
    )


def network(width: int) -> nn.Module:
    """A small fully convolutional segmenter: two levels, two classes."""

    def block(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())

    return nn.Sequential(
        *(block(1, width), block(width, width), nn.MaxPool2d(2), block(width, 2 * width)),
        *(
            block(2 * width, 2 * width),
            nn.Upsample(scale_factor=2),
            block(2 * width, width),
            nn.Conv2d(width, 2, 1),
        ),
    )


def training_step(device: str, size: int, batch: int, rounds: int) -> Times:
    """A step with the base loss alone, and with each method's term on size and centroid added (6 an image)."""
    model = network(16).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    image = torch.rand(batch, 1, size, size, device=device)
    label = torch.randint(0, 2, (batch, size, size), device=device)
    low = torch.full((batch,), 100.0, device=device)
    centre = torch.full((batch, 2), size / 2, device=device)
    grid = torch.arange(size, device=device, dtype=torch.float32)

    def step(fence: rf.Method | None) -> None:
        logits = model(image)
        loss = nn.functional.cross_entropy(logits, label)
        if fence is not None:
            index = torch.randperm(SAMPLES, device=device)[:batch]
            probability = logits.softmax(dim=1)[:, 1]
            rows, columns = probability.sum(dim=2), probability.sum(dim=1)
            area = rows.sum(dim=1)
            centroid = torch.stack([rows @ grid, columns @ grid], dim=1) / area[:, None]
            loss = loss + 1e-2 * fence(
                size=rf.between(area, low, 1.2 * low, scale=float(size * size)),
                centroid=rf.between(centroid, centre - 20, centre + 20, scale=float(size * size)),
                index=index,
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    variants = {"base loss alone": partial(step, None)} | {
        name: partial(step, make()) for name, make in METHODS.items()
    }
    return interleaved(variants, rounds)


def interleaved(variants: Mapping[str, Callable[[], None]], rounds: int) -> Times:
    """Seconds of each variant in each round; in a round every variant has its turn."""
    timers = {
        name: Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
        for name, work in variants.items()
    }
    repeats = {name: max(1, int(0.2 / timer.timeit(2).median)) for name, timer in timers.items()}  # warms up, too
    times: Times = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(timer.timeit(repeats[name]).median)
    return times


def import_seconds(code: str) -> float:
    """Wall time of a new interpreter that runs ``code``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def imports(rounds: int) -> Times:
    """A new interpreter importing torch alone, and using ringfence's core."""
    codes = {"import torch": "import torch", "the core in use": "import ringfence as rf; rf.LogBarrier, rf.between"}
    times: Times = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            times[name].append(import_seconds(code))
    return times


def ratios(times: Times, base: str) -> dict[str, float]:
    """Every variant's time over the base's of the same round; the median over the rounds."""
    return {
        name: statistics.median(one / other for one, other in zip(seconds, times[base], strict=True))
        for name, seconds in times.items()
        if name != base
    }


def main() -> None:
    """Measure, print, and write ``<device>.json`` and ``<device>.md``."""
    parser = argparse.ArgumentParser(description="What the core costs, as ratios.")
    parser.add_argument("--out", type=Path, default=Path("results/core"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: no GPU on this machine")
    torch.manual_seed(0)
    device, gpu = options.device, options.device == "cuda"
    size, batch, count = (256, 32, 10_000) if gpu else (64, 8, 10_000)
    loop = barrier_against_loop(device, count, rounds=3)
    steps = training_step(device, size, batch, options.rounds)
    importing = imports(options.rounds)
    result: dict[str, Any] = {
        "command": f"python benchmarks/core.py --device {device} --rounds {options.rounds}",
        "seed": 0,
        "environment": environment() | {"processor": platform.processor()},
        "setting": {"constraints": count, "image": size, "batch": batch},
        "ratios": {
            f"{title}: {name}": ratio
            for title, times, base in (
                (f"ψ_t of {count:,} residuals, forward and backward, over log_barrier", loop, "log_barrier"),
                ("a training step over the base loss alone", steps, "base loss alone"),
                ("a new interpreter over one that imports torch", importing, "import torch"),
            )
            for name, ratio in ratios(times, base).items()
        },
    }
    if gpu:
        named = loop | {f"training step, {name}": seconds for name, seconds in steps.items()}
        result["median seconds"] = {name: statistics.median(seconds) for name, seconds in named.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{device}.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.out / f"{device}.md").write_text(as_markdown(result))
    print(as_markdown(result))


def as_markdown(result: dict[str, Any]) -> str:
    """The ratios as a table, with where and how they were measured."""
    rows = [f"| {what} | {ratio:.3f} |" for what, ratio in result["ratios"].items()]
    where = result["environment"]
    machine = where["gpu"] if where["gpu"] != "none" else where["cpu"]
    setting = ", ".join(f"{key} {value}" for key, value in result["setting"].items())
    note = (
        f"Written by `{result['command']}` (seed {result['seed']}; {setting}) on {machine}, torch {where['torch']}."
    )
    return "\n".join(["| what | ratio |", "|---|---|", *rows, "", note]) + "\n"


if __name__ == "__main__":
    main()
