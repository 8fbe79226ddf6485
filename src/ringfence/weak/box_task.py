"""Training from boxes: slices or patches of a prepared set, and the paper's three limits on what is in a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.residuals import Residual, at_least, at_most, between
from ringfence.segmentation import Region
from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.batches import Batch
from ringfence.weak.box_settings import AugmentSettings, BoxSettings, LimitSettings
from ringfence.weak.prepared import Case, PreparedSet, Split, read_prepared
from ringfence.weak.settings import Unit
from ringfence.weak.task import Limits, Task
from ringfence.weak.varying import augmented

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class BoxTask(Task):
    """Rows have ``box`` (int64 ``[N, K, axes, 2]``) and ``whole`` (bool ``[N, K, axes]``: strips that count).

    Attributes:
        asked: which limits.
        augment: how training images are varied.
        margin: pixels by which boxes may be too wide on every side.
    """

    asked: LimitSettings
    augment: AugmentSettings
    margin: int = 0

    def limits(self, unit: Unit) -> Limits:
        """Σ of each strip of width w >= w; Σ outside of the box <= 0; V <= |box| (times the shares asked for).

        In ``relative`` units a strip is measured in its width, and the other two in the box's size.
        """
        asked, margin = self.asked, self.margin

        def limits(region: Region, batch: Batch) -> dict[str, Residual]:
            box = batch["box"]
            area = (box[..., 1] - box[..., 0]).prod(dim=-1).to(region.size)
            strips = region.strips(shrunk(box, margin), asked.strip_width)
            there = strips.mask & batch["whole"].unsqueeze(-1)
            relative = unit == "relative"
            content = area.clamp(min=1.0) if relative else 1.0
            residuals = {
                "strips": at_least(
                    strips.sums, strips.widths, mask=there, scale=strips.widths if relative else 1.0
                ),
                "outside": at_most(region.outside(box), 0.0, scale=content),
            }
            if asked.size_low is None:
                residuals["size"] = at_most(region.size, asked.size_high * area, mask=area > 0, scale=content)
            else:  # a box that was cut holds another share of its object
                uncut = (area > 0) & batch["whole"].all(dim=-1)
                low, high = asked.size_low * area, asked.size_high * area
                residuals["size"] = between(region.size, low, high, mask=uncut, scale=content)
            if "size_low" in batch:
                known = batch["whole"].all(dim=-1)
                residuals["given_size"] = between(
                    region.size, batch["size_low"], batch["size_high"], mask=known, scale=content
                )
            return residuals

        return limits

    def varied(self, batch: Batch) -> Batch:
        """Mirrored, moved, scaled, brightened: see ``varying``."""
        return augmented(batch, self.augment)

    def pictured(self, count: int) -> list[int]:
        """The slice with the largest box of each of the first cases."""
        case, box = self.validation["case"].abs(), self.validation["box"]
        area = (box[..., 1] - box[..., 0]).prod(dim=-1).sum(dim=-1)
        return [
            int(torch.where(case == one, area, -1).argmax()) for one in case.unique(sorted=True)[:count].tolist()
        ]


def shrunk(boxes: Tensor, margin: int) -> Tensor:
    """Boxes without their outermost pixels: what is left of a box that may be that much too wide is crossed."""
    if margin == 0:
        return boxes
    low, high = boxes[..., 0] + margin, boxes[..., 1] - margin
    left = (high > low).all(dim=-1, keepdim=True)
    return torch.stack([low * left, high * left], dim=-1)


def box_task(settings: BoxSettings) -> BoxTask:
    """Read a prepared set and its weak labels into memory; nothing of a training mask but its box is used."""
    prepared = read_prepared(settings.data.prepared)
    for split in ("train", "validation"):
        if not prepared.of(split):
            raise ValueError(f"{prepared.path} has no case for {split}")
    train, validation = _rows(prepared, "train", settings), _rows(prepared, "validation", settings)
    return BoxTask(
        train,
        validation,
        prepared.channels,
        prepared.classes,
        prepared.size,
        settings.limits,
        settings.augment,
        settings.data.margin,
    )


def _rows(prepared: PreparedSet, split: Split, settings: BoxSettings) -> dict[str, Tensor]:
    cases = prepared.of(split)
    images, masks, numbers = [], [], []
    for number, case in enumerate(cases):
        image, mask = prepared.load(case)
        images.append(torch.from_numpy(image))
        masks.append(_masks(mask, case, prepared))
        numbers.append(torch.full((len(image),), number if case.masked else -1))
    rows = {"image": torch.cat(images), "mask": torch.cat(masks)}
    rows["box"] = _boxes(rows["mask"], cases, prepared, settings)
    rows["whole"] = torch.ones(rows["box"].shape[:-1], dtype=torch.bool)
    if split == "validation":
        rows["case"] = torch.cat(numbers)
    return rows


def _boxes(masks: Tensor, cases: Sequence[Case], prepared: PreparedSet, settings: BoxSettings) -> Tensor:
    unmasked = [case.name for case in cases if not case.masked]
    if unmasked:
        raise ValueError(f"no masks and no boxes for {', '.join(unmasked[:5])}: give boxes by data.boxes")
    return boxes_from_masks(masks, settings.data.margin)


def _masks(
    labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None, case: Case, prepared: PreparedSet
) -> Tensor:
    """bool ``[slices, classes, height, width]``; all False where there are none."""
    shape = (case.shape[0], len(prepared.classes), *prepared.size)
    if labels is None:
        return torch.zeros(shape, dtype=torch.bool)
    found = torch.from_numpy(labels)
    return torch.stack([found == number for number in range(1, 1 + shape[1])], dim=1)
