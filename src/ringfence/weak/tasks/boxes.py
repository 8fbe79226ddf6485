"""Training from boxes: slices or patches of a prepared set, and the paper's three limits on what is in a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ringfence.residuals import Residual, at_least, at_most, between
from ringfence.segmentation import Region
from ringfence.weak.prepared.prepared_set import PreparedSet, read_prepared
from ringfence.weak.tasks.samples import check_memory, read_labels, slice_rows, tile_rows, volume_rows
from ringfence.weak.tasks.task import Limits, Task
from ringfence.weak.training.augmentation import augmented, patches
from ringfence.weak.training.box_settings import AugmentSettings, BoxSettings, LimitSettings
from ringfence.weak.training.data import Batch
from ringfence.weak.training.settings import Unit

LIMITS: Final = ("strips", "outside", "size", "given_size", "centroid")


@dataclass(frozen=True)
class BoxTask(Task):
    """Σ of a strip >= its width, nothing outside of the box, no more than the box: ``f <= 0`` satisfied.

    Rows have ``box`` (int64 ``[N, K, axes, 2]``), ``whole`` (bool ``[N, K, axes]``: whether the strips along an
    axis count) and ``margin`` (int64 ``[N, axes]``: pixels by which a box may be too wide).

    Attributes:
        asked: which limits.
        augment: how training images are varied.
    """

    asked: LimitSettings
    augment: AugmentSettings

    @property
    def limit_names(self) -> tuple[str, ...]:
        """Those that are asked for, of ``LIMITS``."""
        given = {"given_size": "size_low", "centroid": "centroid_low"}
        return tuple(name for name in LIMITS if (given[name] in self.train if name in given else self.asked.box))

    def limits(self, unit: Unit) -> Limits:
        """Σ of each strip of width w >= w; Σ outside of the box <= 0; V <= |box| (times the shares asked for).

        And, where rows have bounds, low <= V <= high (``given_size``) and low <= C <= high (``centroid``). In
        ``relative`` units a strip is measured in its width, a centroid in the box's mean side, the others in the
        box's size, or in the image's where there is no box.
        """
        asked = self.asked

        def limits(region: Region, batch: Batch) -> dict[str, Residual]:
            residuals = _in_box(region, batch, asked, unit) if asked.box else {}
            # of an object that was cut, neither size nor centroid is known
            known = batch["whole"].all(dim=-1)
            area = _area(batch["box"], region)
            if "size_low" in batch:
                scale = _content(area, region) if unit == "relative" else 1.0
                residuals["given_size"] = between(
                    region.size, batch["size_low"], batch["size_high"], mask=known, scale=scale
                )
            if "centroid_low" in batch:
                side = area.clamp(min=1.0).pow(1.0 / region.axes).unsqueeze(-1) if unit == "relative" else 1.0
                residuals["centroid"] = between(
                    region.centroid,
                    batch["centroid_low"],
                    batch["centroid_high"],
                    mask=known.unsqueeze(-1),
                    scale=side,
                )
            return residuals

        return limits

    @property
    def tolerances(self) -> dict[str, float]:
        """A softmax is never 0: outside of a box, up to a pixel in all counts as none."""
        return {"outside": 1.0}

    def varied(self, batch: Batch) -> Batch:
        """A patch of each volume, if it is volumes; mirrored, moved, scaled, brightened: see ``varying``."""
        if len(self.space) == 3:
            batch = patches(batch, self.space)
        return augmented(batch, self.augment)

    @property
    def mirrors(self) -> tuple[str, ...]:
        """Those that training images were varied by: of others a network knows nothing."""
        return tuple(self.augment.flip) if self.augment.average else ()

    def pictured(self, count: int) -> list[int]:
        """The slice with the largest box of each of the first cases."""
        case, box = self.validation["case"], self.validation["box"]
        case = torch.where(case < 0, -1 - case, case)
        area = (box[..., 1] - box[..., 0]).prod(dim=-1).sum(dim=-1)
        return [
            int(torch.where(case == one, area, -1).argmax()) for one in case.unique(sorted=True)[:count].tolist()
        ]


def _in_box(region: Region, batch: Batch, asked: LimitSettings, unit: Unit) -> dict[str, Residual]:
    """The paper's three."""
    box, whole = batch["box"], batch["whole"]
    area = _area(box, region)
    strips = region.strips(box, asked.strip_width, batch["margin"])
    there = strips.mask & whole.unsqueeze(-1)
    relative = unit == "relative"
    content = _content(area, region) if relative else 1.0
    residuals = {
        "strips": at_least(strips.sums, strips.widths, mask=there, scale=strips.widths if relative else 1.0),
        "outside": at_most(region.outside(box), 0.0, scale=content),
    }
    low, high = asked.size_low, asked.size_high
    some = area > 0
    if low is not None or high < 1.0:  # what is left of a box that was cut may hold another share of the object
        some = some & whole.all(dim=-1)
    if low is None:
        residuals["size"] = at_most(region.size, high * area, mask=some, scale=content)
    else:
        residuals["size"] = between(region.size, low * area, high * area, mask=some, scale=content)
    return residuals


