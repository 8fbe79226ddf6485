"""What `train` and `compare` share: everything is checked before a folder is made, and a training is kept whole."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from ringfence.files import WriteFailed, checksum, remove
from ringfence.hints import listed
from ringfence.options import inside
from ringfence.weak.experiments.outputs import keep_outputs
from ringfence.weak.experiments.settings import BoxSettings, ExperimentSettings
from ringfence.weak.networks.build import Tempered, build_network, check_network
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.ranks.world import World, from_all, is_first, met, ranks
from ringfence.weak.tasks.boxes import box_task, prepared_of
from ringfence.weak.tasks.file_boxes import boxes_file
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.accelerator import choose_accelerator
from ringfence.weak.training.divergence import FILE as DIVERGED
from ringfence.weak.training.fit import (
    ALONE,
    FitSettings,
    fit,
    network_arguments,
    title,
)
from ringfence.weak.training.loading.streaming import check_stream, memory_words
from ringfence.weak.training.methods import Setup
from ringfence.weak.training.optimisers import check_optimiser
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import CONFIG, OneRun
from ringfence.weak.training.settings import TrainingSettings

PATIENCE: Final = 2.0
"""Seconds without a bar."""
ALMOST_FULL: Final = 1_000_000
"""Bytes: with less than that left, a failed write is the disk's."""


def train_one(
    settings: FitSettings,
    task: Task,
    method: str,
    seed: int,
    run: OneRun,
    bars: ProgressBars,
    world: World = ALONE,
) -> None:
    """Train one method with one seed into its folder, and write what came out; of several ranks, the first does."""
    setup = Setup(task.count, settings.training.length, tuple(task.constraints))
    for remark in settings.method_settings[method].remarks(setup):
        bars.say(f"{method}: {remark}")
    module, history = fit(settings, task, method, seed, run, bars, world)
    last = history.rows[-1]
    if not world.first:
        from_all(None)  # that all is written
        return
    keep_outputs(module, task, settings, method, run.path)
    result = {"method": method, "seed": seed, "epochs": settings.training.length, "last_epoch": last}
    run.finish(result, settings.training.keep_checkpoint)
    seconds = sum(row["seconds_train"] + row["seconds_validation"] for row in history.rows)
    dice = last.get("dice", math.nan)
    score = "?" if math.isnan(dice) else f"{dice:.3f}"
    epochs = settings.training.length
    bars.say(
        f"{title(seed, method):<32} DSC {score}, constraints satisfied {last['satisfaction']:.1%}, "
        f"{epochs} epoch{'s' * (epochs > 1)} in {seconds:.0f} s"
    )
    if module.remark:
        bars.say(f"{title(seed, method)}: {module.remark}")
    remove([run.path / DIVERGED])  # of an earlier attempt, which this one has got past
    from_all(None)


def checked_box_task(
    settings: BoxSettings, methods: Sequence[str], console: Console | None = None
) -> tuple[Task, PreparedSet]:
    """The task, after refusing what cannot be; and the set that it was read from.

    Args:
        settings: of the training.
        methods: those that will be trained.
        console: where a bar is shown if reading takes long; default: nowhere.
    """
    check_methods(settings, methods)
    if settings.data.patch is None and not settings.data.volumes and "slices" in settings.augment.flip:
        raise ValueError(
            "augment.flip: slices can be flipped in volumes alone: train on these (data.volumes true, or "
            "data.patch), or leave slices out"
        )
    prepared = prepared_of(settings.data)
    if "full_supervision" in methods:
        unmasked = [case.name for case in prepared.of("train") if not case.masked]
        if unmasked:
            raise ValueError(
                f"full_supervision learns from masks, and {listed(unmasked)} has none: leave that method out"
            )
    with _reading(console or Console(quiet=True)) as each:
        task = box_task(settings.data, settings.constraints, prepared, each)
    check_stream(task, settings.training.batch_size)
    return task, prepared


