"""The synthetic task: two discs, and limits on the size and the centroid of the darker one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ringfence.residuals import Residual, between
from ringfence.segmentation import Region
from ringfence.weak.constraints.bounds import centroid_bounds, size_bounds
from ringfence.weak.tasks.task import Limits, Task
from ringfence.weak.tasks.two_discs import two_discs
from ringfence.weak.training.data import Batch
from ringfence.weak.training.settings import DataSettings, Unit

PAPER_SIZE: Final = 256
PAPER_CENTROID_SLACK: Final = 20.0


@dataclass(frozen=True)
class SyntheticTask(Task):
    """Two discs; rows have the bounds ``size_low``, ``size_high``, ``centroid_low``, ``centroid_high``.

    Attributes:
        slack: of the centroid, in pixels.
    """

    slack: float

    @property
    def limit_names(self) -> tuple[str, ...]:
        """Two."""
        return "size", "centroid"

    def limits(self, unit: Unit) -> Limits:
        """0.9 τ <= size <= 1.1 τ and τ - 20 px <= centroid <= τ + 20 px (with the default slacks), per image.

        In ``relative`` units a size is measured in its true size, and a centroid in ten times its slack, so that
        both have a room of ±0.1.
        """
        room = 10.0 * self.slack if unit == "relative" else 1.0

        def limits(region: Region, batch: Batch) -> dict[str, Residual]:
            low, high = batch["size_low"], batch["size_high"]
            size = between(region.size, low, high, scale=(low + high) / 2 if unit == "relative" else 1.0)
            centroid = between(region.centroid, batch["centroid_low"], batch["centroid_high"], scale=room)
            # every image has its disc, so every bound is finite, and nobody need look for those that are not
            return {"size": replace(size, ragged=False), "centroid": replace(centroid, ragged=False)}

        return limits


def synthetic_task(data: DataSettings, seed: int) -> SyntheticTask:
    """Draw the images of a seed and derive the bounds from their masks, which nothing else in training sees."""
    slack = data.centroid_slack
    if slack is None:
        slack = PAPER_CENTROID_SLACK * data.size / PAPER_SIZE
    splits = []
    for split, count in (("train", data.train), ("validation", data.validation)):
        discs = two_discs(count, split=split, size=data.size, radius=data.radius, seed=seed)
        masks = discs.masks[:, None]
        size, centroid = size_bounds(masks, data.size_slack), centroid_bounds(masks, slack)
        splits.append(
            {
                "image": discs.images,
                "mask": masks,
                "size_low": size.low,
                "size_high": size.high,
                "centroid_low": centroid.low,
                "centroid_high": centroid.high,
            }
        )
    return SyntheticTask(
        splits[0], splits[1], ("grey",), ("darker disc",), (data.size, data.size), (data.size, data.size), slack
    )
