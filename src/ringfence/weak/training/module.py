"""Training a segmentation network from limits alone, or from masks: the Lightning module of every method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.methods import Method
from ringfence.methods.dual import DualMethod
from ringfence.monitor import Monitor
from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.tasks.task import Limits
from ringfence.weak.training.data import Batch, Batches
from ringfence.weak.training.flips import mean_answer
from ringfence.weak.training.graphs import Graphed, fused, rewrapped, unwrapped
from ringfence.weak.training.networks import Tempered

VALIDATION_BATCH: Final = 50
BETAS: Final = (0.9, 0.99)
"""Adam's, as the authors'."""


class WeakSegmentation(pl.LightningModule):
    """loss = Σ_i Σ_n φ(f_i(s^n)) with s = softmax(network(x)): no pixel's label is used.

    With ``supervised``, cross-entropy against the masks is added to it, and Dice loss (1 - 2Σsy / (Σs + Σy) over
    the batch) if asked for; without a fence that is full supervision, on the same data and schedule.

    Batches hold ``image`` (uint8 ``[B, C, *space]``), ``mask`` (bool ``[B, K, *space]``; for validation, and for
    full supervision) and whatever ``limits`` reads.

    Args:
        network: from images in 0..1 to logits ``[B, 1 + K, *space]``; its temperature is set from epoch to epoch.
        fence: how the limits are enforced, or None.
        limits: what they are.
        train: the training set.
        validation: the validation set.
        counted: the same limits in other units, for validation to count, so that methods of different units can be
            compared; ``limits`` themselves unless given.
        tolerances: how far one of these may be exceeded and still count as held, by its name.
        varied: what is done to a training batch first, as augmentation.
        supervised: use the masks of the training set, too.
        dice_weight: of Dice loss beside cross-entropy, where masks are used.
        mirrors: axes of images; in validation, answers are averaged over an image and its mirror images along them.
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
        counted: Limits | None = None,
        tolerances: Mapping[str, float] | None = None,
        varied: Callable[[Batch], Batch] | None = None,
        supervised: bool = False,
        dice_weight: float = 0.0,
        mirrors: Sequence[int] = (),
        temperatures: tuple[float, float] = (1.0, 1.0),
        batch_size: int = 4,
        lr: float = 1e-3,
        schedule: Literal["cosine", "constant"] = "cosine",
        seed: int = 0,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        volumes = any(weight.ndim == 5 for weight in network.parameters())
        self.memory_format = torch.channels_last_3d if volumes else torch.channels_last
        self.network: Tempered = network.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.fence, self.limits, self.monitor = fence, limits, Monitor(tolerances or 0.0)
        self._counted = counted
        if fence is None and not supervised:
            raise ValueError("there is nothing to learn from: give a fence, or supervised=True")
        self.supervised, self.mirrors, self.temperatures = supervised, tuple(mirrors), temperatures
        self._dice_loss = _dice_loss(dice_weight) if supervised and dice_weight else None
        self.batch_size, self.lr, self.schedule = batch_size, lr, schedule
        self.seed, self.cuda_graphs = seed, cuda_graphs
        self._train, self._validation, self._varied = train, validation, varied
        self._placed: dict[str, Mapping[str, Tensor]] = {}
        self._graphed: Graphed | None = None
        self._like: dict[str, Residual] = {}
        self._losses: list[Tensor] = []
        self._overlaps: list[Tensor] = []
        self._pulls: dict[str, list[Tensor]] = {}

    # The steps

    def forward(self, images: Tensor) -> Tensor:
        """Logits of uint8 images."""
        scaled = images.float().div_(255.0)
        logits: Tensor = self.network(scaled.to(memory_format=self.memory_format))
        return logits

    def answer(self, images: Tensor) -> Tensor:
        """Logits of uint8 images as they are judged: where there are mirrors, the log of the mean probabilities."""
        if not self.mirrors:
            logits: Tensor = self(images)
            return logits
        mean = mean_answer(self, images, self.mirrors).float()
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """Cross-entropy (and Dice loss) if the masks are used, and the limits' term if there are limits."""
        batch = batch if self._varied is None else self._varied(batch)
        if self._graphed is not None and self._graphed.fits(batch):
            logits, residuals = self._replayed(self._graphed, batch)
        else:
            logits, residuals = self._measured(batch)
        loss = torch.zeros((), device=self.device)
        if self.supervised:
            labels = _labels(batch["mask"])
            loss = loss + F.cross_entropy(logits, labels)
            if self._dice_loss is not None:
                loss = loss + self._dice_loss(logits.float(), labels)
        if self.fence is not None:
            loss = loss + self.fence(index=batch["index"], **residuals)
        self._losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Batch, number: int) -> None:
        """What Dice is made of, and whether the limits hold."""
        logits = self.answer(batch["image"])
        region = Region(logits)
        residuals = self.limits(region, batch)
        counted = residuals if self._counted is None else self._counted(region, batch)
        self.monitor.update(index=batch["index"], **counted)
        self._overlaps.append(overlap(logits, batch["mask"], batch.get("judged")))
        # Multipliers that a method keeps belong to training images; those it implies are everywhere.
        if self.fence is not None and not isinstance(self.fence, DualMethod):
            for name, duals in self.fence.duals(index=None, **residuals).items():
                there = duals[residuals[name].present]
                self._pulls.setdefault(name, []).append(there * len(logits))  # per image, not per batch

    # The epochs

    def on_fit_start(self) -> None:
        """Record CUDA graphs if wanted, now that the network is on its device."""
        one_batch_a_step = self.trainer.accumulate_grad_batches == 1  # a replay overwrites the gradients before
        if self.cuda_graphs and one_batch_a_step and self.device.type == "cuda":
            batch = next(iter(self.train_dataloader()))
            self._capture(batch if self._varied is None else self._varied(batch))

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
        overlaps, self._overlaps = torch.cat(self._overlaps), []
        pulls, self._pulls = self._pulls, {}
        scores = dice(overlaps, self._validation.get("case"))
        self.log("dice", scores.nanmean())
        if scores.shape[1] > 1:
            for number, score in enumerate(scores.unbind(dim=1), start=1):
                self.log(f"dice/{number}", score.nanmean())
        for name, duals in pulls.items():
            some = torch.cat(duals)
            if len(some):
                self.log(f"fence/mean_multiplier/{name}", some.mean())
                self.log(f"fence/max_multiplier/{name}", some.max())

    # From a batch to what its loss is made of

    def _measured(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Residual]]:
        logits = self(batch["image"])
        return logits, {} if self.fence is None else self.limits(Region(logits), dict(batch))

    def _capture(self, batch: Batch) -> None:
        """Record the same as CUDA graphs."""
        apart = ("index", "mask") if self.fence else [name for name in batch if name != "image"]
        read = {name: tensor for name, tensor in batch.items() if name not in apart}
        dtype = torch.bfloat16 if "bf16" in str(self.trainer.precision) else None
        rows, _, *space = batch["image"].shape
        channels = 1 + self._validation["mask"].shape[1]
        logits = torch.zeros(rows, channels, *space, device=self.device, requires_grad=True)
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
        """The training set in a new order each epoch; without its masks, unless they are what it learns from."""
        rows = {name: tensor for name, tensor in self._train.items() if self.supervised or name != "mask"}
        return Batches(
            self._near("train", rows),
            self.batch_size,
            seed=self.seed,
            epoch=lambda: self.current_epoch,
            device=self.device,
        )

    def val_dataloader(self) -> Batches:
        """The validation set."""
        many = VALIDATION_BATCH if self._validation["image"].ndim == 4 else self.batch_size  # volumes are large
        return Batches(self._near("validation", self._validation), many, device=self.device)

    def _near(self, what: str, rows: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Rows on the module's device if half of what is free there holds them; else where they are."""
        if self.device.type != "cuda":
            return rows
        if what not in self._placed:  # once, for what is placed takes from what is free
            needed = sum(tensor.nbytes for tensor in rows.values())
            fits = needed < torch.cuda.mem_get_info(self.device)[0] // 2
            self._placed[what] = {name: tensor.to(self.device) for name, tensor in rows.items()} if fits else rows
        return self._placed[what]


def overlap(logits: Tensor, masks: Tensor, judged: Tensor | None = None) -> Tensor:
    """|P∩Y| and |P| + |Y| of the likeliest class P and the mask Y: float64 ``[B, K, 2]``.

    Args:
        logits: ``[B, 1 + K, *space]``.
        masks: bool ``[B, K, *space]``.
        judged: bool ``[B, *space]``, the pixels that count; all of them unless given.
    """
    classes = torch.arange(1, logits.shape[1], device=logits.device)
    predicted = logits.argmax(dim=1, keepdim=True) == classes.view(1, -1, *[1] * (masks.ndim - 2))
    if judged is not None:
        predicted, masks = predicted & judged.unsqueeze(1), masks & judged.unsqueeze(1)
    both, found, true = (one.flatten(2).sum(dim=-1) for one in (predicted & masks, predicted, masks))
    return torch.stack([both, found + true], dim=-1).double()


def dice(overlaps: Tensor, case: Tensor | None = None) -> Tensor:
    """2|P∩Y| / (|P| + |Y|): ``[cases, K]``, cases in the order of their numbers; two empty masks give 1.

    Args:
        overlaps: of ``overlap``, a row for each image.
        case: int64, the number of the case that each row is part of; each is its own unless given. A case whose
            number is negative is left out.
    """
    if case is not None:
        case = case.to(overlaps.device)
        known = case >= 0
        numbers, place = case[known].unique(return_inverse=True)
        rows = overlaps.new_zeros(len(numbers), *overlaps.shape[1:])
        overlaps = rows.index_add_(0, place, overlaps[known])
    both, total = overlaps.unbind(dim=-1)
    return torch.where(total > 0, 2.0 * both / total.clamp(min=1.0), 1.0)


def _dice_loss(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    """weight · (1 - 2Σsy / (Σs + Σy)), sums over all the batch's pixels: empty slices do not count as zero."""
    from monai.losses.dice import DiceLoss

    measure = DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = weight * measure(logits, labels.unsqueeze(1))
        return value

    return loss


def _labels(masks: Tensor) -> Tensor:
    """The class of each pixel: 0 where no mask is."""
    return torch.cat([~masks.any(dim=1, keepdim=True), masks], dim=1).long().argmax(dim=1)
