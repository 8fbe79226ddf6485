"""How the methods of `ringfence compare synthetic` were tuned: the same number of settings for each, written down.

    python benchmarks/tune_synthetic.py --scale small --out results/synthetic/tuning/small
    python benchmarks/tune_synthetic.py --scale paper --epochs 8 --out results/synthetic/tuning/paper
    python benchmarks/tune_synthetic.py --rewrite results/synthetic/tuning/*.json  # the tables alone, no training

Every method has five trainings, with a seed (so images and first weights) that no reported result uses: two with
its residuals in pixels and in relative units, then three other values of its own parameter in the better unit. A
quadratic penalty alone has no such parameter, since Adam does not care about a factor of the whole loss: its three
are of the temperature. Network, learning rate and schedules are the same for all. What is best is in settings.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from records import rewrite, write
from ringfence.environment import commit, environment
from ringfence.report.comparison import read_comparison
from ringfence.weak.experiments.one_training import train_one
from ringfence.weak.experiments.parsing import as_config
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import RunFolder

SEED = 100
FIRST: dict[str, dict[str, Any]] = {
    "lagrangian": {"dual_lr": 0.1},
    "relu_lagrangian": {"dual_lr": 1.0},
    "penalty": {"temperature": 1.0, "final_temperature": 0.1},
    "log_barrier": {"t": 1.0},
    "augmented_lagrangian": {"rho": 1.0},
}
OTHERS: dict[str, list[dict[str, Any]]] = {
    "lagrangian": [{"dual_lr": value} for value in (0.01, 1.0, 10.0)],
    "relu_lagrangian": [{"dual_lr": value} for value in (0.1, 10.0, 100.0)],
    "penalty": [
        {"temperature": first, "final_temperature": last} for first, last in ((1, 1), (0.2, 0.2), (0.1, 0.1))
    ],
    "log_barrier": [{"t": value} for value in (0.2, 5.0, 25.0)],
    "augmented_lagrangian": [{"rho": value} for value in (0.1, 10.0, 100.0)],
}


def main() -> None:
    """Tune, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("small", "paper"), default="small")
    parser.add_argument("--epochs", type=int, help="fewer than the scale has; schedules shrink with them")
    parser.add_argument("--methods", nargs="+", default=list(FIRST), help="tune these anew and keep OUT's others")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="tune, and write OUT.json and OUT.md")
    what.add_argument("--rewrite", nargs="+", type=Path, metavar="FILE.json", help="make their tables anew")
    options = parser.parse_args()
    if options.rewrite:
        rewrite(options.rewrite)
        return
    where = environment() | {"commit": commit()}  # of the code as it is imported now
    settings = shortened(from_preset(SyntheticSettings, f"synthetic-{options.scale}"), options.epochs)
    task = disc_task(settings.data, SEED)
    trainings = earlier(options.out.with_suffix(".json"), options.methods, settings)
    for method in options.methods:
        found = [attempt(settings, task, method, FIRST[method] | {"unit": unit}) for unit in ("pixels", "relative")]
        better = max(found, key=lambda one: (one["dice"], one["satisfaction"]))["setting"]
        found += [attempt(settings, task, method, better | other) for other in OTHERS[method]]
        trainings += found
    record = {
        "command": f"python benchmarks/tune_synthetic.py --scale {options.scale}"
        + (f" --epochs {options.epochs}" if options.epochs else "")
        + (f" --methods {' '.join(options.methods)}" if set(options.methods) < set(FIRST) else ""),
        "seed": SEED,
        "environment": where,
        "settings": as_config(settings),
        "trainings": trainings,
    }
    write(options.out, record)


def earlier(record: Path, methods: list[str], settings: SyntheticSettings) -> list[dict[str, Any]]:
    """The trainings of an earlier record that are not made anew; it must be about the same task."""
    if not record.exists() or set(FIRST) <= set(methods):
        return []
    before = json.loads(record.read_text(encoding="utf-8"))
    for part in ("data", "network", "training"):
        if before["settings"][part] != json.loads(json.dumps(asdict(getattr(settings, part)))):
            raise SystemExit(f"{record} was tuned with another {part}: tune all methods anew")
    return [one for one in before["trainings"] if one["method"] not in methods]


def shortened(settings: SyntheticSettings, epochs: int | None) -> SyntheticSettings:
    """The same schedules in fewer epochs: the barrier's t ends where it would have."""
    if epochs is None:
        return settings
    barrier = settings.method_settings["log_barrier"]
    mu = (getattr(barrier, "mu", None) or 1.0) ** (settings.training.length / epochs)
    return replace(settings, training=replace(settings.training, epochs=epochs)).with_method("log_barrier", mu=mu)


def attempt(settings: SyntheticSettings, task: Task, method: str, setting: dict[str, Any]) -> dict[str, Any]:
    """Train a method with a setting; its row of the record."""
    changed = settings.with_method(method, **setting)
    with tempfile.TemporaryDirectory() as folder, ProgressBars(Console(quiet=True), 1, 1) as bars:
        run = RunFolder(Path(folder))
        train_one(changed, task, method, SEED, run.run(SEED, method), bars)
        row = read_comparison(folder).rows()[0]
    print(f"{method:<22} {setting} DSC {row.dice:.4f} satisfaction {row.measures['satisfaction']:.4f}", flush=True)
    return {"method": method, "setting": setting, "dice": row.dice, "satisfaction": row.measures["satisfaction"]}


if __name__ == "__main__":
    main()
