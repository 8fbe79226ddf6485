"""One training: a task, a method and a seed, through Lightning, into a folder that it can go on from."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ringfence.extras import require
from ringfence.lightning import FenceCallback
from ringfence.weak.networks.build import Tempered, build_network, fitted_arguments
from ringfence.weak.ranks.world import World, from_all, met
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.accelerator import choose_accelerator, multiplies_bf16
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.calibration import Calibration
from ringfence.weak.training.checkpoints.checkpoint import WholeCheckpoints
from ringfence.weak.training.history import History
from ringfence.weak.training.loading.data import SegmentationData
from ringfence.weak.training.methods import METHODS, ConstrainedSettings, MethodSettings, Setup
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.optimisers import make_optimiser, make_schedule
from ringfence.weak.training.progress import EpochBar, ProgressBars
from ringfence.weak.training.run_folder import OneRun
from ringfence.weak.training.settings import (
    AugmentSettings,
    NetworkSettings,
    OptimiserSettings,
    ScheduleSettings,
    TrainingSettings,
    flip_axes,
)
from ringfence.weak.training.together.batch_norm import norms_of_all_ranks
from ringfence.weak.training.together.strategy import OwnSigterm, ddp

ALONE: Final = World()
TAUGHT_DICE: Final = 1.0
"""How much Dice loss counts beside cross-entropy, where a teacher's labels are learnt."""


class FitSettings(Protocol):
    """What a training needs to be told; ``experiments/settings.py`` has it all together."""

    @property
    def network(self) -> NetworkSettings:
        """The network."""

    @property
    def training(self) -> TrainingSettings:
        """How every method trains."""

    @property
    def optimiser(self) -> OptimiserSettings:
        """The optimiser."""

    @property
    def schedule(self) -> ScheduleSettings:
        """The learning rate's schedule."""

    @property
    def augment(self) -> AugmentSettings | None:
        """How training images are augmented; None for not at all."""

    @property
    def method_settings(self) -> Mapping[str, MethodSettings]:
        """Those of every method, by name."""


def network_arguments(settings: FitSettings, task: Task) -> dict[str, Any]:
    """The network's arguments, with what the task says about its channels and axes."""
    own = settings.network
    return fitted_arguments(own.class_path, own.init_args, len(task.channels), len(task.classes), len(task.space))


def make_module(settings: FitSettings, task: Task, method: str, seed: int) -> WeakSegmentation:
    """Network and fence of one training; a seed's network begins with the same weights for every method."""
    own, training = settings.method_settings[method], settings.training
    torch.manual_seed(seed)
    network = build_network(settings.network.class_path, network_arguments(settings, task))
    if training.compile:
        network.compile()

    def optimiser(parameters: Any) -> Optimizer:
        return make_optimiser(settings.optimiser, training.lr, parameters)

    def schedule(made: Optimizer, epochs: int) -> LRScheduler:
        found = make_schedule(settings.schedule, made, epochs)
        assert found is not None  # noqa: S101 - asked only where there is one
        return found

    fence = own.make(Setup(task.count, training.length, tuple(task.constraints)))
    return WeakSegmentation.of(
        task,
        Tempered(network, len(task.classes), training.prior),
        fence,
        unit=own.unit if isinstance(own, ConstrainedSettings) else "pixels",
        augmentation=None if settings.augment is None else Augmentation.of(task, settings.augment),
        supervised=fence is None or task.taught,
        dice_weight=TAUGHT_DICE if task.taught else getattr(own, "dice", 0.0),
        flips=flip_axes(settings.augment.averaged if settings.augment else ()),
        turns=settings.augment.turns if settings.augment else (),
        neighbours=training.neighbours if len(task.space) == 2 and "case" in task.validation else 0.0,
        temperatures=(own.temperature, own.final_temperature),
        optimiser=optimiser,
        schedule=None if settings.schedule.class_path is None else schedule,
        seed=seed,
        cuda_graphs=training.cuda_graphs and not training.compile and not met(),
        fused=training.fused and not training.compile and not met(),
    )


def make_data(
    settings: FitSettings, task: Task, module: WeakSegmentation, seed: int, world: World = ALONE
) -> SegmentationData:
    """The task's samples in batches; of several ranks, this one's share of each."""
    training = settings.training
    return SegmentationData(
        task,
        training.batch_size,
        seed=seed,
        masks=module.supervised,
        around=module.judging.neighbours > 0.0,
        rank=world.rank,
        ranks=world.size,
        accumulate=training.accumulate,
    )


