"""One constraint step beside the peers' and hand-written one-liners: ``make peers`` writes results/core/peers.*.

A step is what a training loop pays for constraints: the loss term, its gradient, and the dual update, with every
library as it comes (ours with its default validation). N residuals are a leaf of N numbers. Rounds are interleaved
and medians reported; what is compared are ratios within this run. Needs the ``bench`` extra.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import cooper
import torch
from humancompatible.train.dual_optim import ALM, PBM
from torch import Tensor

import ringfence as rf
from ringfence.environment import environment

Step: TypeAlias = Callable[[], None]
OURS, FLOOR = "ringfence", "one-liner"
RATE, RHO, T = 0.01, 1.0, 5.0
SIZES = (10, 1_000, 10_000, 100_000, 1_000_000)
TABLE, BATCH, MEMORY = 1_000_000, 32, 10_000_000


# ringfence


def fence_step(fence: rf.Method, z: Tensor, index: Tensor | None = None) -> Step:
    """A call, its gradient, and the step."""

    def step() -> None:
        z.grad = None
        fence(c=z, index=index).backward()
        fence.step()

    return step


# Hand-written, as one would without a library


def barrier_line(z: Tensor) -> Step:
    """ψ_t by ``where``, with the usual guard against the NaN that the branch not taken would give."""

    def step() -> None:
        z.grad = None
        inside = torch.where(z <= -1 / T**2, z, -1.0)
        outside = T * z - math.log(1 / T**2) / T + 1 / T
        torch.where(z <= -1 / T**2, -torch.log(-inside) / T, outside).sum().backward()

    return step


def penalty_line(z: Tensor) -> Step:
    """relu, square, sum."""

    def step() -> None:
        z.grad = None
        torch.relu(z).square().sum().backward()

    return step


def lagrangian_line(z: Tensor, violation: Callable[[Tensor], Tensor] = lambda z: z) -> Step:
    """λ times z, and projected ascent."""
    state = {"multiplier": torch.zeros(z.shape)}

    def step() -> None:
        z.grad = None
        (state["multiplier"] * violation(z)).sum().backward()
        state["multiplier"] = (state["multiplier"] + RATE * violation(z.detach())).clamp(min=0)

    return step


def augmented_line(z: Tensor) -> Step:
    """Powell, Hestenes and Rockafellar's term."""
    state = {"multiplier": torch.zeros(z.shape)}

    def step() -> None:
        z.grad = None
        pushed = torch.relu(state["multiplier"] + RHO * z)
        ((pushed.square() - state["multiplier"].square()).sum() / (2 * RHO)).backward()
        state["multiplier"] = (state["multiplier"] + RHO * z.detach()).clamp(min=0)

    return step


def indexed_line(z: Tensor, index: Tensor, samples: int) -> Step:
    """A table of multipliers, the rows of a batch looked up and put back."""
    table = torch.zeros(samples)

    def step() -> None:
        z.grad = None
        torch.dot(table[index], z).backward()
        table[index] = (table[index] + RATE * z.detach()).clamp(min=0)

    return step


def authors_loop(z: Tensor) -> Step:
    """The published loss: one number after the other, each read back to choose its branch."""

    def step() -> None:
        z.grad = None
        total = z.new_zeros(())
        for one in z:
            if one.item() <= -1 / T**2:
                total = total + -torch.log(-one) / T
            else:
                total = total + T * one + -math.log(1 / T**2) / T + 1 / T
        total.backward()

    return step


# cooper-optim


def cooper_step(
    z: Tensor,
    formulation: Any = cooper.formulations.Lagrangian,
    multiplier: Any = None,
    coefficient: float | None = None,
    features: Callable[[], Tensor | None] = lambda: None,
) -> Step:
    """Both Lagrangians, their gradients, and the dual step: what its ``roll`` does, less the primal step."""
    penalty = (
        None
        if coefficient is None
        else cooper.penalty_coefficients.DensePenaltyCoefficient(init=torch.tensor(coefficient))
    )
    constraint = cooper.Constraint(
        constraint_type=cooper.ConstraintType.INEQUALITY,
        formulation_type=formulation,
        multiplier=multiplier,
        penalty_coefficient=penalty,
    )
    dual = None if multiplier is None else torch.optim.SGD(multiplier.parameters(), lr=RATE, maximize=True)
    nothing = torch.zeros(())

    def step() -> None:
        z.grad = None
        if dual is not None:
            dual.zero_grad()
        state = cooper.CMPState(
            loss=nothing,
            observed_constraints={constraint: cooper.ConstraintState(violation=z, constraint_features=features())},
        )
        state.compute_primal_lagrangian().backward()
        if dual is not None:
            state.compute_dual_lagrangian().backward()
            dual.step()
            multiplier.post_step_()

    return step


# humancompatible-train


