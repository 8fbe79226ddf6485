"""Images a second of finished comparisons, from the epochs that they noted: on a GPU, where absolute times count.

    ringfence compare promise12 --data.prepared prepared/promise12 --seeds 0 --out runs/p12
    ringfence compare synthetic-paper --seeds 0 --out runs/discs
    python benchmarks/training_speed.py runs/p12 runs/discs --out results/speed/training

An epoch is timed from its first step to its last, validation apart; the median epoch counts. Seconds are those of
all epochs of a method, both together; recording graphs, checkpoints and tables come in addition. The environment is
that of the runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from pathlib import Path
from typing import Any


def main() -> None:
    """Read, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--images", type=int, nargs="+", default=[1129, 1000], help="training images of each run")
    parser.add_argument("--paper", type=float, nargs="+", default=[0.813, 0.945], help="the paper's, for each run")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    asked = zip(options.runs, options.images, options.paper, strict=True)
    runs = [measured(run, images, paper) for run, images, paper in asked]
    record: dict[str, Any] = {
        "command": f"python benchmarks/training_speed.py {' '.join(map(str, options.runs))} "
        f"--images {' '.join(map(str, options.images))} --paper {' '.join(map(str, options.paper))}",
        "seed": 0,
        "environment": runs[0]["environment"],  # where they were trained
        "runs": runs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def measured(run: Path, images: int, paper: float) -> dict[str, Any]:
    """What the trainings of a run took, by method; and until one reached the DSC that the paper's barrier did."""
    methods = {}
    for file in sorted(run.glob("seed-0/*/metrics.csv")):
        rows = list(csv.DictReader(file.open(encoding="utf-8")))
        train = [float(row["seconds_train"]) for row in rows]
        validation = [float(row["seconds_validation"]) for row in rows]
        methods[file.parent.name] = {
            "epochs": len(rows),
            "images_a_second": images / statistics.median(train),
            "seconds_of_an_epoch": statistics.median(train),
            "seconds_of_a_validation": statistics.median(validation),
            "seconds_of_training": sum(train),
            "seconds": sum(train) + sum(validation),
            "seconds_to_the_papers_dice": until(rows, paper),
            "dice_last_epochs": statistics.mean(float(row["dice"]) for row in rows[-10:]),
        }
    facts = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    known = {name: facts[name] for name in ("python", "torch", "cpu", "gpu", "commit")}
    return {
        "run": run.name,
        "images": images,
        "papers_dice": paper,
        "command": f"ringfence {facts['command'].partition(' ')[2]}",  # however it was called
        "environment": known,
        "methods": methods,
    }


def until(rows: list[dict[str, str]], dice: float) -> float | None:
    """Seconds of training and validation until an epoch had that DSC; None where none did."""
    passed = 0.0
    for row in rows:
        passed += float(row["seconds_train"]) + float(row["seconds_validation"])
        if float(row["dice"]) >= dice:
            return passed
    return None


def as_markdown(record: dict[str, Any]) -> str:
    """As tables."""
    lines: list[str] = []
    for run in record["runs"]:
        lines += [
            f"**{run['run']}**, {run['images']} training images (`{run['command']}`):",
            "",
            f"| method | epochs | images/s | epoch | validation | all epochs | until DSC {run['papers_dice']} "
            "(the paper's barrier) | DSC, mean of the last 10 |",
            "|---" * 8 + "|",
        ]
        lines += [
            f"| {name} | {one['epochs']} | {one['images_a_second']:,.0f} | {one['seconds_of_an_epoch']:.3f} s "
            f"| {one['seconds_of_a_validation']:.3f} s | {one['seconds']:.1f} s "
            f"| {shown(one['seconds_to_the_papers_dice'])} | {one['dice_last_epochs']:.3f} |"
            for name, one in run["methods"].items()
        ]
        if len(run["methods"]) > 1:
            train, whole = (
                sum(one[key] for one in run["methods"].values()) for key in ("seconds_of_training", "seconds")
            )
            lines.append(f"| all | | | | | {whole:.1f} s, {train:.1f} s without validations | | |")
        lines.append("")
    facts = record["environment"]
    lines.append(f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}.")
    return "\n".join(lines) + "\n"


def shown(seconds: float | None) -> str:
    """Seconds, or that there are none."""
    return "–" if seconds is None else f"{seconds:.1f} s"


if __name__ == "__main__":
    main()
