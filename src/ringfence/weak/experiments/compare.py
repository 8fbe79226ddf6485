"""One task, every method: trained alike, measured alike, each in a folder of its own, and resumable."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from torch import nn

from ringfence.files import check_room, checksum
from ringfence.weak.inference.model_file import MODEL
from ringfence.weak.prepared.prepared_set import MANIFEST, read_prepared
from ringfence.weak.tasks.boxes import LIMITS, BoxTask, box_task
from ringfence.weak.tasks.discs import synthetic_task
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.box_settings import BoxCompareSettings, BoxSettings, TrainSettings
from ringfence.weak.training.fit import PICTURES, choose_accelerator, make_fence, network_arguments, train
from ringfence.weak.training.flips import mirror_axes
from ringfence.weak.training.networks import Tempered, build_network, check_network
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun, RunFolder, run_in
from ringfence.weak.training.settings import METHODS, CompareSettings, ExperimentSettings, SyntheticSettings

ALMOST_FULL: Final = 1_000_000
"""Bytes: with less than that left, a failed write is the disk's."""


def compare_synthetic(
    settings: SyntheticSettings, out: str | Path, *, resume: bool = False, console: Console | None = None
) -> RunFolder:
    """Train every method on every seed's two-disc images; metrics, predictions and models go to ``out``.

    Args:
        settings: what to do; ``ringfence.weak.training.settings.SCALES`` has two to begin from.
        out: a new folder, or with ``resume`` that of an interrupted run.
        resume: go on where that run stopped.
        console: where progress is shown.

    Returns:
        The folder; ``ringfence.report.write_report`` makes tables and figures of it.
    """
    data = settings.data
    _check(
        settings,
        settings.methods,
        settings.seeds,
        {
            "data.size": data.size,
            "data.train": data.train,
            "data.validation": data.validation,
            "data.size_slack": data.size_slack,
            "data.centroid_slack": 1.0 if data.centroid_slack is None else data.centroid_slack,
        },
    )
    _check_weights(settings, settings.methods, ("size", "centroid"))
    # impossible sizes are refused before a folder is made
    example = synthetic_task(replace(data, train=1, validation=1), seed=0)
    about = {"task": "synthetic"}
    return _compare(about, settings, out, example, lambda seed: synthetic_task(data, seed), resume, console)


def compare_boxes(
    settings: BoxCompareSettings, out: str | Path, *, resume: bool = False, console: Console | None = None
) -> RunFolder:
    """Train every method with every seed from the boxes of a prepared set; arguments as ``compare_synthetic``'s."""
    task = checked_box_task(settings, settings.methods, settings.seeds)
    return _compare(_about(settings), settings, out, task, lambda seed: task, resume, console)


def train_on_boxes(
    settings: TrainSettings, out: str | Path, *, resume: bool = False, console: Console | None = None
) -> Path:
    """Train one model from the boxes of a prepared set; arguments as ``compare_synthetic``'s.

    Returns:
        The model's file, for ``ringfence predict``.
    """
    task = checked_box_task(settings, [settings.method], [settings.seed])
    network = _checked_network(settings, task)
    run = OneRun(Path(out))
    check_room(Path(out), _bytes_needed(task, network, int(not run.finished)))
    with (
        run_in(Path(out), asdict(settings), resume, _about(settings)),
        ProgressBars(console or Console(stderr=True), 1, settings.training.epochs) as bars,
    ):
        _say_unjudged(task, bars)
        if run.finished:
            bars.skip()
        else:
            with _full_disk_named(run.path):
                train(settings, task, settings.method, settings.seed, run, bars)
    return run.path / MODEL


def checked_box_task(settings: BoxSettings, methods: Sequence[str], seeds: Sequence[int]) -> BoxTask:
    """The task, after refusing what cannot be."""
    limits, augment = settings.limits, settings.augment
    positive = {"limits.strip_width": limits.strip_width, "limits.size_high": limits.size_high}
    _check(settings, methods, seeds, positive)
    shares = {
        f"augment.{name}": getattr(augment, name) for name in ("shift", "scale", "intensity", "bias", "noise")
    }
    shares |= {"limits.size_low": limits.size_low or 0.0, "limits.size_slack": limits.size_slack or 0.0}
    try:
        mirror_axes(augment.flip)
    except ValueError as error:
        raise ValueError(f"augment.flip: {error}") from None
    for name, share in shares.items():
        if not 0.0 <= share < 1.0:
            raise ValueError(f"{name} is a share from 0 to below 1, got {share}")
    if limits.size_low is not None and limits.size_low > limits.size_high:
        raise ValueError(f"limits.size_low {limits.size_low} is above limits.size_high {limits.size_high}")
    if not limits.box and settings.data.sizes is None and limits.size_slack is limits.centroid_slack is None:
        raise ValueError(
            "there is no limit: with limits.box false, give limits.size_slack, centroid_slack or data.sizes"
        )
    if limits.centroid_slack is not None and not limits.centroid_slack > 0.0:
        raise ValueError(f"limits.centroid_slack must be above 0, got {limits.centroid_slack}")
    if settings.data.margin < 0:
        raise ValueError(f"data.margin must not be negative, got {settings.data.margin}")
    if not settings.data.prepared:
        raise ValueError("data.prepared: which prepared set? Name the folder that `ringfence prepare` wrote")
    _check_weights(settings, methods, LIMITS)
    if "full_supervision" in methods:
        unmasked = [case.name for case in read_prepared(settings.data.prepared).of("train") if not case.masked]
        if unmasked:
            raise ValueError(
                f"full_supervision learns from masks, and {', '.join(unmasked[:5])} has none: leave that method out"
            )
    return box_task(settings)