def humancompatible_step(dual: Any, z: Tensor) -> Step:
    """Its recommended entry point."""
    nothing = torch.zeros(())

    def step() -> None:
        z.grad = None
        dual.forward_update(nothing.clone(), z).backward()

    return step


def contests(number: int) -> dict[str, dict[str, Step]]:
    """Every method with everybody who has it, for ``number`` residuals."""
    z = torch.randn(number, requires_grad=True)
    order = torch.randperm(number)
    dense = cooper.multipliers.DenseMultiplier
    cooper_forms = cooper.formulations
    barrier = {
        FLOOR: barrier_line(z),
        OURS: fence_step(rf.LogBarrier(t=T, mu=1.0), z),
        "humancompatible-train (penalty-barrier)": humancompatible_step(
            PBM(m=number, gamma_annealing=False, penalty_annealing=False), z
        ),
    }
    if number <= 10_000:
        barrier["the authors' loop"] = authors_loop(z)
    return {
        "barrier": barrier,
        "penalty": {
            FLOOR: penalty_line(z),
            OURS: fence_step(rf.Penalty(), z),
            "cooper": cooper_step(z, cooper_forms.QuadraticPenalty, coefficient=2.0),
        },
        "Lagrangian": {
            FLOOR: lagrangian_line(z),
            OURS: fence_step(rf.Lagrangian(RATE, same_rows=True), z),
            "cooper": cooper_step(z, multiplier=dense(num_constraints=number)),
            "humancompatible-train": humancompatible_step(ALM(m=number, lr=RATE, is_ineq=True), z),
        },
        "augmented Lagrangian": {
            FLOOR: augmented_line(z),
            OURS: fence_step(rf.AugmentedLagrangian(RHO, same_rows=True), z),
            "cooper": cooper_step(z, cooper_forms.AugmentedLagrangian, dense(num_constraints=number), RHO),
            "humancompatible-train": humancompatible_step(ALM(m=number, lr=RHO, penalty=RHO, is_ineq=True), z),
        },
        "ReLU Lagrangian": {
            FLOOR: lagrangian_line(z, torch.relu),
            OURS: fence_step(rf.ReLULagrangian(RATE, same_rows=True), z),
        },
        "Lagrangian, by index": {
            FLOOR: indexed_line(z, order, number),
            OURS: fence_step(rf.Lagrangian(RATE), z, order),
            "cooper": cooper_step(
                z, multiplier=cooper.multipliers.IndexedMultiplier(num_constraints=number), features=lambda: order
            ),
        },
    }


def table_contest() -> dict[str, Step]:
    """A million data points, batches of 32, and a dual step each iteration."""
    z = torch.randn(BATCH, requires_grad=True)
    batches = [torch.randperm(TABLE)[:BATCH] for _ in range(64)]
    turn = {"at": 0}

    def batch() -> Tensor:
        turn["at"] = (turn["at"] + 1) % len(batches)
        return batches[turn["at"]]

    fence, table = rf.Lagrangian(RATE, samples=TABLE), torch.zeros(TABLE)

    def ours() -> None:
        z.grad = None
        fence(c=z, index=batch()).backward()
        fence.step()

    def by_hand() -> None:
        z.grad, index = None, batch()
        torch.dot(table[index], z).backward()
        table[index] = (table[index] + RATE * z.detach()).clamp(min=0)

    multiplier = cooper.multipliers.IndexedMultiplier(num_constraints=TABLE)
    return {FLOOR: by_hand, OURS: ours, "cooper": cooper_step(z, multiplier=multiplier, features=batch)}


def interleaved(steps: Mapping[str, Step], rounds: int, slice_seconds: float = 0.02) -> dict[str, list[float]]:
    """Microseconds a step in each round; in a round everyone has a turn, and the order rotates."""
    repeats = {}
    for name, step in steps.items():
        step()
        start = time.perf_counter()
        step()
        step()
        repeats[name] = max(1, min(1000, int(2 * slice_seconds / (time.perf_counter() - start))))
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            step, many = steps[name], repeats[name]
            start = time.perf_counter()
            for _ in range(many):
                step()
            times[name].append((time.perf_counter() - start) / many * 1e6)
    return times


