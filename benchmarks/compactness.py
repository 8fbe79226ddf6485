"""How compact digital discs, ellipses and real objects are: L² over that of a disc of the same size, 4πA.

    python benchmarks/compactness.py --prepared PREPARED --out results/constraints/compactness

What ``constraints.compactness.ratio`` has to allow for. Without --prepared, generated shapes alone.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.environment import commit, environment
from ringfence.segmentation import boundary_length
from ringfence.weak.prepared.prepared_set import read_prepared

SHAPES = {"discs": 1.0, "ellipses 2:1": 2.0, "ellipses 3:1": 3.0}


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", help="a prepared set, whose masks are measured slice by slice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = {name: facts(generated(aspect, options.seed)) for name, aspect in SHAPES.items()}
    if options.prepared:
        name, masks = slices(options.prepared)
        found[name] = facts(masks)
    prepared = " --prepared PREPARED" if options.prepared else ""
    record: dict[str, Any] = {
        "command": f"python benchmarks/compactness.py{prepared} --seed {options.seed}",
        "seed": options.seed,
        "environment": environment() | {"commit": commit()},
        "ratio": found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def facts(masks: list[NDArray[np.bool_]]) -> dict[str, float]:
    """How many there are, and which ratios they have: with the pixel that the constraint adds to a size."""
    ratios = [ratio(torch.from_numpy(mask)) for mask in masks]
    return {
        "count": len(ratios),
        "median": float(np.median(ratios)),
        "95 of 100": float(np.percentile(ratios, 95)),
        "largest": max(ratios),
    }


def ratio(mask: Tensor) -> float:
    """L² / 4π(A + 1)."""
    length = boundary_length(mask.float()[None], 2)
    return float(length.square() / (4.0 * math.pi * (mask.sum() + 1)))


def generated(aspect: float, seed: int) -> list[NDArray[np.bool_]]:
    """Discs or ellipses with a minor half-axis of 0.75 to 12 pixels, in random places and turned at random."""
    random, masks = np.random.default_rng(seed), []
    for half in np.linspace(0.75, 12.0, 46):
        side = 2 * math.ceil(half * aspect) + 6
        grid = np.indices((side, side)) + 0.5
        for _ in range(20):
            turn = random.uniform(0.0, math.pi)
            down, right = (grid[axis] - side / 2 - random.uniform(-0.5, 0.5) for axis in (0, 1))
            along = down * math.cos(turn) + right * math.sin(turn)
            across = right * math.cos(turn) - down * math.sin(turn)
            mask = (along / (half * aspect)) ** 2 + (across / half) ** 2 <= 1.0
            if mask.any():
                masks.append(mask)
    return masks


def slices(folder: str) -> tuple[str, list[NDArray[np.bool_]]]:
    """A prepared set's name and size, and its masks: every slice of every class that does not end at the border."""
    prepared, masks = read_prepared(folder), []
    for case in prepared.cases:
        labels = prepared.load(case)[1]
        for image in [] if labels is None else labels:
            for number in range(1, 1 + len(prepared.classes)):
                mask = np.pad(image == number, 1)
                if mask[2:-2, 2:-2].any() and mask.sum() == mask[2:-2, 2:-2].sum():
                    masks.append(mask)
    height, width = prepared.size
    return f"{prepared.name}, slices of {height}×{width}", masks


def as_markdown(record: dict[str, Any]) -> str:
    """The ratios as a table."""
    lines = ["| shapes | how many | median | 95 of 100 are below | largest |", "|---|---|---|---|---|"]
    for name, one in record["ratio"].items():
        numbers = " | ".join(f"{one[key]:.2f}" for key in ("median", "95 of 100", "largest"))
        lines.append(f"| {name} | {one['count']} | {numbers} |")
    known = record["environment"]
    about = f"`{record['command']}`, torch {known['torch']}, {known['cpu']}, commit {known['commit']}."
    return (
        "\n".join([*lines, "", "L² / 4π(A + 1), with L by Crofton's formula in four directions.", "", about]) + "\n"
    )


if __name__ == "__main__":
    main()
