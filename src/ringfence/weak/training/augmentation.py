"""Varying training images so that a box stays a box: mirrored, moved, scaled along the axes; never rotated.

A box of a rotated object is not the rotated box, and is no longer tight: strips across it may meet nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.weak.training.box_settings import AugmentSettings
from ringfence.weak.training.data import Batch
from ringfence.weak.training.flips import mirror_axes


def augmented(batch: Batch, settings: AugmentSettings) -> Batch:
    """x' = ±s·x + d along each axis, for image, masks and boxes alike; e^field·(c·x^γ + b) + noise for brightness.

    ``box`` (int64 ``[B, K, axes, 2]``) is cut at the image's border; ``whole`` (bool ``[B, K, axes]``) becomes
    False along the axes whose strips lost something there. Random numbers come from torch's own generator.
    """
    # Where a pixel comes from needs more than bfloat16's 8 bits: autocast would move masks off their boxes.
    with torch.autocast(batch["image"].device.type, enabled=False):
        return _augmented(batch, settings)


def _augmented(batch: Batch, settings: AugmentSettings) -> Batch:
    images = batch["image"]
    rows, axes = len(images), images.ndim - 2
    scale = 1.0 + settings.scale * _uniform(rows, axes, images.device)
    shift = settings.shift * _uniform(rows, axes, images.device)
    for axis in mirror_axes(settings.flip):
        turned = torch.rand(rows, device=images.device) < 0.5
        scale[:, axis] = torch.where(turned, -scale[:, axis], scale[:, axis])
    varied = dict(batch)
    varied["image"] = _brightened(_moved(images, scale, shift, "bilinear"), settings)
    if "mask" in batch:
        varied["mask"] = _moved(batch["mask"], scale, shift, "nearest") > 0
    size = torch.tensor(images.shape[2:], device=images.device)
    if "box" in batch:
        varied |= _moved_boxes(batch["box"], batch["whole"], scale, shift, size)
        varied["margin"] = (batch["margin"] * scale.abs()).ceil().long()
    if "size_low" in batch:
        content = scale.abs().prod(dim=1, keepdim=True)
        varied |= {name: batch[name] * content for name in ("size_low", "size_high")}
    if "centroid_low" in batch:
        bounds = torch.stack([batch["centroid_low"], batch["centroid_high"]], dim=-1)
        # a pixel's middle is half a pixel from its edge
        moved = _moved_edges(bounds + 0.5, scale, shift, size) - 0.5
        varied["centroid_low"], varied["centroid_high"] = moved.unbind(dim=-1)
    return varied


def patches(batch: Batch, size: Sequence[int]) -> Batch:
    """A window of ``size`` from each volume, two of three around a place within one of its boxes."""
    box = batch["box"]
    rows, _, axes, _ = box.shape
    space = torch.tensor(batch["image"].shape[2:], device=box.device)
    wanted = torch.tensor(size, device=box.device)
    there = (box[..., 1] > box[..., 0]).all(dim=-1)
    chance = torch.rand(there.shape, device=box.device)
    chosen = box[torch.arange(rows, device=box.device), torch.where(there, chance, -1.0).argmax(dim=1)]
    within = chosen[..., 0] + torch.rand(rows, axes, device=box.device) * (chosen[..., 1] - chosen[..., 0])
    around = (within - torch.rand(rows, axes, device=box.device) * wanted).floor()
    anywhere = (torch.rand(rows, axes, device=box.device) * (space - wanted + 1)).floor()
    aimed = there.any(dim=1) & (torch.rand(rows, device=box.device) < 2 / 3)
    start = torch.where(aimed[:, None], around, anywhere).long()
    start = torch.minimum(start.clamp(min=0), space - wanted)
    places = [
        (start[:, axis, None] + torch.arange(length, device=box.device)).view(
            rows, *[length if one == axis else 1 for one in range(axes)]
        )
        for axis, length in enumerate(size)
    ]
    row = torch.arange(rows, device=box.device).view(rows, *[1] * axes)
    window: tuple[Tensor | slice, ...] = (row, slice(None), *places)
    cropped = {name: batch[name][window].movedim(-1, 1) for name in ("image", "mask") if name in batch}
    moved = {name: batch[name] - start[:, None] for name in ("centroid_low", "centroid_high") if name in batch}
    return batch | cropped | moved | cut(box, batch["whole"], start[:, None], wanted)


def cut(boxes: Tensor, whole: Tensor, start: Tensor, size: Tensor) -> dict[str, Tensor]:
    """Boxes as seen in a window of the image: ``box`` and ``whole`` of what is left of them.

    Strips across a box, perpendicular to an axis, are as full as promised only if the box is whole along all the
    other axes; strips that lie beyond the window are simply gone.

    Args:
        boxes: ``[B, K, axes, 2]``.
        whole: bool ``[B, K, axes]``: whether the strips along an axis were whole before.
        start: the window's first pixel, broadcasting against ``[B, K, axes]``.
        size: how many pixels it has along each axis, likewise.
    """
    moved = boxes - start.unsqueeze(-1)
    inside = torch.minimum(moved.clamp(min=0), size.unsqueeze(-1))
    uncut = (inside == moved).all(dim=-1)
    others = torch.stack(
        [
            uncut[..., [other for other in range(uncut.shape[-1]) if other != axis]].all(dim=-1)
            for axis in range(uncut.shape[-1])
        ],
        dim=-1,
    )
    there = (inside[..., 1] > inside[..., 0]).all(dim=-1)
    return {"box": inside * there[..., None, None], "whole": whole & others}


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


def _moved_boxes(boxes: Tensor, whole: Tensor, scale: Tensor, shift: Tensor, size: Tensor) -> dict[str, Tensor]:
    # a pixel belongs to the box if its centre does
    moved = (_moved_edges(boxes, scale, shift, size) - 0.5).ceil().long()
    there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    return cut(moved * there[..., None, None], whole, torch.zeros_like(size), size)


def _moved_edges(intervals: Tensor, scale: Tensor, shift: Tensor, size: Tensor) -> Tensor:
    """Where the ends of intervals ``[B, K, axes, 2]`` get to, lower end first."""
    middle = size / 2
    ends = (intervals - middle[:, None]) * scale[:, None, :, None] + (middle + shift * size)[:, None, :, None]
    return ends.sort(dim=-1).values


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


def padded(volume: Tensor, shape: Sequence[int]) -> Tensor:
    """``[B, C, z, y, x]`` with zeros after the end of each axis of space: how a network learns what is beyond."""
    missing = [size - length for size, length in zip(shape, volume.shape[2:], strict=True)]
    return F.pad(volume, [width for pair in reversed(missing) for width in (0, pair)])
