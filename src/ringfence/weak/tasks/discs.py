"""The synthetic task: two discs, and constraints on the size and the centroid of the darker one."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.centroid import Centroid
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.size import Size
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.tasks.settings import DiscSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.two_discs import two_discs

PAPER_SIZE: Final = 256
PAPER_CENTROID_SLACK: Final = 20.0


def disc_task(data: DiscSettings, seed: int) -> Task:
    """0.9 τ <= size <= 1.1 τ and τ - 20 px <= centroid <= τ + 20 px (by default), of each image.

    The bounds are derived from masks, which nothing else in training sees.
    """
    slack = data.centroid_slack
    if slack is None:
        slack = PAPER_CENTROID_SLACK * data.size / PAPER_SIZE
    constraints = {"size": Size(data.size_slack, boxed=False), "centroid": Centroid(slack, boxed=False)}
    train, validation = (
        _samples(data, split, count, seed, constraints)
        for split, count in (("train", data.train), ("validation", data.validation))
    )
    side = (data.size, data.size)
    return Task(
        train, validation, ("grey",), ("darker disc",), side, constraints, Preprocessing(side), bounded=True
    )


def _samples(
    data: DiscSettings, split: str, count: int, seed: int, constraints: dict[str, Constraint]
) -> dict[str, Tensor]:
    discs = two_discs(count, split=split, size=data.size, radius=data.radius, seed=seed)
    case = CaseSamples(discs.images, discs.masks[:, None])
    rows = {"image": case.image, "mask": case.mask}
    for one in constraints.values():
        rows |= one.targets(case)
    return rows
