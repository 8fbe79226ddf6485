"""Whether 1, 2 and 4 processes train the same model: differences of losses, λ, t, satisfaction and Dice.

    python benchmarks/ranks_equal.py --out results/speed/ranks

Every method on two-disc images, with the same global batch, on CPU processes (gloo). Each number of processes is
compared with one process, epoch by epoch, and so is one process with two threads: all of them add up in another
order, and float32 rounds. In float64 that is not seen; what is left then would be a fault of ours. In float32,
Adam makes much of it: it divides by the size of gradients, also of those that are rounding alone (of the bias of a
convolution before a batch norm).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch

from ringfence.environment import commit, environment
from ringfence.weak.experiments.compare import compare
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import SyntheticSettings

METHODS = ("lagrangian", "relu_lagrangian", "penalty", "log_barrier", "full_supervision", "augmented_lagrangian")
ADAM = {"betas": [0.9, 0.99]}
OPTIMISERS = {
    "Adam, in float64": ("torch.optim.Adam", ADAM, 1e-3, "64"),
    "Adam, in float32": ("torch.optim.Adam", ADAM, 1e-3, "32"),
}
SHOWN = {"train_loss": "loss", "dice": "Dice", "satisfaction": "satisfaction", "worst": "worst violation"}


def main() -> None:
    """Train, compare, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in OPTIMISERS:
        with tempfile.TemporaryDirectory() as folder:
            torch.set_num_threads(1)
            one = trained(name, options, 1, Path(folder) / "one")
            for count in (1, *options.processes):
                torch.set_num_threads(2 if count == 1 else 1)  # processes of our own get as many
                other = trained(name, options, count, Path(folder) / str(count))
                title = f"{count}" if count > 1 else "1, with two threads"
                rows += [
                    {"optimiser": name, "processes": title, "method": method}
                    | differences(one[method], other[method])
                    for method in METHODS
                ]
                print(*rows[-len(METHODS) :], sep="\n", flush=True)
    sizes = " ".join(map(str, options.processes))
    record = {
        "command": f"python benchmarks/ranks_equal.py --processes {sizes} --images {options.images} "
        f"--epochs {options.epochs}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "differences_from_one_process": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def trained(optimiser: str, options: argparse.Namespace, processes: int, folder: Path) -> dict[str, Any]:
    """The last checkpoint of each method."""
    path, arguments, lr, precision = OPTIMISERS[optimiser]
    settings = from_preset(SyntheticSettings, "synthetic-small").changed(
        {
            "data.train": options.images,
            "data.validation": options.images // 2,
            "training.epochs": options.epochs,
            "training.device": "cpu",
            "training.devices": processes,
            "training.keep_checkpoint": True,
            "training.lr": lr,
            "training.precision": precision,
            "optimiser.class_path": path,
            "optimiser.init_args": arguments,
            "methods": list(METHODS),
            "seeds": [0],
        }
    )
    run = compare(settings, folder, progress=False)
    return {
        method: torch.load(run.run(0, method).path / "last.ckpt", weights_only=True)  # our own, just written
        for method in METHODS
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """The largest over epochs and entries, over the value's own size where that is above 1."""
    found: dict[str, float] = {}
    epochs = zip(one["callbacks"]["History"]["rows"], other["callbacks"]["History"]["rows"], strict=True)
    for row, same in epochs:
        for name, value in row.items():
            shown = next((shown for key, shown in SHOWN.items() if name == key), None)
            if name == "t" or "multiplier" in name:
                shown = "t, mean and largest λ"
            if shown and not (math.isnan(value) and math.isnan(same[name])):
                apart = abs(value - same[name]) / max(1.0, abs(value))
                found[shown] = max(found.get(shown, 0.0), apart)
    for prefix, shown in (("network.", "weights"), ("fence.", "λ of every sample")):
        tensors = [
            (tensor.double(), other["state_dict"][name].double())
            for name, tensor in one["state_dict"].items()
            if name.startswith(prefix) and tensor.is_floating_point()
        ]
        apart = [float(((a - b).abs() / a.abs().clamp(min=1.0)).max()) for a, b in tensors if a.numel()]
        found[shown] = max(apart, default=0.0)
    return found


def as_markdown(record: dict[str, Any]) -> str:
    """The largest difference of each kind, over methods."""
    rows = record["differences_from_one_process"]
    kinds = list(
        dict.fromkeys(name for row in rows for name in row if name not in ("optimiser", "processes", "method"))
    )
    lines = [
        "Several processes against one:",
        "",
        f"`{record['command']}`, seed {record['seed']}, commit {record['environment']['commit']}, "
        f"{record['environment']['cpu']}, torch {record['environment']['torch']}. Largest difference over all "
        "methods and epochs, relative where a value is above 1.",
        "",
        f"| optimiser | processes | {' | '.join(kinds)} |",
        f"|---|---|{'---|' * len(kinds)}",
    ]
    for name, count in dict.fromkeys((row["optimiser"], row["processes"]) for row in rows):
        those = [row for row in rows if (row["optimiser"], row["processes"]) == (name, count)]
        cells = [f"{max(row.get(kind, 0.0) for row in those):.1e}" for kind in kinds]
        lines.append(f"| {name} | {count} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
