"""Train variants of the settings for PROMISE12 one after another, and write what each reached.

    python benchmarks/tune_promise12.py --prepared PREPARED --plan plan.yaml --out results/promise12/tuning/NAME

The plan is a YAML file: for each variant a method, and the settings that differ from the preset promise12, by
dotted name:

    barrier-strips-50: {method: log_barrier, log_barrier.weights: {strips: 50}}

After each variant everything so far is written. On a large GPU several calls side by side, each with some of the
variants (--only), are faster than one; what they wrote is then made one record:

    python benchmarks/tune_promise12.py --plan plan.yaml --join part-*.json --out results/promise12/tuning/NAME

The table (OUT.md) is made of the record (OUT.json) alone, and can be made anew without training:

    python benchmarks/tune_promise12.py --rewrite results/promise12/tuning/*.json
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from records import joined, rewrite, write
from ringfence.environment import commit, environment
from ringfence.weak.experiments.one_training import checked_box_task, train_one
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun


def main() -> None:
    """Train, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prepared", help="the folder that `ringfence prepare` wrote: train")
    what.add_argument("--join", nargs="+", type=Path, help="records of this plan, of several calls: make them one")
    what.add_argument("--rewrite", nargs="+", type=Path, metavar="FILE.json", help="make their tables anew")
    parser.add_argument("--plan", type=Path, help="YAML: the variants")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--only", nargs="+", help="names of variants (default: all of the plan's)")
    parser.add_argument("--out", type=Path, help="where OUT.json and OUT.md are written")
    options = parser.parse_args()
    if options.rewrite:
        rewrite(options.rewrite)
        return
    if options.plan is None or options.out is None:
        parser.error("--prepared and --join need --plan and --out")
    plan: dict[str, dict[str, Any]] = yaml.safe_load(options.plan.read_text(encoding="utf-8"))
    if options.join:
        parts = [json.loads(part.read_text(encoding="utf-8")) for part in options.join]
        write(options.out, joined(parts, list(plan)))
        return
    given = {"data.prepared": options.prepared, "training.epochs": options.epochs}
    base = from_preset(TrainSettings, "promise12", given)
    record: dict[str, Any] = {
        "command": f"python benchmarks/tune_promise12.py --prepared PREPARED --plan {options.plan.name} "
        f"--epochs {options.epochs} --seed {options.seed}",
        "seed": options.seed,
        "environment": environment() | {"commit": commit()},
        "variants": [],
    }
    for name in options.only or plan:
        different = dict(plan[name])
        method = different.pop("method")
        began = time.perf_counter()
        settings = base.changed(different)
        rows = epochs(settings, method, options.seed)
        tail = rows[-max(1, len(rows) // 5) :]
        record["variants"].append(
            {
                "name": name,
                "method": method,
                "settings": different,
                "dice": statistics.fmean(row["dice"] for row in tail),
                "dice_sd": statistics.pstdev(row["dice"] for row in tail),
                "satisfaction": statistics.fmean(row["satisfaction"] for row in tail),
                "best_epoch": max(row["dice"] for row in rows),
                "every_fifth_epoch": [round(row["dice"], 4) for row in rows[4::5]],
                "seconds_per_epoch": statistics.median(row["seconds_train"] for row in rows),
            }
        )
        print(json.dumps(record["variants"][-1]), f"{time.perf_counter() - began:.0f} s", flush=True)
        write(options.out, record)


_read: dict[str, Task] = {}


def _task(settings: TrainSettings) -> Task:
    """The task, read once for all variants that differ in something else."""
    key = repr((settings.data, settings.constraints))
    if key not in _read:
        _read.clear()
        _read[key] = checked_box_task(settings, list(METHODS))[0]
    return _read[key]


def epochs(settings: TrainSettings, method: str, seed: int) -> list[dict[str, float]]:
    """What each epoch of one training measured."""
    task = _task(settings)
    with (
        tempfile.TemporaryDirectory() as folder,
        ProgressBars(Console(quiet=True), 1, settings.training.length) as bars,
    ):
        run = OneRun(Path(folder) / method)
        train_one(settings, task, method, seed, run, bars)
        with (run.path / "metrics.csv").open(encoding="utf-8") as lines:
            return [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(lines)]


if __name__ == "__main__":
    main()
