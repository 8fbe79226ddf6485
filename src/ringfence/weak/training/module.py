"""Training a segmentation network from constraints alone, or from masks: the Lightning module of every method."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import MeanMetric

from ringfence.fetching import fetched
from ringfence.lightning import log_epoch
from ringfence.methods import Method
from ringfence.monitor import Monitor
from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.segmentation.turning import answer_of_turned
from ringfence.weak.constraints.constraint import Constraint, Unit
from ringfence.weak.networks.build import Tempered
from ringfence.weak.networks.fast import faster
from ringfence.weak.networks.fast.branches import IN_LINE, Inline
from ringfence.weak.ranks.world import from_all
from ringfence.weak.tasks.task import Measure, Task, measured, tolerances
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.divergence import (
    BLOWN_UP,
    Circumstances,
    Diverged,
    Step,
    Watch,
    advice,
    check_strengths,
    kept,
    largest_weight,
)
from ringfence.weak.training.gpu.recording import Recording, rest_of
from ringfence.weak.training.gpu.steps import record_steps, take_numbers
from ringfence.weak.training.judging import Judging
from ringfence.weak.training.loading.data import Batch
from ringfence.weak.training.supervision import supervised_loss
from ringfence.weak.training.together.batch_norm import Ghost
from ringfence.weak.training.together.global_batch import (
    GHOST,
    WHOLE,
    Portion,
    first_rank,
    scaled,
    taken,
)
from ringfence.weak.training.validation import LAST, Validation

OptimiserOf: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]
ScheduleOf: TypeAlias = Callable[[Optimizer, int], LRScheduler]


class WeakSegmentation(pl.LightningModule):
    """loss = Σ_i Σ_n φ(f_i(s^n)) with s = softmax(network(x)): no pixel's label is used.

    With ``supervised``, cross-entropy against the masks is added to it, and Dice loss (1 - 2Σsy / (Σs + Σy) over
    the batch) if asked for; without a fence that is full supervision, on the same data and schedule.

    Batches are dictionaries of tensors, from ``SegmentationData`` or your own loader: ``image`` (uint8, or floats
    in 0..1, ``[B, C, *space]``), ``index`` (which training images they are), the constraints' targets and,
    for validation and supervision, ``mask`` (bool ``[B, K, *space]``; where there is ``unsure``, bool
    ``[B, 1, *space]``, its pixels teach nothing). Give the Trainer a
    ``ringfence.lightning.FenceCallback``, which steps the fence and logs satisfaction.

    Args:
        network: from images in 0..1 to logits ``[B, 1 + K, *space]``. A plain one is wrapped as ``Tempered``, whose
            temperature is set from epoch to epoch.
        constraints: by name, ready for the task; ``task.constraints``.
        fence: how they are enforced, or None.
        classes: how many foreground classes there are.
        unit: what residuals are measured in. Satisfaction is always counted in pixels.
        measure: the constraints' residuals by unit; default: each constraint's own. (``task.measure``)
        augmentation: what is done to a training batch first.
        supervised: use the masks of the training set, too.
        dice_weight: of Dice loss beside cross-entropy, where masks are used.
        flips: axes of images; validation averages predictions over an image and its flips along them.
        turns: degrees; and, in the last epochs (``validation.LAST``), over those turned by so many.
        neighbours: the share of each neighbouring slice in what validation finds in a slice, for batches that have
            the slices around them (``SegmentationData(around=True)``).
        temperatures: the network's in the first epoch and in the last (geometric schedule).
        optimiser: from parameters to the optimiser; default: Adam with a learning rate of 1e-3.
        schedule: from the optimiser and the number of epochs to a scheduler, stepped once an epoch; default: none.
        names: of the training images, for messages about them.
        seed: makes every epoch's random numbers depend on it and the epoch alone; default: left alone.
        cuda_graphs: replay steps from CUDA graphs, where there is a GPU and the Trainer has a DataModule.
        fused: compute the network in fewer passes over memory, where there is a GPU; see ``networks.fast``.
    """

    def __init__(
        self,
        network: nn.Module,
        constraints: Mapping[str, Constraint],
        fence: Method | None,
        *,
        classes: int = 1,
        unit: Unit = "pixels",
        measure: Callable[[Unit], Measure] | None = None,
        augmentation: Callable[[Batch], Batch] | None = None,
        supervised: bool = False,
        dice_weight: float = 0.0,
        flips: Sequence[int] = (),
        turns: Sequence[float] = (),
        neighbours: float = 0.0,
        temperatures: tuple[float, float] = (1.0, 1.0),
        optimiser: OptimiserOf | None = None,
        schedule: ScheduleOf | None = None,
        names: Sequence[str] = (),
        seed: int | None = None,
        cuda_graphs: bool = False,
        fused: bool = False,
    ) -> None:
        super().__init__()
        if fence is None and not supervised:
            raise ValueError("there is nothing to learn from: give a fence, or supervised=True")
        tempered = network if isinstance(network, Tempered) else Tempered(network, classes)
        volumes = any(weight.ndim == 5 for weight in tempered.parameters())
        self.memory_format = torch.channels_last_3d if volumes else torch.channels_last
        self.network: Tempered = tempered.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.classes, self.fence, self.monitor = classes, fence, Monitor(tolerances(constraints) or 0.0)
        measured_in = measure or partial(measured, constraints)
        self.measure, self._counted = measured_in(unit), None if unit == "pixels" else measured_in("pixels")
        self.augmentation, self.supervised = augmentation, supervised
        self.judging = Judging(flips, turns, 0.0 if volumes else neighbours)
        self._dice_weight, self.ghost = dice_weight, Ghost()
        self.temperatures, self.seed, self.cuda_graphs, self.fused = temperatures, seed, cuda_graphs, fused
        self._optimiser, self._schedule = optimiser, schedule
        self.names, self.remark, self.levelled = tuple(names), "", False
        self.tell: Callable[[str], None] = _warn
        self._watch, self._heaviest = Watch(), max(1.0, largest_weight(self.network))
        self.train_loss = MeanMetric(nan_strategy="disable")  # every step's loss is looked at by the watch
        self.validation, self.recording = Validation(), Recording()
        self._losses: list[Tensor] = []

    @classmethod
    def of(cls, task: Task, network: nn.Module, fence: Method | None, **options: Any) -> WeakSegmentation:
        """A module for a task: its constraints and its number of classes; options as the constructor's."""
        known: dict[str, Any] = {"classes": len(task.classes), "measure": task.measure, "names": task.names}
        return cls(network, task.constraints, fence, **(known | options))

    # The steps

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images: of bytes, or of floats in 0..1."""
        logits: Tensor = self.network(self._scaled(images).to(memory_format=self.memory_format))
        return logits

    def _answer(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits of a training batch: those of turned images, turned back, where augmentation asks for it."""
        images = batch["image"]
        if "turn" not in batch:
            logits: Tensor = self(images)
            return logits
        return answer_of_turned(self, self._scaled(images), batch["turn"])

    def _scaled(self, images: Tensor) -> Tensor:
        """Images of bytes, or of floats in 0..1, as floats in 0..1 of the weights' kind."""
        dtype = next((one.dtype for one in self.network.parameters()), torch.float32)
        return images.to(dtype) if images.is_floating_point() else images.to(dtype).div_(255.0)

    def predicted(self, images: Tensor) -> Tensor:
        """Logits as they are judged: the log of probabilities averaged over views, if there are several."""
        levels = self.network.levels if self.levelled else None
        return self.judging.answer(self, self._scaled(images), levels, self._last_epochs)

    def _last_epochs(self) -> bool:
        """Whether what is found now says what the training reaches: with nobody who trains, it does."""
        state = getattr(self._trainer, "state", None)
        if state is not None and state.fn != TrainerFn.FITTING:
            return True
        epochs = getattr(self._trainer, "max_epochs", None) or 0
        return int(self.current_epoch) >= epochs - LAST

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """Cross-entropy (and Dice loss) if the masks are used, and the constraints' term if there is a fence."""
        batch, share = taken(batch, number, getattr(self._trainer, "accumulate_grad_batches", 1))
        self.ghost.here = share.ghost
        batch = self.varied(batch)
        replayed = self.recording.replayed(batch)
        if replayed is not None:
            if self.fence is not None:
                self.fence.replayed()
            self._look(Step(self.current_epoch + 1, number + 1, replayed.values, batch, replayed.residuals))
            return replayed.values[0]
        batch = self.made(batch)
        logits, residuals = self._measured(batch)
        supervised = self._supervised_loss(logits, batch, share)
        # the others' gradients wait for a ghost's
        loss = supervised + 0.0 * logits.sum() if share.ghost else supervised
        if self.fence is not None:
            weight = share.of_fence(self.fence, residuals)
            if not share.ghost:
                loss = loss + scaled(self.fence(index=batch.get("index"), **residuals), weight)
        values = torch.stack([loss.detach().float(), supervised.detach().float()])
        self._look(Step(self.current_epoch + 1, number + 1, values, batch, residuals), share.ghost)
        return loss

    def _look(self, step: Step, ghost: bool = False) -> None:
        """Keep a step's loss, and end a training that has diverged."""
        self._losses.append(step.values[0])
        self._stop(None if ghost else self._watch.see(step))

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """As Lightning's; a replayed step has its gradients already."""
        if not self.recording.replaying:
            super().backward(loss, *args, **kwargs)
        elif not self.recording.steps:
            self.recording.give_gradients(self.network)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """As Lightning's; a replayed step may have moved the weights already."""
        if not self.recording.steps or optimizer_closure is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            return
        optimizer_closure()
        if not self.recording.replaying:  # a batch that is like none of those that were recorded
            optimizer.step()

    def _supervised_loss(self, logits: Tensor, batch: Batch, share: Portion) -> Tensor:
        """Cross-entropy and Dice loss of this rank's share of a batch; 0 where masks are not used."""
        if not self.supervised:
            return torch.zeros((), device=logits.device)
        return supervised_loss(logits, batch, share, self._dice_weight)

    def validation_step(self, batch: Batch, number: int) -> None:
        """Whether the constraints hold and, where there are masks, what measures are made of."""
        ghost = GHOST in batch
        batch, _ = taken(batch, 0, 1)
        logits = self.judging.found(self.recording.answers or self.predicted, batch)
        self.validation.judge(logits, batch, ghost)
        if ghost:
            return
        region = region_of(logits, batch)
        residuals = self.measure(region, batch)
        counted = residuals if self._counted is None else self._counted(region, batch)
        self.monitor.update(index=batch.get("index"), **counted)
        self.validation.imply(self.fence, residuals, len(logits), checked=self._counted is None)  # by the monitor

    # The epochs

    def on_fit_start(self) -> None:
        """On a GPU, now that the network is there: fuse what can be fused, and get ready to record steps."""
        if self.device.type == "cuda":
            if self.fused:
                faster(self.network)
            take_numbers(self)

    def on_train_start(self) -> None:
        """Record CUDA graphs, if wanted: now that weights, multipliers and optimiser are those of a checkpoint."""
        if self.device.type == "cuda":
            record_steps(self)

    def on_fit_end(self) -> None:
        """Let go of the graphs and their memory; whoever trains with the same data next gets whole batches."""
        self.recording = Recording()
        if self.fence is not None:
            self.fence.follow(None)
        if hasattr(data := getattr(self.trainer, "datamodule", None), "numbers_only"):
            data.numbers_only = False  # type: ignore[union-attr]

    def on_train_epoch_start(self) -> None:
        """Set what depends on the epoch's number alone, so that a resumed run goes on exactly as it would have."""
        if self.seed is not None:
            torch.manual_seed(self.seed * 1_000_003 + self.current_epoch)  # a network may have dropout
        epochs = max(self.trainer.max_epochs or 1, 1)
        first, final = self.temperatures
        self.network.temperature.fill_(first * (final / first) ** (self.current_epoch / max(epochs - 1, 1)))

    def on_validation_epoch_start(self) -> None:
        """Log the mean training loss: validation comes last in an epoch, before callbacks read what was logged."""
        if self.recording.answers is not None and self.judging.grows:
            self.recording.answers.are_of(self._last_epochs())
        if self.trainer.sanity_checking or not self._losses:
            return
        self._stop(self._watch.settle())
        self.train_loss.update(torch.stack(self._losses))
        self._losses = []
        loss, temperature = fetched(self.train_loss.compute(), self.network.temperature)
        self.train_loss.reset()
        if not bool(loss.isfinite()):  # in float16 no single step was looked at
            raise Diverged(
                f"training diverged in epoch {self.current_epoch + 1}: the mean loss is not finite. "
                f"{advice(self.fence, self._rate())}"
            )
        log_epoch(self, {"train_loss": loss, "temperature": temperature})

    def on_train_epoch_end(self) -> None:
        """Stop or remark upon what has diverged, before a checkpoint is written; see ``divergence``."""
        heaviest, epoch = largest_weight(self.network), self.current_epoch + 1
        if self.fence is not None:
            check_strengths(self.fence, epoch, self.names)
        if not math.isfinite(heaviest):
            raise Diverged(
                f"training diverged in epoch {epoch}: there are weights that are not finite. "
                f"{advice(self.fence, self._rate())}"
            )
        if heaviest > BLOWN_UP * self._heaviest and not self.remark:
            self.remark = (
                f"training diverged: there are weights of {heaviest:.2g} after epoch {epoch}, and at the beginning "
                f"they were {self._heaviest:.2g} at most. {advice(self.fence, self._rate())}"
            )
            self.tell(self.remark)

    def on_validation_epoch_end(self) -> None:
        """Log the epoch's measures, and the multipliers that its residuals imply."""
        log_epoch(self, self.validation.told())

    # Divergence

    def _stop(self, bad: tuple[Step, float] | None) -> None:
        """End a training whose loss makes no sense, with its batch in a file."""
        who = None if self.halves else first_rank(bad is not None)
        if who is not None:
            mine = bad is not None and who == self.global_rank
            raise Diverged(from_all(self._kept(*bad) if mine and bad is not None else "")[who])

    def _kept(self, step: Step, loss: float) -> str:
        """What to say about a step that diverged; its batch is in a file."""
        if "image" not in step.batch:
            step = replace(step, batch=self.made(step.batch))
        folder, temperature = Path(self.trainer.default_root_dir), float(self.network.temperature)
        known = Circumstances(self.fence, self.names, self._rate(), temperature, self.seed, folder)
        return kept(step, loss, known)

    @property
    def halves(self) -> bool:
        """Whether the network is in float16, where a loss may overflow: GradScaler skips such a step."""
        return str(getattr(self._trainer, "precision", "")) in ("16-mixed", "16-true")

    def _rate(self) -> float:
        """The learning rate at the beginning: that is what can be set."""
        group = self.trainer.optimizers[0].param_groups[0] if self.trainer.optimizers else {"lr": math.nan}
        return float(group.get("initial_lr", group["lr"]))

    # From a batch to what its loss is made of

    def varied(self, batch: Batch) -> Batch:
        """By somebody else's augmentation, which may do what no graph can record."""
        own = self.augmentation
        return batch if own is None or isinstance(own, Augmentation) else own(batch)

    def made(self, batch: Mapping[str, Tensor], beside: Inline = IN_LINE) -> Batch:
        """A batch as it is trained on: gathered, where it is of numbers alone, and augmented by our own.

        Args:
            batch: as the loader gives it.
            beside: where the constraints' targets are made.
        """
        made = self.recording.gathered(batch, beside)
        return self.augmentation(made, beside) if isinstance(self.augmentation, Augmentation) else made

    def _measured(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Residual]]:
        logits = self._answer(batch)
        return logits, {} if self.fence is None else self.measure(region_of(logits, batch), batch)

    def recorded(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Callable[[], Tensor]]:
        """A step's loss as a CUDA graph records it; and what nobody waits for: noting residuals, telling them."""
        beside = self.recording.beside
        made = self.made(batch, beside)
        logits, residuals, term = self._answer(made), {}, None
        with beside(logits):  # of a few hundred numbers, while cross-entropy goes over all pixels
            if self.fence is not None:
                residuals = self.measure(region_of(logits, made), made)
                term = self.fence.term(residuals, made.get("index"))
        supervised = self._supervised_loss(logits, made, WHOLE)
        beside.join()
        loss = supervised if term is None else supervised + term
        return loss, rest_of(self.fence, residuals, made.get("index"), loss, supervised)

    def configure_optimizers(self) -> Any:
        """What the Trainer asks for: the optimiser, and its schedule if there is one."""
        parameters = self.network.parameters()
        optimiser = torch.optim.Adam(parameters) if self._optimiser is None else self._optimiser(parameters)
        if self._schedule is None:
            return optimiser
        return {"optimizer": optimiser, "lr_scheduler": self._schedule(optimiser, self.trainer.max_epochs or 1)}


def region_of(logits: Tensor, batch: Mapping[str, Tensor]) -> Region:
    """The network's answer, to be measured; with the boxes that will be asked for, if there are any."""
    return Region(logits, boxes=batch.get("box"))


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)
