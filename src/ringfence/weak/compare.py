"""One task, every method: trained alike, measured alike, each in a folder of its own, and resumable."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import torch
from rich.console import Console

from ringfence.weak.networks import build_network, check_network
from ringfence.weak.progress import ProgressBars
from ringfence.weak.run_folder import RunFolder, check_room, open_run_folder
from ringfence.weak.settings import METHODS, CompareSettings
from ringfence.weak.synthetic_task import CLASSES, synthetic_task
from ringfence.weak.training import PICTURES, choose_accelerator, make_fence, train

ALMOST_FULL: Final = 1_000_000
"""Bytes: with less than that left, a failed write is the disk's."""


def compare_synthetic(
    settings: CompareSettings, out: str | Path, *, resume: bool = False, console: Console | None = None
) -> RunFolder:
    """Train every method on every seed's two-disc images; metrics, predictions and weights go to ``out``.

    Args:
        settings: what to do; ``ringfence.weak.settings.SCALES`` has two to begin from.
        out: a new folder, or with ``resume`` that of an interrupted run.
        resume: go on where that run stopped.
        console: where progress is shown.

    Returns:
        The folder; ``ringfence.report.write_report`` makes tables and figures of it.
    """
    _check(settings)
    choose_accelerator(settings.training.device)
    network = build_network(settings.network.class_path, settings.network.init_args)
    probe = torch.zeros(1, settings.data.size, settings.data.size)
    check_network(network, probe, 1 + CLASSES)
    synthetic_task(
        replace(settings.data, train=1, validation=1), seed=0
    )  # impossible sizes are refused before a folder is made
    console = console or Console(stderr=True)
    trainings = [(seed, method) for seed in settings.seeds for method in settings.methods]
    begun = RunFolder(Path(out))
    left = sum(not (resume and begun.run(seed, method).finished) for seed, method in trainings)
    check_room(Path(out), _bytes_needed(settings, network, left))
    folder = open_run_folder(Path(out), asdict(settings), resume)
    task, drawn = None, None
    with ProgressBars(console, len(trainings), settings.training.epochs) as bars:
        for seed, method in trainings:
            run = folder.run(seed, method)
            if run.finished:
                bars.skip()
                continue
            if task is None or drawn != seed:
                task, drawn = synthetic_task(settings.data, seed), seed
            with _full_disk_named(folder.path):
                train(settings, task, method, seed, run, bars)
    return folder


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


def _check(settings: CompareSettings) -> None:
    """Refuse what cannot be, by name."""
    for method in settings.methods:
        if method not in METHODS:
            near = difflib.get_close_matches(method, METHODS, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ValueError(f"methods: there is no method '{method}'; {hint}There are: {', '.join(METHODS)}")
    for name in ("methods", "seeds"):
        values = getattr(settings, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} needs at least one, each once; got {values}")
    positive = {
        "data.size": settings.data.size,
        "data.train": settings.data.train,
        "data.validation": settings.data.validation,
        "data.size_slack": settings.data.size_slack,
        "training.epochs": settings.training.epochs,
        "training.batch_size": settings.training.batch_size,
        "training.lr": settings.training.lr,
    }
    if settings.data.centroid_slack is not None:
        positive["data.centroid_slack"] = settings.data.centroid_slack
    for method in settings.methods:
        positive[f"{method}.temperature"] = getattr(settings, method).temperature
        positive[f"{method}.final_temperature"] = getattr(settings, method).final_temperature
    for name, value in positive.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    prior = settings.training.prior
    if prior is not None and not 0.0 < prior < 1.0:
        raise ValueError(f"training.prior is a share between 0 and 1, got {prior}")
    for seed in settings.seeds:
        if not 0 <= seed < 2**31:
            raise ValueError(f"seeds must be from 0 to 2^31 - 1, got {seed}")
    for method in settings.methods:  # each method checks its own numbers, and names them
        try:
            make_fence(method, settings)
        except ValueError as error:
            raise ValueError(f"{method}: {error}") from error


def _bytes_needed(settings: CompareSettings, network: torch.nn.Module, trainings: int) -> int:
    weights = sum(int(tensor.nbytes) for tensor in network.state_dict().values())
    pictures = 3 * PICTURES * settings.data.size**2
    # a checkpoint holds the weights and Adam's two moments, and is written beside the one before
    return trainings * (weights + pictures) + (2 * 3 * weights if trainings else 0)
