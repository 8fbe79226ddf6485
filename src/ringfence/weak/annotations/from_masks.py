"""Boxes from masks: what an annotator would have drawn, for experiments where the masks are known."""

from __future__ import annotations

import torch
from torch import Tensor


def boxes_from_masks(masks: Tensor, margin: int = 0) -> Tensor:
    """The tight box ``[N, K, axes, 2]`` of every mask: first voxel and one past the last, along each axis.

    Args:
        masks: bool ``[N, K, *space]``; any number of axes in space.
        margin: voxels by which a box is wider on every side, as far as the image goes.

    Returns:
        int64 on the masks' device; 0, 0 along every axis for a mask without voxels.
    """
    if masks.dtype != torch.bool:
        raise TypeError(f"masks should be bool, not {masks.dtype}: compare with the label first")
    if masks.dim() < 3:
        raise ValueError(f"masks of shape {list(masks.shape)}: [N, K, *space] has at least three axes")
    if margin < 0:
        raise ValueError(f"margin is {margin}: a box that is smaller than the object does not contain it")
    sizes = masks.shape[2:]
    boxes = masks.new_zeros((*masks.shape[:2], len(sizes), 2), dtype=torch.int64)
    if masks.numel() == 0:
        return boxes
    for axis, size in enumerate(sizes):
        others = tuple(2 + other for other in range(len(sizes)) if other != axis)
        line = masks.any(dim=others) if others else masks
        steps = torch.arange(size, device=masks.device)
        start = torch.where(line, steps, size).amin(dim=-1) - margin
        stop = torch.where(line, steps + 1, 0).amax(dim=-1) + margin
        boxes[..., axis, 0], boxes[..., axis, 1] = start.clamp(min=0), stop.clamp(max=size)
    return boxes * masks.flatten(2).any(dim=-1)[..., None, None]
