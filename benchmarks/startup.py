"""From the command to the first step of training: `ringfence train` on a GPU, several times in a row.

    python benchmarks/startup.py prepared/promise12 --preset promise12 --out results/speed/startup

The first run may have to compile kernels and read packages from the disk; the later ones find both in caches. A
child process runs the command as it is, and notes when each stage is over, up to its first step's loss. Before and
after that, fresh processes import single packages as anybody does: what no command can be faster than.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ringfence.environment import commit, environment

STAMPED = Path(__file__).with_name("stamped_train.py")
ALONE = ("numpy", "torch", "pytorch_lightning", "monai")


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared")
    parser.add_argument("--preset", default="promise12")
    parser.add_argument(
        "--methods", nargs="+", default=["log_barrier", "log_barrier", "log_barrier", "full_supervision"]
    )
    parser.add_argument("--alone", nargs="+", default=list(ALONE), help="packages whose import is timed alone")
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="options of `ringfence train`; last")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    alone = {package: [import_seconds(package)] for package in options.alone}
    runs = []
    for method in options.methods:
        runs.append(stages(options.prepared, options.preset, method, options.train))
        print(method, runs[-1]["seconds"], runs[-1]["stages"], flush=True)
    for package, measured in alone.items():
        measured.append(import_seconds(package))
    record: dict[str, Any] = {
        "command": f"python benchmarks/startup.py {options.prepared} --preset {options.preset} --methods "
        + " ".join(
            [*options.methods, "--alone", *options.alone, *(["--train", *options.train] if options.train else [])]
        ),
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "imports": alone,
        "runs": runs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def import_seconds(package: str) -> float:
    """A process that imports a package and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=True)
    return time.perf_counter() - began


def stages(prepared: str, preset: str, method: str, more: list[str]) -> dict[str, Any]:
    """Seconds from the start of the process to the end of each stage, the last of them the first step."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["train", preset, "--data.prepared", prepared, "--method", method, "--training.epochs", "1"]
        child = subprocess.run(
            [sys.executable, str(STAMPED), *command, "--out", f"{folder}/run", *more],
            env={**os.environ, "BEGAN": repr(time.time())},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [line.split(maxsplit=2) for line in child.stdout.splitlines() if line.startswith("STAMP ")]
    found = {what: float(when) for _, when, what in lines}
    if child.returncode or "first step" not in found:
        raise SystemExit(f"the training failed:\n{child.stderr[-2000:]}")
    counts = next(line.split() for line in child.stdout.splitlines() if line.startswith("COMPILER "))
    return {
        "method": method,
        "seconds": found["first step"],
        "stages": found,
        "compiler imported": counts[1] == "True",
        "modules": int(counts[3]),
    }


def as_markdown(record: dict[str, Any]) -> str:
    """As tables."""
    facts, runs = record["environment"], record["runs"]
    lines = [
        "From the command to the first step, one run after another:",
        "",
        "| run | method | seconds | modules imported | torch's compiler among them |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {number} | {run['method']} | {run['seconds']:.1f} | {run['modules']:,} | "
        f"{'yes' if run['compiler imported'] else 'no'} |"
        for number, run in enumerate(runs, 1)
    ]
    lines += ["", "Where the seconds go, and when each stage was over:", ""]
    lines += ["| stage | " + " | ".join(f"run {number}" for number in range(1, 1 + len(runs))) + " |"]
    lines += ["|---" * (1 + len(runs)) + "|"]
    before = [0.0] * len(runs)
    for what in runs[0]["stages"]:
        ends = [run["stages"].get(what, before[place]) for place, run in enumerate(runs)]
        cells = [f"{end - start:.2f} ({end:.1f})" for start, end in zip(before, ends, strict=True)]
        lines.append(f"| {what} | {' | '.join(cells)} |")
        before = ends
    lines += ["", "A fresh process that only imports, before these runs and after them:", ""]
    lines += ["| package | before | after |", "|---|---|---|"]
    lines += [f"| {package} | {one:.1f} s | {two:.1f} s |" for package, (one, two) in record["imports"].items()]
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