@contextmanager
def _reading(console: Console) -> Iterator[Callable[[int], None]]:
    """What to call after each case, with the number of them: a bar appears when that takes longer than 2 s."""
    began, bar = time.monotonic(), Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("reading and checking the set", total=None)

    def each(total: int) -> None:
        bar.update(task, total=total, advance=1)
        if time.monotonic() - began > PATIENCE and not bar.live.is_started and not console.quiet:
            bar.start()

    try:
        yield each
    finally:
        bar.stop()


def check_methods(settings: ExperimentSettings, methods: Sequence[str]) -> None:
    """Each method checks its own numbers, and names them."""
    for method in methods:
        with inside(f"{method}: "):
            own = settings.method_settings[method]
            own.make(Setup(1, settings.training.length, list(getattr(own, "weights", {}))))


def checked_network(settings: FitSettings, task: Task) -> nn.Module:
    """The network, if it fits the task's images, and if the optimiser and the device are there."""
    training = settings.training
    choose_accelerator(training.device)
    check_optimiser(settings.optimiser, settings.schedule, training.lr, training.length)
    network = build_network(settings.network.class_path, network_arguments(settings, task))
    check_network(network, torch.zeros(len(task.channels), *task.space), 1 + len(task.classes))
    Tempered(network, len(task.classes), training.prior)  # refuses a prior that cannot be
    return network


def about_data(settings: BoxSettings, task: Task, prepared: PreparedSet) -> dict[str, str]:
    """The name of a prepared set, and checksums of its manifest and of the files of annotations."""
    about = {"task": prepared.name, "manifest": prepared.manifest_sha256}
    if (boxes := boxes_file(settings.data, prepared)) is not None:
        about["boxes"] = checksum(boxes)
    for name, constraint in task.constraints.items():
        for number, file in enumerate(constraint.files):
            about[name if number == 0 else f"{name} {number}"] = checksum(file)
    return about


def skipped(run: OneRun, training: TrainingSettings) -> bool:
    """Whether a training is finished already, as rank 0 sees it; a checkpoint that a kill left is removed."""
    finished = is_first() and run.finished_after(training.length)
    if finished and not training.keep_checkpoint:
        run.tidy()
    return bool(from_all(finished)[0])


def begins(settings: FitSettings, task: Task) -> str:
    """What a training is about to do, in a line."""
    size, count = " × ".join(map(str, task.space)), task.count
    return (
        f"{count} training image{'s' * (count != 1)}, {size}, {settings.training.length} "
        f"epoch{'s' * (settings.training.length != 1)} on "
        f"{choose_accelerator(settings.training.device)}{_processes()}; "
        f"constraints: {', '.join(task.constraints)}; {memory_words(task, settings.training.batch_size)}"
    )


def _processes() -> str:
    return f" in {ranks()} processes" if met() else ""


def say_remarks(task: Task, bars: ProgressBars) -> None:
    """What looks odd in the labels; and that there is no mask to judge by, where that is so."""
    for remark in task.remarks:
        bars.say(remark)
    case = task.validation.get("case")
    if case is not None and not bool((case >= 0).any()):
        bars.say("No case for validation has a mask: constraints are counted, and there is no Dice.")


def console_for(progress: bool, console: Console | None) -> Console:
    """Where progress is shown, if it is."""
    return (console or Console(stderr=True)) if progress and is_first() else Console(quiet=True)


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """What could not be written, with how to go on; the writers of others do not say that a disk is full."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        full = path.exists() and shutil.disk_usage(path).free < ALMOST_FULL
        if not (path / CONFIG).exists() or not (full or isinstance(error, WriteFailed)):
            raise
        what = str(error) if isinstance(error, WriteFailed) else f"the disk of {path} is full; free some room"
        raise OSError(f"{what}. Every finished epoch is kept: go on with --resume --out {path}") from error
