"""Training a segmentation network from limits alone, or from masks: the Lightning module that every method shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import pytorch_lightning as pl
import torch
from monai.metrics import compute_dice
from monai.networks import one_hot
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.methods import Method
from ringfence.monitor import Monitor
from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.batches import Batch, Batches
from ringfence.weak.graphs import graph_training

Limits: TypeAlias = Callable[[Region, Batch], dict[str, Residual]]
"""What is asked of a region, given the weak labels in its batch: residuals by name."""

VALIDATION_BATCH: Final = 50
BETAS: Final = (0.9, 0.99)
"""Adam's, as the authors'."""


class WeakSegmentation(pl.LightningModule):
    """loss = Σ_i Σ_n φ(f_i(s^n)) with s = softmax(network(x) / temperature): no pixel's label is used.

    Without a fence the loss is cross-entropy against the masks: full supervision, on the same data and schedule.

    Batches hold ``image`` (uint8 ``[B, C, *space]``), ``mask`` (bool ``[B, K, *space]``; for validation, and for full
    supervision) and whatever ``limits`` reads.

    Args:
        network: from images in 0..1 to logits ``[B, 1 + K, *space]``.
        fence: how the limits are enforced, or None.
        limits: what they are.
        train: the training set.
        validation: the validation set.
        temperature: the logits are divided by it at first.
        final_temperature: and by this in the last epoch, by equal ratios between: soft maps find regions, sharp ones
            measure what the likeliest class shows.
        batch_size: images a step.
        lr: Adam's first learning rate.
        schedule: whether it falls to zero along a cosine, or stays.
        seed: of the order of images.
        cuda_graphs: replay the network from CUDA graphs, where there is a GPU.
    """

    def __init__(
        self,
        network: nn.Module,
        fence: Method | None,
        limits: Limits,
        train: Mapping[str, Tensor],
        validation: Mapping[str, Tensor],
        *,
        temperature: float = 1.0,
        final_temperature: float | None = None,
        batch_size: int = 4,
        lr: float = 1e-3,
        schedule: Literal["cosine", "constant"] = "cosine",
        seed: int = 0,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)
        self.fence, self.limits, self.monitor = fence, limits, Monitor()
        self._temperatures = (temperature, final_temperature or temperature)
        self.batch_size, self.lr, self.schedule = batch_size, lr, schedule
        self.seed, self.cuda_graphs = seed, cuda_graphs
        self._train, self._validation = train, validation
        self._losses: list[Tensor] = []
        self._scores: list[Tensor] = []
        self._pulls: dict[str, list[Tensor]] = {}

    @property
    def temperature(self) -> float:
        """T_first · (T_final / T_first)^share, with the share of epochs that are over."""
        first, final = self._temperatures
        return first * (final / first) ** self._share(self.current_epoch)

    # The steps

    def forward(self, images: Tensor) -> Tensor:
        """Logits of uint8 images."""
        scaled = images.float().div_(255.0)
        logits: Tensor = self.network(scaled.to(memory_format=torch.channels_last))
        return logits

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """The limits' term, or cross-entropy."""
        logits = self(batch["image"])
        if self.fence is None:
            loss = F.cross_entropy(logits / self.temperature, _labels(batch["mask"]))
        else:
            region = Region(logits, temperature=self.temperature)
            loss = self.fence(index=batch["index"], **self.limits(region, batch))
        self._losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Batch, number: int) -> None:
        """Dice of every image, and whether its limits hold."""
        logits = self(batch["image"])
        region = Region(logits, temperature=self.temperature)
        limits = self.limits(region, batch)
        self.monitor.update(index=batch["index"], **limits)
        self._scores.append(dice(logits, batch["mask"]))
        # Multipliers that a method keeps belong to training images; those it implies are everywhere.
        if self.fence is not None and not hasattr(self.fence, "multipliers"):
            for name, duals in self.fence.duals(**limits).items():
                self._pulls.setdefault(name, []).append(duals.flatten() * len(logits))  # per image, not per batch

    # The epochs

    def on_fit_start(self) -> None:
        """Capture the network, now that it is on its device."""
        if self.cuda_graphs and self.device.type == "cuda":
            sample = next(iter(self.train_dataloader()))["image"].float().to(memory_format=torch.channels_last)
            graph_training(self.network, sample, torch.bfloat16 if "bf16" in str(self.trainer.precision) else None)

    def on_train_epoch_start(self) -> None:
        """Set what depends on the epoch's number alone, so that a resumed run goes on exactly as it would have."""
        torch.manual_seed(self.seed * 1_000_003 + self.current_epoch)  # a network may have dropout
        if self.schedule == "cosine":
            share = self.current_epoch / (self.trainer.max_epochs or 1)
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.lr * (1.0 + math.cos(math.pi * share)) / 2.0

    def on_validation_epoch_end(self) -> None:
        """Log the epoch's mean loss and Dice, and the multipliers that its residuals imply.

        Validation comes last in an epoch, before any callback looks at what the epoch logged.
        """
        losses, self._losses = torch.stack(self._losses), []
        if not bool(losses.isfinite().all()):
            raise ValueError(
                f"the training loss is not finite in epoch {self.current_epoch + 1}: try a lower training.lr"
            )
        self.log("train_loss", losses.mean())
        self.log("temperature", self.temperature)
        scores, self._scores = torch.cat(self._scores), []
        pulls, self._pulls = self._pulls, {}
        self.log("dice", scores.mean())
        for name, duals in pulls.items():
            self.log(f"fence/mean_multiplier/{name}", torch.cat(duals).mean())
            self.log(f"fence/max_multiplier/{name}", torch.cat(duals).max())

    def _share(self, epoch: int) -> float:
        """How far the training is, from 0 in its first epoch to 1 in its last."""
        epochs = self.trainer.max_epochs or 1
        return min(epoch / max(epochs - 1, 1), 1.0)

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
