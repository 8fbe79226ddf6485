"""Training a segmentation network from limits alone, or from masks: the Lightning module of every method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import pytorch_lightning as pl
import torch
from monai.metrics.meandice import compute_dice
from monai.networks.utils import one_hot
from torch import Tensor
from torch.nn import functional as F

from ringfence.methods import Method
from ringfence.methods.dual import DualMethod
from ringfence.monitor import Monitor
from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.batches import Batch, Batches
from ringfence.weak.graphs import Graphed, fused, rewrapped, unwrapped
from ringfence.weak.networks import Tempered

Limits: TypeAlias = Callable[[Region, Batch], dict[str, Residual]]
"""What is asked of a region, given the weak labels in its batch: residuals by name."""

VALIDATION_BATCH: Final = 50
BETAS: Final = (0.9, 0.99)
"""Adam's, as the authors'."""


class WeakSegmentation(pl.LightningModule):
    """loss = Σ_i Σ_n φ(f_i(s^n)) with s = softmax(network(x)): no pixel's label is used.

    With ``supervised``, cross-entropy against the masks is added to it; without a fence that is full supervision,
    on the same data and schedule.

    Batches hold ``image`` (uint8 ``[B, C, *space]``), ``mask`` (bool ``[B, K, *space]``; for validation, and for
    full supervision) and whatever ``limits`` reads.

    Args:
        network: from images in 0..1 to logits ``[B, 1 + K, *space]``; its temperature is set from epoch to epoch.
        fence: how the limits are enforced, or None.
        limits: what they are.
        train: the training set.
        validation: the validation set.
        supervised: use the masks of the training set, too.
        temperatures: the network's in the first epoch and in the last, with equal ratios between.
        batch_size: images a step.
        lr: Adam's first learning rate.
        schedule: whether it falls to zero along a cosine, or stays.
        seed: of the order of images.
        cuda_graphs: replay the network from CUDA graphs, where there is a GPU.
    """

    def __init__(
        self,
        network: Tempered,
        fence: Method | None,
        limits: Limits,
        train: Mapping[str, Tensor],
        validation: Mapping[str, Tensor],
        *,
        supervised: bool = False,
        temperatures: tuple[float, float] = (1.0, 1.0),
        batch_size: int = 4,
        lr: float = 1e-3,
        schedule: Literal["cosine", "constant"] = "cosine",
        seed: int = 0,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        self.network: Tempered = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.fence, self.limits, self.monitor = fence, limits, Monitor()
        if fence is None and not supervised:
            raise ValueError("there is nothing to learn from: give a fence, or supervised=True")
        self.supervised, self.temperatures = supervised, temperatures
        self.batch_size, self.lr, self.schedule = batch_size, lr, schedule
        self.seed, self.cuda_graphs = seed, cuda_graphs
        self._train, self._validation = train, validation
        self._graphed: Graphed | None = None
        self._like: dict[str, Residual] = {}
        self._losses: list[Tensor] = []
        self._scores: list[Tensor] = []
        self._pulls: dict[str, list[Tensor]] = {}

    # The steps

    def forward(self, images: Tensor) -> Tensor:
        """Logits of uint8 images."""
        scaled = images.float().div_(255.0)
        logits: Tensor = self.network(scaled.to(memory_format=torch.channels_last))
        return logits

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """Cross-entropy if the masks are used, and the limits' term if there are limits."""
        if self._graphed is not None and self._graphed.fits(batch):
            logits, residuals = self._replayed(self._graphed, batch)
        else:
            logits, residuals = self._measured(batch)
        loss = torch.zeros((), device=self.device)
        if self.supervised:
            loss = loss + F.cross_entropy(logits, _labels(batch["mask"]))
        if self.fence is not None:
            loss = loss + self.fence(index=batch["index"], **residuals)
        self._losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Batch, number: int) -> None:
        """Dice of every image, and whether its limits hold."""
        logits = self(batch["image"])
        residuals = self.limits(Region(logits), batch)
        self.monitor.update(index=batch["index"], **residuals)
        self._scores.append(dice(logits, batch["mask"]))
        # Multipliers that a method keeps belong to training images; those it implies are everywhere.
        if self.fence is not None and not isinstance(self.fence, DualMethod):
            for name, duals in self.fence.duals(index=None, **residuals).items():
                self._pulls.setdefault(name, []).append(duals.flatten() * len(logits))  # per image, not per batch

    # The epochs

    def on_fit_start(self) -> None:
        """Record CUDA graphs if wanted, now that the network is on its device."""
        if self.cuda_graphs and self.device.type == "cuda":
            self._capture(next(iter(self.train_dataloader())))

    def on_train_epoch_start(self) -> None:
        """Set what depends on the epoch's number alone, so that a resumed run goes on exactly as it would have."""
        torch.manual_seed(self.seed * 1_000_003 + self.current_epoch)  # a network may have dropout
        epochs = self.trainer.max_epochs or 1
        first, final = self.temperatures
        self.network.temperature.fill_(first * (final / first) ** (self.current_epoch / max(epochs - 1, 1)))
        if self.schedule == "cosine":
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.lr * (1.0 + math.cos(math.pi * self.current_epoch / epochs)) / 2.0

    def on_validation_epoch_start(self) -> None:
        """Log the mean training loss: validation comes last in an epoch, before callbacks read what was logged."""
        losses, self._losses = torch.stack(self._losses), []
        if not bool(losses.isfinite().all()):
            raise ValueError(
                f"the training loss is not finite in epoch {self.current_epoch + 1}: try a lower training.lr"
            )
        self.log("train_loss", losses.mean())
        self.log("temperature", self.network.temperature)

    def on_validation_epoch_end(self) -> None:
        """Log the epoch's Dice, and the multipliers that its residuals imply."""
        scores, self._scores = torch.cat(self._scores), []
        pulls, self._pulls = self._pulls, {}
        self.log("dice", scores.mean())
        for name, duals in pulls.items():
            self.log(f"fence/mean_multiplier/{name}", torch.cat(duals).mean())
            self.log(f"fence/max_multiplier/{name}", torch.cat(duals).max())

    # From a batch to what its loss is made of

    def _measured(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Residual]]:
        logits = self(batch["image"])
        return logits, {} if self.fence is None else self.limits(Region(logits), dict(batch))

    def _capture(self, batch: Batch) -> None:
        """Record the same as CUDA graphs."""
        apart = ("index", "mask") if self.fence else [name for name in batch if name != "image"]
        read = {name: tensor for name, tensor in batch.items() if name not in apart}
        dtype = torch.bfloat16 if "bf16" in str(self.trainer.precision) else None
        shape = batch["mask"].shape
        logits = torch.zeros(shape[0], 1 + shape[1], *shape[2:], device=self.device, requires_grad=True)
        limits = self.limits
        self._like = {} if self.fence is None else limits(Region(logits), read)

        def residuals(logits: Tensor, batch: Batch) -> dict[str, Tensor]:
            return unwrapped(limits(Region(logits), batch))

        if self.fence is not None:
            residuals = fused(residuals, logits, read)

        def measure(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
            logits = self(batch["image"])
            values = {} if self.fence is None else residuals(logits, dict(batch))
            return values | ({"logits": logits} if self.supervised else {})

        self._graphed = Graphed(self.network, measure, read, dtype)

    def _replayed(self, graphed: Graphed, batch: Batch) -> tuple[Tensor, dict[str, Residual]]:
        values = graphed(batch)
        return values.pop("logits", batch["image"]), rewrapped(values, self._like)

    # What the trainer asks for

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.network.parameters(), lr=self.lr, betas=BETAS, fused=True)

    def train_dataloader(self) -> Batches:
        """The training set on the module's device, in a new order each epoch."""
        rows = {name: tensor.to(self.device) for name, tensor in self._train.items()}
        return Batches(rows, self.batch_size, seed=self.seed, epoch=lambda: self.current_epoch)

    def val_dataloader(self) -> Batches:
        """The validation set on the module's device."""
        rows = {name: tensor.to(self.device) for name, tensor in self._validation.items()}
        return Batches(rows, VALIDATION_BATCH)


def dice(logits: Tensor, masks: Tensor) -> Tensor:
    """2|P∩Y| / (|P| + |Y|) of the likeliest class against the mask: ``[B, K]``; two empty masks give 1."""
    channels = logits.shape[1]
    predicted = one_hot(logits.argmax(dim=1, keepdim=True), num_classes=channels)
    truth = torch.cat([~masks.any(dim=1, keepdim=True), masks], dim=1)
    score: Tensor = compute_dice(predicted, truth.float(), include_background=False, ignore_empty=False)
    return score


def _labels(masks: Tensor) -> Tensor:
    """The class of each pixel: 0 where no mask is."""
    return torch.cat([~masks.any(dim=1, keepdim=True), masks], dim=1).long().argmax(dim=1)
