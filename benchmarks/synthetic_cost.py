"""What constraints cost in training at the paper's scale: epochs with the base loss alone and with terms added.

    python benchmarks/synthetic_cost.py --out results/synthetic/cost/paper

The base loss is cross-entropy; each method's six constraints an image are added to it, dual update included (there
is no extra pass). Trainings are interleaved and the median of the rounds' ratios is reported; and of what an epoch
takes longer, what its steps do, and what is done once, at its end (without what validation takes).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from ringfence.environment import commit, environment
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.fit import make_callback, make_data, make_module, quiet_lightning
from ringfence.weak.training.history import History

BASE = "full_supervision"
METHODS = ("lagrangian", "relu_lagrangian", "penalty", "log_barrier", "augmented_lagrangian")


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("small", "paper"), default="paper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = from_preset(SyntheticSettings, f"synthetic-{options.scale}")
    task = disc_task(replace(settings.data, validation=1), seed=0)
    ratios: dict[str, dict[str, float]] = {}
    shares: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, float] = {}
    for size in options.batch_sizes:
        sized = replace(settings, training=replace(settings.training, batch_size=size))
        rounds = [
            {name: epoch_seconds(sized, task, name) for name in (BASE, *METHODS)} for _ in range(options.rounds)
        ]
        ratios[str(size)] = {
            name: statistics.median(sum(one[name]) / sum(one[BASE]) for one in rounds) for name in METHODS
        }
        shares[str(size)] = {
            name: [
                statistics.median((one[name][part] - one[BASE][part]) / sum(one[BASE]) for one in rounds)
                for part in range(2)
            ]
            for name in METHODS
        }
        seconds[str(size)] = statistics.median(sum(one[BASE]) for one in rounds)
        print(size, ratios[str(size)], shares[str(size)], seconds[str(size)], flush=True)
    record: dict[str, Any] = {
        "command": f"python benchmarks/synthetic_cost.py --scale {options.scale} --rounds {options.rounds} "
        f"--batch-sizes {' '.join(map(str, options.batch_sizes))}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "base_epoch_seconds_by_batch_size": seconds
        if torch.cuda.is_available()
        else "absolute times only on a GPU",
        "ratio_to_base_by_batch_size": ratios,
        "added_by_steps_and_at_the_end": shares,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


class Parts(History):
    """An epoch's seconds, and of these what its steps took, until validation begins."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.steps: list[float] = []

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """It comes after the last step."""
        super().on_validation_start(trainer, pl_module)
        self.steps.append(self._validating - self._began)


def epoch_seconds(settings: SyntheticSettings, task: Task, method: str) -> tuple[float, float]:
    """Of the fastest of five epochs with the base loss and a method's constraints: its steps, and its end."""
    module = make_module(settings, task, method, seed=0)
    module.supervised = True
    with tempfile.TemporaryDirectory() as folder, quiet_lightning():
        parts = Parts(Path(folder))
        trainer = pl.Trainer(
            accelerator="cuda" if torch.cuda.is_available() else "cpu",
            devices=1,
            precision="bf16-mixed" if torch.cuda.is_available() else "32-true",
            max_epochs=5,
            callbacks=[make_callback(method), parts],
            logger=False,
            benchmark=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, datamodule=make_data(settings, task, module, seed=0))
    epochs = [row["seconds_train"] for row in parts.rows]
    whole, taken = min(zip(epochs, parts.steps, strict=True))
    return taken, whole - taken


def as_markdown(record: dict[str, Any]) -> str:
    """The ratios as a table."""
    facts = record["environment"]
    lines = [
        "Time of a training epoch with the base loss and six constraints an image, over the base loss alone:",
        "",
        f"| batch size | {' | '.join(METHODS)} |",
        "|---" * (len(METHODS) + 1) + "|",
    ]
    for size, ratios in record["ratio_to_base_by_batch_size"].items():
        lines.append(f"| {size} | {' | '.join(f'{ratios[name]:.3f}' for name in METHODS)} |")
    lines += [
        "",
        "What is added by the epoch's steps / once, at its end, in percent of the base's epoch:",
        "",
        f"| batch size | {' | '.join(METHODS)} |",
        "|---" * (len(METHODS) + 1) + "|",
    ]
    for size, shares in record["added_by_steps_and_at_the_end"].items():
        both = (" / ".join(f"{round(100.0 * share, 1) + 0.0}" for share in shares[name]) for name in METHODS)
        lines.append(f"| {size} | {' | '.join(both)} |")
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}, {facts['cpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
