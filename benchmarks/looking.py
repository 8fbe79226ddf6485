"""What scripts share that look at trained models: opening a run, and a record that is written after each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringfence import weak
from ringfence.environment import commit, environment
from ringfence.weak.inference.model_file import ModelCard, read_model
from ringfence.weak.networks.build import Tempered
from ringfence.weak.tasks.task import Task

Record = dict[str, Any]


class Opened(NamedTuple):
    """A training: its settings, task, and network, whose levels are taken away; they are in its card."""

    settings: weak.TrainSettings
    task: Task
    network: Tempered
    card: ModelCard


def opened(run: Path) -> Opened:
    """The training in a folder."""
    settings = weak.from_file(weak.TrainSettings, run / "config.yaml")
    task = weak.box_task(settings.data, settings.constraints)
    network, card = read_model(run / "model.safetensors")
    network.level([0.0] * len(task.classes))
    return Opened(settings, task, network, card)


def about(run: Path, settings: weak.TrainSettings) -> Record:
    """Which training it is."""
    return {
        "run": run.name,
        "set": Path(str(settings.data.prepared)).name,
        "fold": settings.data.fold,
        "method": settings.method,
        "seed": settings.seed,
        "trained_at": json.loads((run / "environment.json").read_text(encoding="utf-8")).get("commit"),
    }


def look_at(
    runs: Sequence[Path],
    looked_at: Callable[[Path], Record],
    as_markdown: Callable[[Record], str],
    command: str,
    out: Path,
    **more: Any,
) -> None:
    """Look at each training, and write OUT.json and OUT.md after it.

    Args:
        runs: their folders.
        looked_at: what is found of one.
        as_markdown: a record's table.
        command: the script and its options, but for --out.
        out: where to.
        **more: of the record.
    """
    record: Record = {
        "command": command,
        **more,
        "seed": [],
        "environment": environment() | {"commit": commit()},
        "runs": [],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    for run in runs:
        record["runs"].append(looked_at(run))
        record["seed"] = sorted({one["seed"] for one in record["runs"]})
        out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")
