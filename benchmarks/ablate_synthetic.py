"""What upsampling, prior and temperature do for the methods of `ringfence compare synthetic`, at the small scale.

    python benchmarks/ablate_synthetic.py --out results/synthetic/ablation/small
    python benchmarks/ablate_synthetic.py --rewrite results/synthetic/ablation/small.json  # the table alone

Each row takes one of them away; the methods' own settings stay what they are. Seeds are those of the demo.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from records import rewrite, write
from ringfence.environment import commit, environment
from ringfence.report.comparison import read_comparison
from ringfence.weak.experiments.one_training import train_one
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import RunFolder

METHODS = ("penalty", "log_barrier")


def variants(settings: SyntheticSettings) -> dict[str, SyntheticSettings]:
    """The settings with one thing changed each."""

    def tempered(first: float, last: float) -> SyntheticSettings:
        changed = settings
        for method in METHODS:
            changed = changed.with_method(method, temperature=first, final_temperature=last)
        return changed

    network = settings.network
    chequered = replace(network, init_args=network.init_args | {"upsample_mode": "deconv"})
    return {
        "as shipped": settings,
        "transposed convolutions": replace(settings, network=chequered),
        "no prior": replace(settings, training=replace(settings.training, prior=None)),
        "temperature 1 throughout": tempered(1.0, 1.0),
        "temperature 0.1 throughout": tempered(0.1, 0.1),
    }


def main() -> None:
    """Train, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train, and write OUT.json and OUT.md")
    what.add_argument("--rewrite", nargs="+", type=Path, metavar="FILE.json", help="make their tables anew")
    options = parser.parse_args()
    if options.rewrite:
        rewrite(options.rewrite)
        return
    shipped = from_preset(SyntheticSettings, "synthetic-small")
    tasks = {seed: disc_task(shipped.data, seed) for seed in options.seeds}
    found: dict[str, dict[str, list[float]]] = {}
    record = {
        "command": f"python benchmarks/ablate_synthetic.py --seeds {' '.join(map(str, options.seeds))}",
        "seeds": options.seeds,
        "environment": environment() | {"commit": commit()},
        "dice_by_seed": found,
    }
    for name, settings in variants(shipped).items():
        found[name] = {}
        for method in METHODS:
            found[name][method] = [dice_of(settings, tasks[seed], method, seed) for seed in options.seeds]
            print(name, method, found[name][method], flush=True)
        write(options.out, record)  # what there is, should the rest be interrupted


def dice_of(settings: SyntheticSettings, task: Any, method: str, seed: int) -> float:
    """Dice after training one method with one seed."""
    with tempfile.TemporaryDirectory() as folder, ProgressBars(Console(quiet=True), 1, 1) as bars:
        train_one(settings, task, method, seed, RunFolder(Path(folder)).run(seed, method), bars)
        return read_comparison(folder).rows()[0].dice


if __name__ == "__main__":
    main()
