"""One training: a method, a seed, a folder."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.plugins.io import TorchCheckpointIO

from ringfence import AugmentedLagrangian, Lagrangian, LogBarrier, Method, Penalty, ReLULagrangian
from ringfence.environment import commit
from ringfence.extras import require
from ringfence.lightning import FenceCallback
from ringfence.methods.base import Options
from ringfence.numbers import positive_number
from ringfence.weak.inference.model_file import MODEL, ModelCard, save_model
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.flips import mirror_axes
from ringfence.weak.training.history import History
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.networks import Tempered, build_network, fitted_arguments
from ringfence.weak.training.progress import EpochBar, ProgressBars
from ringfence.weak.training.run_folder import OneRun
from ringfence.weak.training.settings import ExperimentSettings, LogBarrierSettings, Unit

PICTURES: Final = 5
"""How many validation images are kept with their predictions."""


def make_fence(method: str, settings: ExperimentSettings, samples: int, names: Sequence[str] = ()) -> Method | None:
    """The method of a row of the table; None for full supervision. Losses are means over the batch's images.

    Args:
        method: which.
        settings: of all of them.
        samples: how many training images there are.
        names: of the limits; weights of others are left out.
    """
    own = getattr(settings, method)
    weights = {name: weight for name, weight in getattr(own, "weights", {}).items() if name in names}
    # Residuals are ours, and so are the indices; the module looks at the loss once an epoch.
    usual: Options = {"reduction": "batchmean", "validate": False, "weights": weights}
    if method == "lagrangian":
        return Lagrangian(own.dual_lr, initial=own.initial, samples=samples, **usual)
    if method == "relu_lagrangian":
        # as its authors do it: one λ for all images, moved at growing intervals of iterations
        return ReLULagrangian(own.dual_lr, own.interval, own.growth, initial=own.initial, shared=True, **usual)
    if method == "penalty":
        return Penalty(own.strength, own.mu, **usual)
    if method == "log_barrier":
        return LogBarrier(own.t, _growth(own, settings.training.epochs), **usual)
    if method == "augmented_lagrangian":
        return AugmentedLagrangian(own.rho, own.mu, initial=own.initial, samples=samples, **usual)
    return None


def stepping(fence: Method | None) -> FenceCallback:
    """What steps the fence: once an epoch, or, where a method's intervals count iterations, after each."""
    return FenceCallback(every="step" if isinstance(fence, ReLULagrangian) else "epoch")


def _growth(own: LogBarrierSettings, epochs: int) -> float:
    """μ, so that t is what it should be in the last epoch."""
    if (own.final_t is None) == (own.mu is None):
        raise ValueError(
            f"t grows by mu, or to final_t: one of them must be null; got mu {own.mu} and final_t {own.final_t}"
        )
    if own.final_t is None or own.mu is not None:
        return float(own.mu or 1.0)
    if not own.final_t >= positive_number("t", own.t):
        raise ValueError(f"final_t {own.final_t} must not be below t {own.t}")
    return float((own.final_t / own.t) ** (1.0 / max(epochs - 1, 1)))


def network_arguments(settings: ExperimentSettings, task: Task) -> dict[str, Any]:
    """The network's arguments, with what the task says about its channels and axes."""
    own = settings.network
    return fitted_arguments(own.class_path, own.init_args, len(task.channels), len(task.classes), len(task.space))


