"""What smoothing does: Dice of cases held out, by the deviation of the Gaussian in widths of a strip.

    ringfence train --data.prepared prepared/mine --data.folds 5 --data.fold 0 --out runs/mine
    python benchmarks/smoothing.py runs/mine --out results/plan/smoothing

Of each training's model, however smooth it was judged, with the levels that it has. Masks of the cases held out are
used for Dice, and for nothing else; nothing of them was trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from levels import logits_of
from looking import about, look_at, opened
from ringfence.weak.training.measures import Dice

WIDTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)


def main() -> None:
    """Look at each model, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of trainings on slices, with a fold held out")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = f"python benchmarks/smoothing.py {' '.join(map(str, options.runs))}"
    look_at(options.runs, looked_at, as_markdown, command, options.out)


def looked_at(run: Path) -> dict[str, Any]:
    """Of one training: Dice by how smooth answers are."""
    settings, task, network, card = opened(run)
    levels = torch.tensor([0.0, *(card.levels or [0.0] * len(task.classes))]).view(1, -1, 1, 1)
    width = settings.constraints["strips"]["width"]
    width = min(width.values()) if isinstance(width, Mapping) else width
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def dice(sigma: float) -> float:
        metric = Dice()
        logits = logits_of(network.to(where), task.validation["image"].to(where), sigma).cpu()
        metric.update(logits + levels, dict(task.validation))
        return float(metric.compute()["dice"])

    return {
        **about(run, settings),
        "width": width,
        "dice": [dice(times * width) for times in WIDTHS],
    }


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each training: deviations are columns."""
    heads = [f"{one:g}" for one in WIDTHS]
    lines = [f"| training | a strip's width, pixels | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for one in record["runs"]:
        method = "masks" if one["method"] == "full_supervision" else "boxes"
        cells = " | ".join(f"{value:.3f}" for value in one["dice"])
        lines.append(f"| {one['set']}, fold {one['fold']}, {method} | {one['width']} | {cells} |")
    facts = record["environment"]
    where = facts["cpu"] if facts["gpu"] == "none" else facts["gpu"]
    lines += ["", f"`{record['command']}`, torch {facts['torch']}, {where}, commit {facts['commit'][:7]}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