def _about(settings: BoxSettings) -> dict[str, str]:
    """The name of a prepared set, and checksums of its manifest and of the files of weak labels."""
    prepared = read_prepared(settings.data.prepared)
    files = {"manifest": prepared.path / MANIFEST, "boxes": settings.data.boxes, "sizes": settings.data.sizes}
    return {"task": prepared.name} | {name: checksum(Path(file)) for name, file in files.items() if file}


def _compare(
    about: dict[str, str],
    settings: CompareSettings,
    out: str | Path,
    example: Task,
    task_of: Callable[[int], Task],
    resume: bool,
    console: Console | None,
) -> RunFolder:
    """Check everything, make the folder, train what is not trained yet.

    Args:
        about: the task's name, and what its data are known by.
        settings: of all trainings.
        out: the folder.
        example: a task like those to come, to check the network by.
        task_of: from a seed to its task.
        resume: go on in that folder.
        console: where progress is shown.
    """
    network = _checked_network(settings, example)
    console = console or Console(stderr=True)
    trainings = [(seed, method) for seed in settings.seeds for method in settings.methods]
    begun = RunFolder(Path(out))
    left = sum(not (resume and begun.run(seed, method).finished) for seed, method in trainings)
    check_room(Path(out), _bytes_needed(example, network, left))
    task, drawn = None, None
    with (
        run_in(Path(out), asdict(settings), resume, about) as folder,
        ProgressBars(console, len(trainings), settings.training.epochs) as bars,
    ):
        _say_unjudged(example, bars)
        for seed, method in trainings:
            run = folder.run(seed, method)
            if run.finished:
                bars.skip()
                continue
            if task is None or drawn != seed:
                task, drawn = task_of(seed), seed
            with _full_disk_named(folder.path):
                train(settings, task, method, seed, run, bars)
    return folder


def _say_unjudged(task: Task, bars: ProgressBars) -> None:
    case = task.validation.get("case")
    if case is not None and not bool((case >= 0).any()):
        bars.say("No case for validation has a mask: limits are counted, and there is no Dice.")


def _checked_network(settings: ExperimentSettings, task: Task) -> nn.Module:
    choose_accelerator(settings.training.device)
    network = build_network(settings.network.class_path, network_arguments(settings, task))
    check_network(network, torch.zeros(len(task.channels), *task.space), 1 + len(task.classes))
    Tempered(network, len(task.classes), settings.training.prior)  # refuses a prior that cannot be
    return network


@contextmanager
def _full_disk_named(path: Path) -> Iterator[None]:
    """torch says "unexpected pos" and Lightning the same when a disk is full: say what it is."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        if shutil.disk_usage(path).free < ALMOST_FULL:
            raise OSError(
                f"the disk of {path} is full; free some room, then go on with --resume --out {path}"
            ) from error
        raise


def _check(
    settings: ExperimentSettings, methods: Sequence[str], seeds: Sequence[int], positive: dict[str, float]
) -> None:
    """Refuse what cannot be, by name; ``positive`` has the task's own numbers that must be above 0."""
    for method in methods:
        if method not in METHODS:
            near = difflib.get_close_matches(method, METHODS, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ValueError(f"there is no method '{method}'; {hint}There are: {', '.join(METHODS)}")
    for name, values in (("methods", methods), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} needs at least one, each once; got {values}")
    positive = positive | {
        "training.epochs": settings.training.epochs,
        "training.batch_size": settings.training.batch_size,
        "training.lr": settings.training.lr,
    }
    for method in methods:
        positive[f"{method}.temperature"] = getattr(settings, method).temperature
        positive[f"{method}.final_temperature"] = getattr(settings, method).final_temperature
    for name, value in positive.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    if settings.full_supervision.dice < 0.0:
        raise ValueError(f"full_supervision.dice must not be negative, got {settings.full_supervision.dice}")
    prior = settings.training.prior
    if prior is not None and not 0.0 < prior < 1.0:
        raise ValueError(f"training.prior is a share between 0 and 1, got {prior}")
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise ValueError(f"seeds must be from 0 to 2^31 - 1, got {seed}")
    for method in methods:  # each method checks its own numbers, and names them
        try:
            own = getattr(settings, method)
            make_fence(method, settings, samples=1, names=list(getattr(own, "weights", {})))
        except ValueError as error:
            raise ValueError(f"{method}: {error}") from error


def _check_weights(settings: ExperimentSettings, methods: Sequence[str], known: Sequence[str]) -> None:
    for method in methods:
        for name in getattr(getattr(settings, method), "weights", {}):
            if name not in known:
                raise ValueError(f"{method}.weights: there is no limit '{name}'; there are: {', '.join(known)}")


def _bytes_needed(task: Task, network: nn.Module, trainings: int) -> int:
    weights = sum(int(tensor.nbytes) for tensor in network.state_dict().values())
    pictures = 3 * PICTURES * task.space[-1] * task.space[-2]
    # a checkpoint holds the weights and Adam's two moments, and is written beside the one before
    return trainings * (weights + pictures) + (2 * 3 * weights if trainings else 0)