def make_module(settings: ExperimentSettings, task: Task, method: str, seed: int) -> WeakSegmentation:
    """Network, fence and data of one training; a seed's network begins with the same weights for every method."""
    own, training = getattr(settings, method), settings.training
    unit: Unit = getattr(own, "unit", "pixels")
    torch.manual_seed(seed)
    network = build_network(settings.network.class_path, network_arguments(settings, task))
    if training.compile:
        network.compile()
    return WeakSegmentation(
        Tempered(network, len(task.classes), training.prior),
        make_fence(method, settings, len(task.train["image"]), task.limit_names),
        task.limits(unit),
        task.train,
        task.validation,
        counted=task.limits("pixels") if unit != "pixels" else None,
        tolerances=task.tolerances,
        varied=task.varied,
        supervised=method == "full_supervision",
        dice_weight=getattr(own, "dice", 0.0),
        mirrors=mirror_axes(task.mirrors),
        temperatures=(own.temperature, own.final_temperature),
        batch_size=training.batch_size,
        lr=training.lr,
        schedule=training.schedule,
        seed=seed,
        cuda_graphs=training.cuda_graphs and not training.compile,
    )


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that are replaced whole: Lightning may copy over the last one, and be interrupted halfway."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write beside it, then rename."""
        part = Path(f"{path}.part")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            torch.save(checkpoint, part)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def train(
    settings: ExperimentSettings, task: Task, method: str, seed: int, run: OneRun, bars: ProgressBars
) -> None:
    """Train one method with one seed into its folder; from its checkpoint, if it has one."""
    accelerator = choose_accelerator(settings.training.device)
    module = make_module(settings, task, method, seed)
    title = f"seed {seed}, {method.replace('_', ' ')}"
    history = History(run.path)
    training = settings.training
    keeper = ModelCheckpoint(run.path, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    with quiet_lightning():
        trainer = pl.Trainer(
            accelerator=accelerator,
            devices=1,
            precision=_precision(training.precision, accelerator),
            max_epochs=training.epochs,
            callbacks=[stepping(module.fence), history, EpochBar(bars, title), keeper],
            logger=_tensorboard(run.path) if training.tensorboard else False,
            benchmark=accelerator == "cuda",
            log_every_n_steps=1,  # nothing is logged by the step; a larger number makes Lightning warn
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=run.path,
            plugins=[WholeCheckpoints(), LightningEnvironment()],  # one process, whatever a cluster's variables say
        )
        _check_usable(run.checkpoint, module)
        with _interruptible(trainer):
            trainer.fit(module, ckpt_path=run.checkpoint, weights_only=True)
    last = history.rows[-1]
    _keep_outputs(module, task, settings, method, run)
    run.finish({"method": method, "seed": seed, "epochs": training.epochs, "last_epoch": last})
    seconds = sum(row["seconds_train"] + row["seconds_validation"] for row in history.rows)
    score = "?" if math.isnan(last["dice"]) else f"{last['dice']:.3f}"
    bars.say(
        f"{title:<32} DSC {score}, limits satisfied {last['satisfaction']:.1%}, "
        f"{training.epochs} epoch{'s' * (training.epochs > 1)} in {seconds:.0f} s"
    )


def _check_usable(checkpoint: Path | None, module: WeakSegmentation) -> None:
    if checkpoint is None:
        return
    try:
        kept = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    except Exception as error:  # zipfile's, pickle's, torch's own
        raise ValueError(
            f"{checkpoint} is damaged ({type(error).__name__}): remove it to train this method from its beginning"
        ) from None
    for name, tensor in module.network.state_dict(prefix="network.").items():
        if name in kept and kept[name].shape != tensor.shape:
            raise ValueError(
                f"{checkpoint} is of another network: {name} is {list(kept[name].shape)} in it, and "
                f"{list(tensor.shape)} now. Has the prepared set changed? Train in a new folder with --out"
            )


def _keep_outputs(
    module: WeakSegmentation, task: Task, settings: ExperimentSettings, method: str, run: OneRun
) -> None:
    """The model, and what it says about a few validation images: plain tensors, safe to load."""
    rows = torch.tensor(task.pictured(PICTURES))
    images = task.validation["image"][rows]
    module.eval()
    with torch.no_grad():
        predicted = module.answer(images.to(module.device)).argmax(dim=1).to(torch.uint8).cpu()
    truth = task.validation["mask"][rows].any(dim=1)
    kept = {"image": images[:, 0], "truth": truth, "predicted": predicted}
    if images.ndim == 5:  # of a volume, the slice in its middle
        kept = {name: tensor[:, tensor.shape[1] // 2] for name, tensor in kept.items()}
    # cloned, because torch saves all that a slice was cut from
    torch.save({name: tensor.clone() for name, tensor in kept.items()}, run.path / "pictures.pt")
    card = ModelCard(
        settings.network.class_path,
        network_arguments(settings, task),
        task.channels,
        task.classes,
        task.size,
        (task.space[0], task.space[1], task.space[2]) if len(task.space) == 3 else None,
        method,
        commit(),
        task.labels,
        task.mirrors,
    )
    save_model(run.path / MODEL, module.network, card)


def choose_accelerator(device: str) -> Literal["cpu", "cuda"]:
    """Where to train; refuses a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("training.device: a GPU was asked for (cuda), and torch sees none; use auto or cpu")
    return "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"


def _precision(precision: str, accelerator: str) -> Literal["bf16-mixed", "32-true"]:
    wanted = ("bf16" if accelerator == "cuda" else "32") if precision == "auto" else precision
    return "bf16-mixed" if wanted == "bf16" else "32-true"


def _tensorboard(path: Path) -> TensorBoardLogger:
    require("tensorboard", "training.tensorboard", "tensorboard")
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
def quiet_lightning() -> Iterator[None]:
    """Without Lightning's remarks about what we chose on purpose."""
    talkers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning.pytorch")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
        warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty")
        warnings.filterwarnings("ignore", message=".*GPU available but not used")
        warnings.filterwarnings(
            "ignore", message=".*AccumulateGrad node's stream"
        )  # recorded on a stream of its own
        try:
            yield
        finally:
            for talker, level in zip(talkers, levels, strict=True):
                talker.setLevel(level)
