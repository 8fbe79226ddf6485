"""Patches of volumes: where they are cut, and what becomes of images and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from ringfence.weak.constraints.boxes import compacted
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.tasks.samples import moved_targets
from ringfence.weak.tasks.windows import PIXELS
from ringfence.weak.training import draws

Batch: TypeAlias = dict[str, Tensor]
AIMED: Final = 2 / 3
"""Of the patches: around a place within a box; the others are anywhere."""


@dataclass(frozen=True)
class Patches:
    """A window of each volume, two of three around a place within one of its objects' boxes, if it has any.

    Attributes:
        size: of a patch, along each axis.
        constraints: whose targets move with the images.
        boxes: of a class that are in a patch at most (``most_in_patch``), the others being dropped; None keeps all.
            The number is the same for every batch: multipliers have a place for each, and so do CUDA graphs.
    """

    size: Sequence[int]
    constraints: Mapping[str, Constraint]
    boxes: int | None = None

    def __call__(self, batch: Batch) -> Batch:
        """Patches of a batch of whole images, for loaders of one's own; ``SegmentationData`` has cut them already.

        Without ``key``, torch's own generator says where.
        """
        images = batch["image"]
        rows, device = len(images), images.device
        key = batch["key"].cpu() if "key" in batch else torch.randint(2**62, (rows,))
        extent = (
            batch["volume_size"].cpu()
            if "volume_size" in batch
            else torch.tensor(images.shape[2:]).expand(rows, -1)
        )
        aims = aims_of(batch)
        start = self.starts(key, extent, None if aims is None else aims.cpu()).to(device)
        index = torch.arange(rows, device=device)
        whole = [name for name in batch if name in PIXELS]
        pixels = {name: self.cut(batch[name], index, start) for name in whole}
        return {**self.moved(batch, start), **pixels}

    def starts(self, key: Tensor, extent: Tensor, boxes: Tensor | None = None) -> Tensor:
        """Where patches begin: int64 ``[rows, axes]``, which depends on the samples' keys alone.

        Args:
            key: int64 ``[rows]``, of ``draws.keys``.
            extent: int64 ``[rows, axes]``, the volumes' own sizes, none less than a patch's.
            boxes: int64 ``[rows, ..., axes, 2]``.
        """
        axes, size = extent.shape[1], torch.tensor(self.size)
        # doubles, where a product with a number below 1 is below the other factor; on the CPU, where all agree
        chance = draws.uniform(key, 3 * axes + 2, draws.PATCH).double()
        anywhere, within, before, which = chance.split([axes, axes, axes, 2], dim=1)
        start = (anywhere * (extent - size + 1)).floor()
        if boxes is not None:
            boxes = boxes.flatten(1, -3)  # of whatever class
            there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
            # the n-th of those that are there, n drawn from 0 to their number
            number = (which[:, :1] * there.sum(dim=1, keepdim=True)).floor()
            chosen = boxes[
                torch.arange(len(boxes)), ((there.cumsum(dim=1) == number + 1) & there).int().argmax(dim=1)
            ]
            place = chosen[..., 0] + within * (chosen[..., 1] - chosen[..., 0])
            aimed = there.any(dim=1) & (which[:, 1] < AIMED)
            start = torch.where(aimed[:, None], (place - before * size).floor(), start)
        return torch.minimum(start.long().clamp(min=0), extent - size)

    def cut(self, volumes: Tensor, index: Tensor, start: Tensor) -> Tensor:
        """Windows of volumes ``[N, C, *space]``: those of rows ``index``, as ``[rows, C, *size]``."""
        rows, axes, device = len(index), len(self.size), volumes.device
        places = [
            (start[:, axis, None] + torch.arange(length, device=device)).view(
                rows, *[length if one == axis else 1 for one in range(axes)]
            )
            for axis, length in enumerate(self.size)
        ]
        here: tuple[Tensor | slice, ...] = (index.view(rows, *[1] * axes), slice(None), *places)
        return volumes[here].movedim(-1, 1).contiguous()

    def moved(self, targets: Mapping[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        """A batch's targets as they are in its patches."""
        motion = Motion.crop(start, self.size, self.size)
        moved = {**targets, **moved_targets(targets, self.constraints, motion)}
        for name in ("volume_size", "aim"):  # those of volumes
            moved.pop(name, None)
        return moved if self.boxes is None else moved | compacted(moved, self.boxes)


def aims_of(targets: Mapping[str, Tensor]) -> Tensor | None:
    """The boxes at which patches are aimed: one for an object, however many slices it has a box in."""
    return targets.get("aim", targets.get("box"))


def most_in_patch(boxes: Tensor, depth: int) -> int:
    """How many boxes of a class can be in one patch, at least 1.

    Args:
        boxes: int64 ``[N, K, objects, axes, 2]``, of the volumes.
        depth: of a patch, along the first axis.
    """
    there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    start, stop = boxes[..., 0, 0], boxes[..., 0, 1]
    most = 1
    for first in range(max(1, int(stop.max()) if stop.numel() else 1)):
        inside = there & (start < first + depth) & (stop > first)
        most = max(most, int(inside.sum(dim=-1).max()))
    return most
