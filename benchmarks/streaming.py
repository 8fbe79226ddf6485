"""Streaming: images a second over those of a set in memory, and the memory that sets larger than it take.

    python benchmarks/streaming.py --out results/speed/streaming
    python benchmarks/streaming.py --device cuda --parts speed --workers 2 4 8 --out results/speed/streaming-cuda

Speed: the same generated set is trained on from memory and from the disk, by interleaved trainings; the ratio is of
the fastest epochs, median over the rounds. Loader: how many images a second it gives to nobody in particular.
Memory: a set as large as the limit (--memory) and one of ten times that are streamed for an epoch by `ringfence
train`; the peak is of its process and of those that read for it (proportional set size: what they share counts
once), torch and all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytorch_lightning as pl

from ringfence import memory, weak
from ringfence.environment import commit, environment
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing
from ringfence.weak.prepared.case_file import write_case
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.fit import make_callback, make_data, make_module, quiet_lightning
from ringfence.weak.training.history import History

POLL: Final = 0.2
"""Seconds between looks at the memory."""
NETWORK: Final = "monai.networks.nets.UNet"
SMALL: Final = {"channels": [4, 8], "strides": [2]}
"""A network for two cores, which leaves the loader little time to hide in."""


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--parts", nargs="+", choices=("speed", "memory"), default=["speed", "memory"])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--slices", type=int, default=1024, help="of the set whose speed is measured")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", default="200MB", help="the memory that sets may take, where it is bounded")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/streaming.py --device {options.device} --parts {' '.join(options.parts)} "
        f"--workers {' '.join(map(str, options.workers))} --slices {options.slices} --side {options.side} "
        f"--batch-size {options.batch_size} --rounds {options.rounds} --limit {options.limit}",
        "seed": 0,
        "environment": environment() | {"commit": commit()},
    }
    if "speed" in options.parts:
        record["speed"] = speed(options)
    if "memory" in options.parts:
        record["memory"] = bounded(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def generate(folder: Path, slices: int, side: int, depth: int = 32) -> PreparedSet:
    """Noise with an ellipsoid in it: a set of so many slices to train on, and a case for validation."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    grid = np.indices((depth, side, side), dtype=np.float32)
    cases = []
    for number in range(-(-slices // depth) + 1):
        centre = [length * random.uniform(0.4, 0.6) for length in (depth, side, side)]
        radii = (0.4 * depth, 0.2 * side, 0.25 * side)
        mask = sum(((grid[axis] - centre[axis]) / radii[axis]) ** 2 for axis in range(3)) < 1
        image = random.integers(0, 128, (depth, 1, side, side), np.uint8) + 100 * mask[:, None].astype(np.uint8)
        done = write_case(folder, f"case{number}", image, mask.astype(np.uint8))
        split = "train" if number else "validation"
        cases.append(Case(f"case{number}", split, done.file, done.sha256, (depth, side, side), None, True))  # type: ignore[arg-type]
    made = PreparedSet(folder, "generated", Preprocessing((side, side)), ("grey",), ("ellipsoid",), tuple(cases))
    made.write_manifest()
    return made


def settings_of(options: argparse.Namespace, folder: Path, **changes: Any) -> TrainSettings:
    """The preset for boxes; on a CPU, with a network of a few weights."""
    changed = {
        "data.prepared": str(folder),
        "training.epochs": 3,
        "training.batch_size": options.batch_size,
        "training.device": options.device,
        **changes,
    }
    if options.device == "cpu":
        changed |= {"network.class_path": NETWORK, "network.init_args": SMALL}
    return weak.from_preset(TrainSettings, "boxes", changed)


# Speed


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Images a second, streamed over resident, by the number of workers."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "set"
        generate(folder, options.slices, options.side)
        plain = settings_of(options, folder, **{"data.streamed": "never"})
        streamed = [
            replace(plain, data=replace(plain.data, streamed="always", workers=workers))
            for workers in options.workers
        ]
        rounds = [[images_a_second(one) for one in (plain, *streamed)] for _ in range(options.rounds)]
        loaders = {str(one.data.workers): loader_images_a_second(one) for one in streamed}
    ratios = {
        str(workers): statistics.median(one[1 + number] / one[0] for one in rounds)
        for number, workers in enumerate(options.workers)
    }
    print(ratios, flush=True)
    return {
        "resident_images_a_second": statistics.median(one[0] for one in rounds)
        if options.device == "cuda"
        else "absolute numbers only on a GPU",
        "streamed_over_resident_by_workers": ratios,
        "loader_images_a_second_by_workers": loaders,
        "slices": options.slices,
        "side": options.side,
        "batch_size": options.batch_size,
    }


def images_a_second(settings: TrainSettings) -> float:
    """Of the fastest of three epochs of training."""
    cuda = settings.training.device == "cuda"
    task = box_task(settings.data, settings.constraints)
    module = make_module(settings, task, settings.method_name, seed=0)
    with tempfile.TemporaryDirectory() as folder, quiet_lightning():
        history = History(Path(folder))
        trainer = pl.Trainer(
            accelerator=settings.training.device,
            devices=1,
            precision="bf16-mixed" if cuda else "32-true",
            max_epochs=settings.training.length,
            callbacks=[make_callback(settings.method_name), history],
            logger=False,
            benchmark=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, datamodule=make_data(settings, task, module, seed=0))
    found = task.count / min(row["seconds_train"] for row in history.rows)
    print(f"{settings.data.streamed}, {settings.data.workers} workers: {found:.0f} images/s", flush=True)
    return found


def loader_images_a_second(settings: TrainSettings) -> float:
    """What the loader alone gives, of the fastest of three epochs: the first starts its processes."""
    task = box_task(settings.data, settings.constraints)
    data, seconds = weak.SegmentationData(task, settings.training.batch_size), []
    for _ in range(3):
        began = time.perf_counter()
        for _ in data.train_dataloader():
            pass
        seconds.append(time.perf_counter() - began)
    print(
        f"loader, {settings.data.workers} workers: {task.count / min(seconds):.0f} images/s, first epoch "
        f"{seconds[0] - min(seconds):.1f} s longer",
        flush=True,
    )
    return task.count / min(seconds)


# Memory


def bounded(options: argparse.Namespace) -> dict[str, Any]:
    """The peak of memory while a set as large as the limit is streamed, and one of ten times that."""
    limit, peaks = memory.parsed(options.limit), {}
    for times in (1, 10):
        with tempfile.TemporaryDirectory() as place:
            prepared = generate(Path(place) / "set", times * limit // (2 * options.side**2), options.side)
            stored = prepared.nbytes
            peaks[str(times)] = {"set": stored, "peak": _peak_of_child(options, prepared.path)}
        print(times, peaks[str(times)], flush=True)
    return {"limit": limit, "by_times_the_limit": peaks}


def _peak_of_child(options: argparse.Namespace, folder: Path) -> int:
    """Train an epoch by the command, which streams the set because it does not fit, and watch its memory."""
    settings = {
        "data.prepared": folder,
        "training.epochs": 1,
        "training.batch_size": options.batch_size,
        "training.device": options.device,
        "out": folder.with_name("run"),
    }
    if options.device == "cpu":
        settings |= {"network.class_path": NETWORK, "network.init_args": json.dumps(SMALL)}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "ringfence", "--memory", options.limit, "train", "boxes", *words]
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_proportional, _family(process.pid))))
        time.sleep(POLL)
    if process.returncode:
        raise SystemExit("the training failed")
    return peak


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        try:
            text = Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii")
        except OSError:
            continue
        found += [int(number) for number in text.split()]
    return found


