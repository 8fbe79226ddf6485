"""Boxes from masks: what an annotator would have drawn, for experiments where the masks are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.extras import require
from ringfence.weak.annotations.ragged import Box, objects_at, padded_boxes, present_first


def boxes_from_masks(masks: Tensor, margin: int = 0, smallest: int = 1) -> Tensor:
    """The tight boxes ``[N, K, objects, axes, 2]`` of every mask's parts: first voxel and one past the last.

    A part is a set of voxels that touch by their faces, and each has a box of its own: a line across the box around
    two objects may pass between them. Boxes of a mask are ordered by where they begin; ``objects`` is the largest
    number in the batch, at least 1, and masks with fewer are padded with empty boxes (all zeros). Parts whose boxes
    are the same share one.

    Args:
        masks: bool ``[N, K, *space]``; any number of axes in space.
        margin: voxels by which a box is wider on every side, as far as the image goes.
        smallest: voxels; a part with fewer has no box. (A box constraint then says that nothing is there.)

    Returns:
        int64 on the masks' device.
    """
    if masks.dtype != torch.bool:
        raise TypeError(f"masks should be bool, not {masks.dtype}: compare with the label first")
    if masks.dim() < 3:
        raise ValueError(f"masks of shape {list(masks.shape)}: [N, K, *space] has at least three axes")
    if margin < 0:
        raise ValueError(f"margin is {margin}: a box that is smaller than the object does not contain it")
    if smallest < 1:
        raise ValueError(f"smallest is {smallest}: a part has at least 1 voxel")
    sizes = masks.shape[2:]
    lists: list[list[Box]] = [[] for _ in range(masks.shape[0] * masks.shape[1])]
    if masks.numel():
        ndimage = require("scipy.ndimage", "boxes from masks", "train")
        around = _around(masks).flatten(0, 1).cpu().numpy()
        flat = masks.flatten(0, 1).cpu().numpy()
        for number in np.flatnonzero(around[:, 0, 1]):  # the others are empty
            for box in _parts(ndimage, flat[number], around[number], smallest):
                ends = zip(box, sizes, strict=True)
                lists[number].append(
                    tuple((max(start - margin, 0), min(stop + margin, size)) for (start, stop), size in ends)
                )
    boxes = torch.from_numpy(padded_boxes(lists, len(sizes))).to(masks.device)
    return boxes.reshape(*masks.shape[:2], *boxes.shape[1:])


def slice_boxes_from_masks(masks: Tensor, margin: int = 0, smallest: int = 1) -> Tensor:
    """The boxes of every slice of volumes, one slice deep each: ``[N, K, objects, 3, 2]``, by slice, then as there.

    Args:
        masks: bool ``[N, K, slices, rows, columns]``.
        margin: pixels by which a box is wider on every side within its slice.
        smallest: pixels; a part of a slice with fewer has no box.
    """
    rows, depth = masks.shape[0], masks.shape[2]
    flat = boxes_from_masks(masks.transpose(1, 2).flatten(0, 1), margin, smallest)
    each = flat.unflatten(0, (rows, depth)).transpose(1, 2)  # [N, K, slices, objects, 2, 2]
    there = (each[..., 1] > each[..., 0]).all(dim=-1)[..., None, None]
    place = torch.arange(depth, device=masks.device)
    ends = torch.stack([place, place + 1], dim=-1).view(depth, 1, 1, 2).expand(*each.shape[:4], 1, 2)
    boxes = (torch.cat([ends, each], dim=-2) * there).flatten(2, 3)
    return objects_at(boxes, present_first(boxes))


def _around(masks: Tensor) -> Tensor:
    """The box ``[N, K, axes, 2]`` around all of a mask; 0, 0 along every axis for one without voxels."""
    sizes = masks.shape[2:]
    boxes = masks.new_zeros((*masks.shape[:2], len(sizes), 2), dtype=torch.int64)
    for axis, size in enumerate(sizes):
        others = tuple(2 + other for other in range(len(sizes)) if other != axis)
        line = masks.any(dim=others) if others else masks
        steps = torch.arange(size, device=masks.device)
        boxes[..., axis, 0] = torch.where(line, steps, size).amin(dim=-1)
        boxes[..., axis, 1] = torch.where(line, steps + 1, 0).amax(dim=-1)
    return boxes * (boxes[..., :1, 1:] > 0)


def _parts(ndimage: Any, mask: NDArray[np.bool_], around: NDArray[np.int64], smallest: int) -> Iterator[Box]:
    """The box of each part, looked for inside the box around them all: that is most often a small one."""
    first = [int(start) for start in around[:, 0]]
    labels, count = ndimage.label(mask[tuple(slice(start, stop) for start, stop in around.tolist())])
    voxels = np.bincount(labels.ravel(), minlength=1 + count) if smallest > 1 else None
    if count == 1 and voxels is None:
        yield tuple((start, stop) for start, stop in around.tolist())
        return
    for label, found in enumerate(ndimage.find_objects(labels), start=1):
        if voxels is None or voxels[label] >= smallest:
            yield tuple((low + one.start, low + one.stop) for low, one in zip(first, found, strict=True))
