"""Calibration: how likely a class must be at a pixel to be found there, as the boxes of training images say.

    found: class k where logit_k + level_k is the largest

Dice is largest where everything is found that is likelier than half of the Dice that there will be: if that is two
thirds, at odds of 1/2. And a barrier ends at odds at which only what is surely in its box stays: what is likeliest
has no corners, and is a little small. So a level is that of odds of 1/2, or the nearest to it at which boxes of
what is found in training images overlap with those that were drawn as well as at any other, but for a standard
error. No mask is looked at. If that is at odds above 1, it is 1: half of a Dice is never more than even, and
training images, which were learnt, look surer than others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import pytorch_lightning as pl
import torch
from torch import Tensor

from ringfence.lightning import log_epoch
from ringfence.weak.ranks.world import from_all
from ringfence.weak.tasks.windows import pixels_of
from ringfence.weak.training.box_agreement import agreements, counting
from ringfence.weak.training.loading.data import VALIDATION_BATCH
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.validation import LAST

USUAL: Final = math.log(2.0)
"""Odds of 1/2."""
LEVELS: Final = tuple(0.5 * USUAL * step for step in range(-4, 5))
"""Odds from 4 to 1/4."""
MOST: Final = 256
"""Training images that are looked at."""
KNOWN: Final = ("box", "whole", "margin")


class Calibration(pl.Callback):
    """Before each of the last validations: levels from the training images' boxes. The model keeps the last ones.

    Training goes on without them. Of several ranks, each looks at a share of the images.

    Args:
        rows: the samples for training, slices with boxes: ``task.train``.
    """

    def __init__(self, rows: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._rows = rows

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """From now on the module's logits may have levels: before anything of it is recorded."""
        _ours(pl_module).levelled = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take back those of the epoch before."""
        ours = _ours(pl_module)
        ours.network.level([0.0] * ours.classes)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set levels, and log them."""
        if not self._due(trainer):
            return
        module = _ours(pl_module)
        numbers = some_with_boxes(self._rows)[trainer.global_rank :: trainer.world_size]
        with trainer.precision_plugin.val_step_context():
            found = self._measured(module, numbers)
        levels = best_levels(torch.tensor(from_all(found.tolist()), dtype=torch.float64).sum(dim=0))
        module.network.level(levels)
        names = ["level"] if len(levels) == 1 else [f"level/{number}" for number in range(1, 1 + len(levels))]
        log_epoch(module, dict(zip(names, map(torch.tensor, levels), strict=True)))

    def _due(self, trainer: pl.Trainer) -> bool:
        return not trainer.sanity_checking and trainer.current_epoch >= (trainer.max_epochs or 0) - LAST

    def _measured(self, module: WeakSegmentation, numbers: Tensor) -> Tensor:
        found = torch.zeros(len(LEVELS), module.classes, 3, dtype=torch.float64)
        for some in numbers.split(VALIDATION_BATCH) if len(numbers) else ():
            batch = {name: self._rows[name][some].to(module.device) for name in KNOWN}
            images = pixels_of(self._rows, some)["image"]
            found += agreements_at(module.predicted(images.to(module.device)), batch).cpu()
        return found


def some_with_boxes(rows: Mapping[str, Tensor], most: int = MOST) -> Tensor:
    """Numbers of samples that have a box that tells, evenly spread over all of them: no more than ``most``."""
    there = counting(rows).flatten(1).any(dim=1).nonzero().flatten().cpu()
    return there[:: max(1, math.ceil(len(there) / most))]


def agreements_at(logits: Tensor, batch: Mapping[str, Tensor], levels: Sequence[float] = LEVELS) -> Tensor:
    """Of each class's agreements at each level of its own: number, sum, and sum of squares: ``[levels, K, 3]``.

    Args:
        logits: ``[B, 1 + K, *space]``.
        batch: ``box``, ``whole`` and ``margin``: what is found so close to a side, within the box, touches it.
        levels: of one class at a time.
    """
    classes = logits.shape[1] - 1
    found = torch.zeros(len(levels), classes, 3, dtype=torch.float64, device=logits.device)
    for row, level in enumerate(levels):
        for number in range(classes):
            shifted = logits.clone()
            shifted[:, 1 + number] += level
            label, each = agreements(shifted, batch, margins=True).unbind(dim=1)
            own = each[label == number]
            found[row, number] = torch.stack([torch.ones_like(own), own, own.square()]).sum(dim=1)
    return found


def best_levels(found: Tensor, levels: Sequence[float] = LEVELS) -> list[float]:
    """The level of each class, of ``agreements_at``: the nearest to USUAL of those that are as good as the best.

    That is, within a standard error of its mean. Below 0 it is 0: what is likeliest is always found. A class
    without a box has USUAL.
    """
    chosen = []
    for count, total, squares in found.permute(1, 2, 0):
        boxes, mean = count.clamp(min=1.0), total / count.clamp(min=1.0)
        error = ((squares / boxes - mean.square()).clamp(min=0.0) / boxes).sqrt()
        best = int(mean.argmax())
        good = (mean >= mean[best] - error[best]).tolist()
        nearest = min((one for one, is_good in zip(levels, good, strict=True) if is_good), key=_from_usual)
        chosen.append(max(nearest, 0.0))
    return chosen


def _from_usual(level: float) -> float:
    return abs(level - USUAL)


def _ours(module: pl.LightningModule) -> WeakSegmentation:
    if not isinstance(module, WeakSegmentation):
        raise TypeError(
            f"calibration is for a WeakSegmentation, whose network has levels; got {type(module).__name__}"
        )
    return module