def _proportional(pid: int) -> int:
    """Bytes of a process, what it shares divided among those who share it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def as_markdown(record: dict[str, Any]) -> str:
    """The ratios and peaks as tables."""
    facts, lines = record["environment"], []
    if "speed" in record:
        found = record["speed"]
        rate = found["resident_images_a_second"]
        lines += [
            f"Images a second while training, streamed over resident: {found['slices']} slices of {found['side']} "
            f"× {found['side']}, batches of {found['batch_size']}"
            + (f" (resident: {rate:.0f} images/s)." if isinstance(rate, float) else "."),
            "",
            "| workers | streamed over resident | the loader alone, images/s |",
            "|---|---|---|",
            *(
                f"| {workers} | {ratio:.2f} | {found['loader_images_a_second_by_workers'][workers]:.0f} |"
                for workers, ratio in found["streamed_over_resident_by_workers"].items()
            ),
            "",
        ]
    if "memory" in record:
        found = record["memory"]
        lines += [
            f"An epoch, streamed, where sets may take {memory.in_words(found['limit'])} of memory (2 workers; peak "
            "of all processes together, torch included):",
            "",
            "| set, times the limit | on the disk | peak of memory |",
            "|---|---|---|",
            *(
                f"| {times} | {memory.in_words(one['set'])} | {memory.in_words(one['peak'])} |"
                for times, one in found["by_times_the_limit"].items()
            ),
            "",
        ]
    machine = facts["cpu"] if facts["gpu"] == "none" else facts["gpu"]
    lines.append(f"`{record['command']}`, seed 0, torch {facts['torch']}, {machine}, commit {facts['commit']}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
