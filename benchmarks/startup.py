"""From the command to the first step of training: `ringfence train` on a GPU, several times in a row.

    python benchmarks/startup.py prepared/promise12 --preset promise12 --out results/speed/startup

The first run may have to compile kernels and read packages from the disk; the later ones find both in caches. A
child process runs the command as it is, and notes when its first step's loss is there.
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

CHILD = """
import os, sys, time
began = float(os.environ["BEGAN"])
from ringfence.cli import main


def note():
    import torch
    from ringfence.weak.training.module import WeakSegmentation
    plain = WeakSegmentation.training_step
    def step(self, batch, number):
        loss = plain(self, batch, number)
        if not hasattr(step, "done"):
            step.done = True
            if loss.is_cuda:
                torch.cuda.synchronize()
            print(f"FIRST {time.time() - began:.3f}", flush=True)
        return loss
    WeakSegmentation.training_step = step

import ringfence.cli.quick_start as quick
plain_import = quick.import_lightning

def import_and_note(device, what):
    plain_import(device, what)
    note()

import ringfence.cli.train as command
command.import_lightning = import_and_note
sys.exit(main())
"""


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared")
    parser.add_argument("--preset", default="promise12")
    parser.add_argument(
        "--methods", nargs="+", default=["log_barrier", "log_barrier", "log_barrier", "full_supervision"]
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs = [
        {"method": method, "seconds": seconds(options.prepared, options.preset, method)}
        for method in options.methods
    ]
    record: dict[str, Any] = {
        "command": f"python benchmarks/startup.py {options.prepared} --preset {options.preset} --methods "
        f"{' '.join(options.methods)}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
        "runs": runs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def seconds(prepared: str, preset: str, method: str) -> float:
    """From the start of the process until the first step has its loss."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["train", preset, "--data.prepared", prepared, "--method", method, "--training.epochs", "1"]
        child = subprocess.run(
            [sys.executable, "-c", CHILD, *command, "--out", f"{folder}/run"],
            env={**os.environ, "BEGAN": repr(time.time())},
            capture_output=True,
            text=True,
            check=False,
        )
    found = [line for line in child.stdout.splitlines() if line.startswith("FIRST ")]
    if child.returncode or not found:
        raise SystemExit(f"the training failed:\n{child.stderr[-2000:]}")
    return float(found[0].split()[1])


def as_markdown(record: dict[str, Any]) -> str:
    """As a table."""
    facts = record["environment"]
    lines = [
        "From the command to the first step, one run after another:",
        "",
        "| run | method | seconds |",
        "|---|---|---|",
    ]
    lines += [
        f"| {number} | {run['method']} | {run['seconds']:.1f} |" for number, run in enumerate(record["runs"], 1)
    ]
    lines += ["", f"`{record['command']}`, seed 0, torch {facts['torch']}, {facts['gpu']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
