"""Augmentation: images are flipped, moved, scaled along the axes, and changed in brightness; never rotated.

MONAI has each of these one image at a time; here they are batched, on whatever device the batch is, and every
constraint is asked what becomes of its targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.tasks.samples import moved_targets
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.data import Batch
from ringfence.weak.training.settings import AugmentSettings, flip_axes


@dataclass(frozen=True)
class Augmentation:
    """x' = ±s·x + d along each axis, for image, mask and targets alike; e^field·(c·x^γ + b) + noise for brightness.

    Random numbers come from torch's own generator.

    Attributes:
        settings: how much of each.
        constraints: whose targets move with the images.
        patch: a window of this size is cut from each image first; None for the whole of it.
    """

    settings: AugmentSettings
    constraints: Mapping[str, Constraint]
    patch: Sequence[int] | None = None

    @classmethod
    def of(cls, task: Task, settings: AugmentSettings) -> Augmentation:
        """For a task: its constraints, and a patch of each of its volumes, if it has volumes."""
        return cls(settings, task.constraints, task.space if len(task.space) == 3 else None)

    def __call__(self, batch: Batch) -> Batch:
        """The batch as it is trained on."""
        if self.patch is not None:
            batch = cropped(batch, self.constraints, self.patch)
        return augmented(batch, self.constraints, self.settings)


def augmented(batch: Batch, constraints: Mapping[str, Constraint], settings: AugmentSettings) -> Batch:
    """A batch with every image augmented in its own way; targets are those of the images as they are then."""
    # Where a pixel comes from needs more than bfloat16's 8 bits: autocast would move masks off their boxes.
    with torch.autocast(batch["image"].device.type, enabled=False):
        return _augmented(batch, constraints, settings)


def _augmented(batch: Batch, constraints: Mapping[str, Constraint], settings: AugmentSettings) -> Batch:
    images = batch["image"]
    rows, axes = len(images), images.ndim - 2
    scale = 1.0 + settings.scale * _uniform(rows, axes, images.device)
    shift = settings.shift * _uniform(rows, axes, images.device)
    for axis in flip_axes(settings.flip):
        turned = torch.rand(rows, device=images.device) < 0.5
        scale[:, axis] = torch.where(turned, -scale[:, axis], scale[:, axis])
    varied = dict(batch)
    varied["image"] = _brightened(_moved(images, scale, shift, "bilinear"), settings)
    if "mask" in batch:
        varied["mask"] = _moved(batch["mask"], scale, shift, "nearest") > 0
    return varied | moved_targets(batch, constraints, Motion.resampled(scale, shift, images.shape[2:]))


def cropped(batch: Batch, constraints: Mapping[str, Constraint], window: Sequence[int]) -> Batch:
    """A window of each image, two of three around a place within one of its boxes, if it has any."""
    images = batch["image"]
    rows, axes, device = len(images), images.ndim - 2, images.device
    space, wanted = torch.tensor(images.shape[2:], device=device), torch.tensor(window, device=device)
    anywhere = (torch.rand(rows, axes, device=device) * (space - wanted + 1)).floor()
    start = _around_boxes(batch["box"], wanted, anywhere) if "box" in batch else anywhere
    start = torch.minimum(start.long().clamp(min=0), space - wanted)
    places = [
        (start[:, axis, None] + torch.arange(length, device=device)).view(
            rows, *[length if one == axis else 1 for one in range(axes)]
        )
        for axis, length in enumerate(window)
    ]
    row = torch.arange(rows, device=device).view(rows, *[1] * axes)
    here: tuple[Tensor | slice, ...] = (row, slice(None), *places)
    part = {name: batch[name][here].movedim(-1, 1) for name in ("image", "mask") if name in batch}
    return batch | part | moved_targets(batch, constraints, Motion.crop(start, images.shape[2:], window))


def _around_boxes(boxes: Tensor, wanted: Tensor, anywhere: Tensor) -> Tensor:
    """Where windows begin, two of three of them around a place within a box."""
    boxes = boxes.flatten(1, -3)  # of whatever class
    rows, _, axes, _ = boxes.shape
    there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    chance = torch.rand(there.shape, device=boxes.device)
    chosen = boxes[torch.arange(rows, device=boxes.device), torch.where(there, chance, -1.0).argmax(dim=1)]
    within = chosen[..., 0] + torch.rand(rows, axes, device=boxes.device) * (chosen[..., 1] - chosen[..., 0])
    around = (within - torch.rand(rows, axes, device=boxes.device) * wanted).floor()
    aimed = there.any(dim=1) & (torch.rand(rows, device=boxes.device) < 2 / 3)
    return torch.where(aimed[:, None], around, anywhere)


def _uniform(rows: int, axes: int, device: torch.device) -> Tensor:
    """Numbers between -1 and 1: ``[rows, axes]``."""
    return 2.0 * torch.rand(rows, axes, device=device) - 1.0


def _moved(images: Tensor, scale: Tensor, shift: Tensor, mode: str) -> Tensor:
    """Sampled where x' came from: x = (x' - d) / s about the middle. Beyond the image there is nothing."""
    rows, axes = scale.shape
    matrix = torch.zeros(rows, axes, axes + 1, device=images.device)
    # grid_sample counts from -1 to 1, and its axes from the last to the first
    for axis in range(axes):
        matrix[:, axes - 1 - axis, axes - 1 - axis] = 1.0 / scale[:, axis]
        matrix[:, axes - 1 - axis, axes] = -2.0 * shift[:, axis] / scale[:, axis]
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    moved = F.grid_sample(images.float(), grid, mode=mode, padding_mode="zeros", align_corners=False)
    return moved.round_().to(images.dtype) if images.dtype == torch.uint8 else moved


def _brightened(images: Tensor, settings: AugmentSettings) -> Tensor:
    if settings.intensity == settings.bias == settings.noise == 0.0:
        return images
    ones = [1] * (images.ndim - 1)
    draws = settings.intensity * _uniform(len(images), 3, images.device)
    contrast, brightness, gamma = (draw.view(-1, *ones) for draw in draws.unbind(dim=1))
    grey = (images.float() / 255.0).pow(gamma.exp())
    grey = (1.0 + contrast) * (grey - 0.5) + 0.5 + 0.5 * brightness
    if settings.bias > 0.0:
        grey = grey * _field(images, settings.bias).exp()
    if settings.noise > 0.0:
        strength = settings.noise * torch.rand(len(images), *ones, device=images.device)
        grey = grey + strength * torch.randn_like(grey)
    # what was black beyond the image's border stays so, or it would tell how the image was varied
    return torch.where(images > 0, (255.0 * grey).clamp(0.0, 255.0).round(), 0.0).to(images.dtype)


def _field(images: Tensor, strength: float) -> Tensor:
    """Normal numbers on a coarse grid, smooth in between; the same for all channels: ``[B, 1, *space]``."""
    space = images.shape[2:]
    coarse = strength * torch.randn(len(images), 1, *[4] * len(space), device=images.device)
    return F.interpolate(coarse, space, mode="bicubic" if len(space) == 2 else "trilinear")
