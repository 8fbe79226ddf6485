"""A planned training's steps on a CPU, in float32 and in bfloat16, one after the other.

    python benchmarks/bf16_cpu.py prepared/promise12-64 prepared/promise12 --out results/speed/bf16_cpu

Everything that a step has is in it: reading, augmentation, network, constraints, optimiser. Rounds take turns; the
median of a round's steps counts, and of the rounds' ratios the median. Says nothing of processors other than this.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from ringfence import weak
from ringfence.environment import commit, environment
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.accelerator import multiplies_bf16
from ringfence.weak.training.fit import make_callback, make_data, make_module, quiet_lightning

WARM = 3


class Clock(pl.Callback):
    """When each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        """Note the time."""
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of a step, once it is warm."""
        return statistics.median(b - a for a, b in zip(self.ends[WARM:], self.ends[WARM + 1 :], strict=False))


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/bf16_cpu.py {' '.join(map(str, options.prepared))} --steps {options.steps} "
        f"--rounds {options.rounds}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "multiplies_bf16": multiplies_bf16(),
        "sets": [],
    }
    for path in options.prepared:
        rounds = [
            {precision: seconds(path, precision, options.steps) for precision in ("32", "bf16")}
            for _ in range(options.rounds)
        ]
        ratios = [one["32"] / one["bf16"] for one in rounds]
        record["sets"].append({"set": path.name, "ratio": statistics.median(ratios), "ratios": ratios})
        print(record["sets"][-1], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def seconds(path: Path, precision: str, steps: int) -> float:
    """A step's, of the plan for this set."""
    data = weak.BoxDataSettings(prepared=str(path), boxes="masks")
    settings = weak.planned(weak.plan(data, "cpu"), {"training.epochs": 1})
    task, clock = box_task(settings.data, settings.constraints), Clock()
    module = make_module(settings, task, settings.method, seed=0)
    with tempfile.TemporaryDirectory() as folder, quiet_lightning():
        trainer = pl.Trainer(
            accelerator="cpu",
            precision="32-true" if precision == "32" else "bf16-mixed",
            max_steps=steps + WARM,
            limit_val_batches=0,
            callbacks=[make_callback(settings.method), clock],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, datamodule=make_data(settings, task, module, seed=0))
    return clock.seconds


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each set."""
    facts = record["environment"]
    own = "does" if record["multiplies_bf16"] else "does not"
    lines = [
        f"Steps of a planned training in bfloat16 for one in float32 (this processor {own} multiply it by itself):",
        "",
        "| set | steps |",
        "|---|---|",
        *(f"| {one['set']} | {one['ratio']:.2f} |" for one in record["sets"]),
        "",
        f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['cpu']}, commit {facts['commit'][:7]}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