def _area(boxes: Tensor, region: Region) -> Tensor:
    return (boxes[..., 1] - boxes[..., 0]).prod(dim=-1).to(region.size)


def _content(area: Tensor, region: Region) -> Tensor:
    """What relative sizes are shares of: the box or, where there is none, the image."""
    return torch.where(area > 0, area, float(math.prod(region.probabilities.shape[2:])))


def box_task(settings: BoxSettings) -> BoxTask:
    """Read a prepared set and its weak labels into memory; nothing of a training mask but its box is used.

    Without a case for validation, limits are counted on the training images: somebody may have no mask at all.
    """
    prepared = read_prepared(settings.data.prepared)
    cases = prepared.of("train")
    if not cases:
        raise ValueError(f"{prepared.path} has no case for training")
    check_memory(prepared)
    judges = prepared.of("validation") or cases
    labels = read_labels(settings.data, settings.limits, prepared)
    patch = checked_patch(settings.data.patch, prepared)
    if patch is None and "slices" in settings.augment.flip:
        raise ValueError(
            "augment.flip: slices can be mirrored in volumes alone: give data.patch, or leave them out"
        )
    if patch is None:
        train, validation = (slice_rows(prepared, some, labels) for some in (cases, judges))
    else:
        train = volume_rows(prepared, cases, labels, patch)
        validation = tile_rows(prepared, judges, labels, patch)
    if judges is cases:  # Dice on images trained on would be no Dice
        validation["case"] = torch.where(validation["case"] < 0, validation["case"], -1 - validation["case"])
    boxed = (train["box"][..., 1] > train["box"][..., 0]).all(dim=-1).any(dim=0)
    absent = [name for name, there in zip(prepared.classes, boxed.tolist(), strict=True) if not there]
    if absent:
        raise ValueError(
            f"{prepared.path}: no training image has a box of {', '.join(absent)}: nothing to learn from"
        )
    sides = train["box"][..., 1] - train["box"][..., 0] - 2 * train["margin"][:, None]
    if settings.limits.box and not bool((sides > 0).any()):
        raise ValueError(f"data.margin {settings.data.margin} leaves no strip across any box: make it smaller")
    return BoxTask(
        train,
        validation,
        prepared.channels,
        prepared.classes,
        patch or prepared.size,
        prepared.size,
        settings.limits,
        settings.augment,
        labels=prepared.labels,
    )


def checked_patch(patch: list[int] | None, prepared: PreparedSet) -> tuple[int, int, int] | None:
    """Slices, rows and columns of a patch; a volume is filled up to it, but not without end."""
    if patch is None:
        return None
    largest = (max(case.shape[0] for case in prepared.cases), *prepared.size)
    most = [2 * max(length, 16) for length in largest]
    if len(patch) != 3 or min(patch) < 1 or any(one > limit for one, limit in zip(patch, most, strict=True)):
        raise ValueError(
            f"data.patch is three numbers: slices, rows and columns of a patch, at most {most} for volumes of up "
            f"to {list(largest)}; got {patch}"
        )
    return patch[0], patch[1], patch[2]
