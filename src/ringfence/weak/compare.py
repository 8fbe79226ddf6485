"""One task, every method: trained alike, measured alike, each in a folder of its own, and resumable."""

from __future__ import annotations

import difflib
import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from rich.console import Console

from ringfence import AugmentedLagrangian, Lagrangian, LogBarrier, Method, Penalty, ReLULagrangian
from ringfence.extras import require
from ringfence.lightning import FenceCallback
from ringfence.weak.history import History
from ringfence.weak.module import WeakSegmentation
from ringfence.weak.networks import Primed, build_network, check_network
from ringfence.weak.progress import EpochBar, ProgressBars
from ringfence.weak.run_folder import OneRun, RunFolder, open_run_folder
from ringfence.weak.settings import METHODS, CompareSettings
from ringfence.weak.synthetic_task import CLASSES, SyntheticTask, synthetic_task

PICTURES = 5
"""How many validation images are kept with their predictions."""


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
    accelerator = _accelerator(settings.training.device)
    network = build_network(settings.network.class_path, settings.network.init_args)
    probe = torch.zeros(1, settings.data.size, settings.data.size)
    check_network(network, probe, 1 + CLASSES)
    synthetic_task(
        replace(settings.data, train=1, validation=1), seed=0
    )  # impossible sizes are refused before a folder is made
    folder = open_run_folder(Path(out), asdict(settings), resume)
    folder.check_room(_bytes_needed(settings, network))
    console = console or Console(stderr=True)
    trainings = [(seed, method) for seed in settings.seeds for method in settings.methods]
    task, drawn = None, None
    with ProgressBars(console, len(trainings), settings.training.epochs) as bars:
        for seed, method in trainings:
            run = folder.run(seed, method)
            if run.finished:
                bars.skip()
                continue
            if task is None or drawn != seed:
                task, drawn = synthetic_task(settings.data, seed), seed
            _train(settings, task, method, seed, run, accelerator, bars)
    return folder


def make_fence(method: str, settings: CompareSettings) -> Method | None:
    """The method of a row of the table; None for full supervision. Losses are means over the batch's images."""
    own = getattr(settings, method)
    samples = settings.data.train
    if method == "lagrangian":
        return Lagrangian(own.dual_lr, samples=samples, reduction="batchmean")
    if method == "relu_lagrangian":
        return ReLULagrangian(own.dual_lr, own.interval, own.growth, reduction="batchmean")
    if method == "penalty":
        return Penalty(own.strength, own.mu, reduction="batchmean")
    if method == "log_barrier":
        return LogBarrier(own.t, own.mu, reduction="batchmean")
    if method == "augmented_lagrangian":
        return AugmentedLagrangian(own.rho, own.mu, samples=samples, reduction="batchmean")
    return None


def make_module(settings: CompareSettings, task: SyntheticTask, method: str, seed: int) -> WeakSegmentation:
    """Network, fence and data of one training; a seed's network begins with the same weights for every method."""
    own, training = getattr(settings, method), settings.training
    torch.manual_seed(seed)
    network = build_network(settings.network.class_path, settings.network.init_args)
    if training.prior is not None:
        network = Primed(network, [training.prior] * CLASSES, own.temperature)
    if training.compile:
        network.compile()
    return WeakSegmentation(
        network,
        make_fence(method, settings),
        task.limits(getattr(own, "unit", "pixels")),
        task.train,
        task.validation,
        temperature=own.temperature,
        final_temperature=own.final_temperature,
        batch_size=training.batch_size,
        lr=training.lr,
        schedule=training.schedule,
        seed=seed,
        cuda_graphs=training.cuda_graphs and not training.compile,
    )


def _train(
    settings: CompareSettings,
    task: SyntheticTask,
    method: str,
    seed: int,
    run: OneRun,
    accelerator: Literal["cpu", "cuda"],
    bars: ProgressBars,
) -> None:
    module = make_module(settings, task, method, seed)
    title = f"seed {seed}, {method.replace('_', ' ')}"
    history = History(run.path)
    training = settings.training
    keeper = ModelCheckpoint(run.path, save_top_k=0, save_last=True, save_on_train_epoch_end=True)
    with _quiet_lightning():
        trainer = pl.Trainer(
            accelerator=accelerator,
            devices=1,
            precision=_precision(training.precision, accelerator),
            max_epochs=training.epochs,
            callbacks=[FenceCallback(), history, EpochBar(bars, title), keeper],
            logger=_tensorboard(run.path) if training.tensorboard else False,
            benchmark=accelerator == "cuda",
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=run.path,
        )
        with _interruptible(trainer):
            trainer.fit(module, ckpt_path=run.checkpoint, weights_only=True)
    last = history.rows[-1]
    _keep_outputs(module, task, run)
    run.finish({"method": method, "seed": seed, "epochs": training.epochs, "last_epoch": last})
    seconds = sum(row["seconds_train"] + row["seconds_validation"] for row in history.rows)
    bars.say(
        f"{title:<32} DSC {last['dice']:.3f}, limits satisfied {last['satisfaction']:.1%}, "
        f"{training.epochs} epochs in {seconds:.0f} s"
    )


def _keep_outputs(module: WeakSegmentation, task: SyntheticTask, run: OneRun) -> None:
    """The weights, and what the network says about the first validation images: plain tensors, safe to load."""
    images = task.validation["image"][:PICTURES]
    module.eval()
    with torch.no_grad():
        predicted = module(images.to(module.device)).argmax(dim=1).to(torch.uint8).cpu()
    truth = task.validation["mask"][:PICTURES, 0]
    torch.save({"image": images[:, 0], "truth": truth, "predicted": predicted}, run.path / "pictures.pt")
    weights = {name: tensor.cpu() for name, tensor in module.network.state_dict().items()}
    torch.save(weights, run.path / "weights.pt")


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


def _accelerator(device: str) -> Literal["cpu", "cuda"]:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("training.device: a GPU was asked for (cuda), and torch sees none; use auto or cpu")
    return "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"


def _precision(precision: str, accelerator: str) -> Literal["bf16-mixed", "32-true"]:
    wanted = ("bf16" if accelerator == "cuda" else "32") if precision == "auto" else precision
    return "bf16-mixed" if wanted == "bf16" else "32-true"


def _bytes_needed(settings: CompareSettings, network: torch.nn.Module) -> int:
    weights = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    pictures = 3 * PICTURES * settings.data.size**2
    # a checkpoint holds the weights and Adam's two moments, and is written beside the one before
    return len(settings.seeds) * len(settings.methods) * (weights + pictures) + 2 * 3 * weights


def _tensorboard(path: Path) -> TensorBoardLogger:
    require("tensorboard", "training.tensorboard", "train")
    return TensorBoardLogger(path, name=None, version="tensorboard")


@contextmanager
def _interruptible(trainer: pl.Trainer) -> Iterator[None]:
    """Ctrl-C as the exception it is: Lightning ends the whole program instead, and leaves Ctrl-C switched off."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    except SystemExit:
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without Lightning's remarks about what we chose on purpose."""
    talkers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning.pytorch")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
        warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty")
        warnings.filterwarnings("ignore", message=".*GPU available but not used")
        try:
            yield
        finally:
            for talker, level in zip(talkers, levels, strict=True):
                talker.setLevel(level)