def make_callback(method: str) -> FenceCallback:
    """What steps the method's fence: once an epoch, or after each iteration."""
    return FenceCallback(every=METHODS[method].steps)


def fit(
    settings: FitSettings,
    task: Task,
    method: str,
    seed: int,
    run: OneRun,
    bars: ProgressBars,
    world: World = ALONE,
) -> tuple[WeakSegmentation, History]:
    """Train one method with one seed; from the folder's checkpoint, if it has one.

    Args:
        settings: of the training.
        task: what to learn, and from what.
        method: its name.
        seed: of weights, order and augmentation.
        run: where to.
        bars: how far it is.
        world: the ranks that train together, which have met.
    """
    accelerator, training = choose_accelerator(settings.training.device), settings.training
    if accelerator == "cpu" and training.precision == "bf16" and len(task.space) == 3:
        bars.say(
            "note: training.precision is bf16, in which torch's convolutions of volumes were seen to return NaN on "
            "a CPU: --training.precision 32 is safe"
        )
    elif accelerator == "cpu" and training.precision == "bf16" and not multiplies_bf16():
        bars.say(
            "note: training.precision is bf16, which this processor computes by way of float32, slowly: "
            "--training.precision 32 is faster here"
        )
    module = make_module(settings, task, method, seed)
    history = History(run.path)
    keeper = ModelCheckpoint(run.path, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    checkpoints = WholeCheckpoints(module, bars.say)
    plugins: list[Any] = [checkpoints]
    ours: dict[str, Any] = {}
    if world.several:
        image = torch.zeros(len(task.channels), *task.space)
        ours = {"strategy": ddp(world, module.network, image), "num_nodes": world.nodes}
    else:
        plugins.append(LightningEnvironment())  # one process, whatever a cluster's variables say
    callbacks = [make_callback(method), history, EpochBar(bars, title(seed, method)), keeper]
    if training.calibrate and not module.supervised and len(task.space) == 2 and "box" in task.train:
        callbacks.append(Calibration(task.train))
    with quiet_lightning(), ranks_norms(module, world):
        trainer = pl.Trainer(
            accelerator=accelerator,
            devices=world.local_size,
            **ours,
            accumulate_grad_batches=training.accumulate,
            use_distributed_sampler=False,  # each rank's loader gives its share
            precision=_precision(training.precision, accelerator),
            max_epochs=training.length,
            callbacks=[*callbacks, OwnSigterm()] if world.several else callbacks,
            logger=_tensorboard(run.path) if training.tensorboard else False,
            benchmark=False,  # trying out algorithms takes longer than the best of them saves in a short training
            log_every_n_steps=1,  # nothing is logged by the step; a larger number makes Lightning warn
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=run.path,
            plugins=plugins,
        )
        with _interruptible():
            data = make_data(settings, task, module, seed, world)
            begun = from_all(run.checkpoint)[0]  # one file system may know of it before another
            trainer.fit(module, datamodule=data, ckpt_path=begun, weights_only=True)
    return module, history


@contextmanager
def ranks_norms(module: WeakSegmentation, world: World) -> Iterator[None]:
    """Batch norms that see the rows of all ranks, if there are several; see ``batch_norm``."""
    if not world.several:
        yield
        return
    with norms_of_all_ranks(module.network) as module.ghost:
        yield


def title(seed: int, method: str) -> str:
    """What a training is called in progress bars."""
    return f"seed {seed}, {method.replace('_', ' ')}"


def _precision(precision: str, accelerator: str) -> Literal["bf16-mixed", "32-true", "64-true"]:
    known: dict[str, Literal["bf16-mixed", "32-true", "64-true"]] = {
        "auto": "bf16-mixed" if accelerator == "cuda" else "32-true",
        "bf16": "bf16-mixed",
        "32": "32-true",
        "64": "64-true",
    }
    return known[precision]


def _tensorboard(path: Path) -> TensorBoardLogger:
    require("tensorboard", "training.tensorboard", "tensorboard")
    return TensorBoardLogger(path, name=None, version="tensorboard")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C as the exception it is: Lightning ends the whole program instead, and leaves Ctrl-C switched off."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # and not SIGTERM, which ends a run in the same way
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
        warnings.filterwarnings("ignore", message=".*broadcast_buffers. is deprecated")  # its successor is too new
        warnings.filterwarnings("ignore", message=".*sync_dist=True")  # what we log is the same on all ranks
        warnings.filterwarnings(
            "ignore", message=".*AccumulateGrad node's stream"
        )  # recorded on a stream of its own
        try:
            yield
        finally:
            for talker, level in zip(talkers, levels, strict=True):
                talker.setLevel(level)
