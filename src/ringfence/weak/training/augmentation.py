"""Augmentation: images are flipped, moved, scaled along the axes, and changed in brightness.

They are turned only for the network, whose answer is turned back (``segmentation/turning.py``): boxes cannot be.

MONAI has each of these one image at a time; here they are batched, on whatever device the batch is, and every
constraint is asked what becomes of its targets. What becomes of a sample depends on its key alone (see draws), not
on who else is in its batch, nor on the process that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.networks.fast.branches import IN_LINE, Inline
from ringfence.weak.tasks.samples import moved_targets
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.draws import bell
from ringfence.weak.training.gpu import fused_augmentation as fused
from ringfence.weak.training.loading.data import Batch
from ringfence.weak.training.settings import AugmentSettings
from ringfence.weak.training.variation import LEVELS, Variation, drawn, turns


@dataclass(frozen=True)
class Augmentation:
    """x' = ±s·x + d along each axis, for image, mask and targets alike; e^field·(c·x^γ + b) + noise for brightness.

    Each channel is changed in brightness by itself: channels are measured one after the other, and what one is like
    says nothing of another. Varied together, their ratio would stay as it is, and a network would learn from that.

    Random numbers follow from the batch's ``key`` (int64, one a sample); where it has none, from torch's generator.

    Attributes:
        settings: how much of each.
        constraints: whose targets move with the images.
    """

    settings: AugmentSettings
    constraints: Mapping[str, Constraint]

    @classmethod
    def of(cls, task: Task, settings: AugmentSettings) -> Augmentation:
        """For a task: its constraints."""
        return cls(settings, task.constraints)

    def __call__(self, batch: Batch, beside: Inline = IN_LINE) -> Batch:
        """The batch as it is trained on; what becomes of targets is found ``beside``."""
        return augmented(batch, self.constraints, self.settings, beside)


def augmented(
    batch: Batch, constraints: Mapping[str, Constraint], settings: AugmentSettings, beside: Inline = IN_LINE
) -> Batch:
    """A batch with every image augmented in its own way; targets are those of the images as they are then."""
    # Where a pixel comes from needs more than bfloat16's 8 bits: autocast would move masks off their boxes.
    with torch.autocast(batch["image"].device.type, enabled=False):
        return _augmented(batch, constraints, settings, beside)


def _augmented(
    batch: Batch, constraints: Mapping[str, Constraint], settings: AugmentSettings, beside: Inline
) -> Batch:
    images = batch["image"]
    key = keys_of(batch)
    at_once = fused.can_draw(key)
    variation = (fused.drawn_at_once if at_once else drawn)(key, images.shape, settings)
    scale, shift = variation.scale, variation.shift
    turn = turns(key, settings.turn) if settings.turn > 0.0 else None
    with beside(scale, shift, *([] if turn is None else [turn])):
        targets = moved_targets(batch, constraints, Motion.resampled(scale, shift, images.shape[2:], turn))
    varied = dict(batch) if turn is None else {**batch, "turn": turn}
    varied["image"] = varied_images(images, key, variation, settings)
    planes = [name for name in ("mask", "unsure") if name in batch]
    if planes:  # beyond the image's border is background: of that, everybody is sure
        moved = moved_masks(torch.cat([batch[name] for name in planes], dim=1), scale, shift)
        varied |= dict(zip(planes, moved.split([batch[name].shape[1] for name in planes], dim=1), strict=True))
    return varied | targets


def keys_of(batch: Batch) -> Tensor:
    """The batch's keys; fresh ones where its loader gave none."""
    if "key" in batch:
        return batch["key"]
    images = batch["image"]
    return torch.randint(2**62, (len(images),), device=images.device)


def varied_images(images: Tensor, key: Tensor, variation: Variation, settings: AugmentSettings) -> Tensor:
    """Images moved and changed in brightness: by one kernel on a GPU, where it can, and else step by step."""
    if fused.can_vary(images):
        return fused.varied(images, key, variation, settings)
    moved = _moved(images, variation.scale, variation.shift, "bilinear")
    bias = None if variation.coarse is None else _field(variation.coarse, images.shape[2:])
    return _brightened(moved, key, variation.levels, bias, settings)


def moved_masks(masks: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Masks as the images moved: that of the nearest pixel."""
    if fused.can_vary(masks):
        return fused.moved(masks, scale, shift)
    return _moved(masks, scale, shift, "nearest") > 0


def _moved(images: Tensor, scale: Tensor, shift: Tensor, mode: str) -> Tensor:
    """Sampled where x' came from: x = (x' - d) / s about the middle. Beyond the image there is nothing."""
    rows, axes = scale.shape
    matrix = torch.zeros(rows, axes, axes + 1, device=images.device, dtype=torch.float32)  # as images, below
    # grid_sample counts from -1 to 1, and its axes from the last to the first
    for axis in range(axes):
        matrix[:, axes - 1 - axis, axes - 1 - axis] = 1.0 / scale[:, axis]
        matrix[:, axes - 1 - axis, axes] = -2.0 * shift[:, axis] / scale[:, axis]
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    moved = F.grid_sample(images.float(), grid, mode=mode, padding_mode="zeros", align_corners=False)
    return moved.round_().to(images.dtype) if images.dtype == torch.uint8 else moved


def _brightened(
    images: Tensor, key: Tensor, draws: Tensor, bias: Tensor | None, settings: AugmentSettings
) -> Tensor:
    """draws: contrast, brightness, gamma and the strength of noise, of each channel of an image, in 0..1."""
    if settings.intensity == settings.bias == settings.noise == 0.0:
        return images
    each = draws.view(*images.shape[:2], LEVELS, *[1] * (images.ndim - 2))
    contrast, brightness, gamma = (settings.intensity * (2.0 * each[:, :, :3] - 1.0)).unbind(dim=2)
    grey = (images.float() / 255.0).pow(gamma.exp())
    grey = (1.0 + contrast) * (grey - 0.5) + 0.5 + 0.5 * brightness
    if bias is not None:
        grey = grey * bias.exp()
    if settings.noise > 0.0:
        strength = settings.noise * each[:, :, 3]
        grey = grey + strength * bell(key, grey[0].numel()).view(grey.shape)
    # what was black beyond the image's border stays so, or it would tell how the image was varied
    return torch.where(images > 0, (255.0 * grey).clamp(0.0, 255.0).round(), 0.0).to(images.dtype)


def _field(coarse: Tensor, space: Sequence[int]) -> Tensor:
    """What is smooth between the nodes of a coarse grid: ``[B, C, *space]``."""
    return F.interpolate(coarse, list(space), mode="bicubic" if len(space) == 2 else "trilinear")