def compared(times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Medians, and ours over the fastest peer's and over the one-liner's."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    peers = {name: value for name, value in medians.items() if name not in (OURS, FLOOR)}
    return {
        "microseconds": {name: round(value, 1) for name, value in medians.items()},
        "over the fastest peer": medians[OURS] / min(peers.values()) if peers else None,
        "over the one-liner": medians[OURS] / medians[FLOOR],
    }


def peak_memory(who: str) -> float:
    """MB that two steps with ``MEMORY`` multipliers take at most; for a process of its own."""
    torch.set_num_threads(1)
    z = torch.randn(MEMORY, requires_grad=True)
    contests(10)["Lagrangian"][who]()  # what is loaded at the first step is not counted
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    step = {
        FLOOR: lambda: lagrangian_line(z),
        OURS: lambda: fence_step(rf.Lagrangian(RATE, same_rows=True), z),
        "cooper": lambda: cooper_step(z, multiplier=cooper.multipliers.DenseMultiplier(num_constraints=MEMORY)),
        "humancompatible-train": lambda: humancompatible_step(ALM(m=MEMORY, lr=RATE, is_ineq=True), z),
    }[who]()
    step()
    step()
    return (_status("VmHWM") - before) / 1e3


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return float(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory_contest() -> dict[str, float]:
    """Each in a new process, so that nobody inherits another's heap."""
    found = {}
    for who in (FLOOR, OURS, "cooper", "humancompatible-train"):
        done = subprocess.run(
            [sys.executable, __file__, "--memory-of", who], capture_output=True, text=True, check=True
        )
        found[who] = round(float(done.stdout.split()[-1]), 1)
    return found


def main() -> None:
    """Measure, print, and write ``peers.json``, ``peers.md`` and ``peers.png``."""
    parser = argparse.ArgumentParser(description="One constraint step beside the peers'.")
    parser.add_argument("--out", type=Path, default=Path("results/core"))
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(peak_memory(options.memory_of))
        return
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    for number in options.sizes:
        for method, steps in contests(number).items():
            found.setdefault(method, {})[str(number)] = compared(interleaved(steps, options.rounds))
            print(f"{method}, N = {number:,}: {found[method][str(number)]}", flush=True)
    result = {
        "command": f"python benchmarks/peers.py --rounds {options.rounds}",
        "seed": 0,
        "environment": environment()
        | {name: version(name) for name in ("cooper-optim", "humancompatible-train")}
        | {"threads": 1},
        "steps": found,
        "table of a million, batches of 32": compared(interleaved(table_contest(), options.rounds)),
        "peak MB of ten million multipliers": memory_contest(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.out / "peers.md").write_text(as_markdown(result))
    draw(result, options.out / "peers.png")
    print(as_markdown(result))


def as_markdown(result: Mapping[str, Any]) -> str:
    """The ratios as tables, with where and how they were measured."""
    sizes = list(next(iter(result["steps"].values())))
    header = [
        "| method | " + " | ".join(f"N = {int(size):,}" for size in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]

    def rows(ratio: str) -> list[str]:
        return [
            f"| {method} | "
            + " | ".join("–" if by_size[size][ratio] is None else f"{by_size[size][ratio]:.2f}" for size in sizes)
            + " |"
            for method, by_size in result["steps"].items()
        ]

    table, memory = result["table of a million, batches of 32"], result["peak MB of ten million multipliers"]
    best = min(value for name, value in memory.items() if name not in (OURS, FLOOR))
    where = result["environment"]
    return "\n".join(
        [
            "Time of one constraint step (term, gradient, dual update), ours over the fastest peer's:",
            "",
            *header,
            *rows("over the fastest peer"),
            "",
            "and over a hand-written one-liner:",
            "",
            *header,
            *rows("over the one-liner"),
            "",
            "A table of a million multipliers, batches of 32, a dual step each iteration: "
            + f"{table['over the fastest peer']:.2f} of cooper's time, "
            + f"{table['over the one-liner']:.2f} of the one-liner's "
            + f"({table['microseconds'][OURS]:.0f} µs on this machine).",
            "",
            f"Peak memory of ten million multipliers: {memory[OURS] / best:.2f} of the best peer's ("
            + ", ".join(f"{name} {value:.0f} MB" for name, value in memory.items())
            + ").",
            "",
            f"Written by `{result['command']}` (seed {result['seed']}, one thread) on {where['cpu']}, torch "
            f"{where['torch']}, cooper-optim {where['cooper-optim']}, humancompatible-train "
            f"{where['humancompatible-train']}.",
            "",
        ]
    )


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Microseconds over N, a panel a method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = {FLOOR: "#9aa0a6", OURS: "#c0392b", "cooper": "#2471a3", "the authors' loop": "#7d6608"}
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), sharex=True, sharey=True, constrained_layout=True)
    for axis, (method, by_size) in zip(axes.flat, result["steps"].items(), strict=True):
        names = {name: None for size in by_size.values() for name in size["microseconds"]}
        for name in names:
            points = [
                (int(n), one["microseconds"][name]) for n, one in by_size.items() if name in one["microseconds"]
            ]
            label = name.replace(" (penalty-barrier)", "")
            axis.plot(
                *zip(*points, strict=True),
                marker="o",
                markersize=3,
                linewidth=2.2 if name == OURS else 1.2,
                color=colours.get(name, "#1e8449"),
                label=label,
                zorder=3 if name == OURS else 2,
            )
        axis.set(xscale="log", yscale="log", title=method)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("residuals N")
    for axis in axes[:, 0]:
        axis.set_ylabel("µs a step")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
