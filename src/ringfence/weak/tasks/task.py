"""What every task is to the training: rows to learn from, rows to be judged by, and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.training.data import Batch
from ringfence.weak.training.settings import Unit

Limits: TypeAlias = Callable[[Region, Batch], dict[str, Residual]]
"""What is asked of a region, given the weak labels in its batch: residuals by name."""


@dataclass(frozen=True)
class Task(ABC):
    """Images, weak labels and truth.

    Attributes:
        train: rows by name: ``image`` (uint8 ``[N, channels, *space]``), ``mask`` (bool ``[N, classes, *space]``;
            only full supervision looks at it) and the weak labels that ``limits`` reads.
        validation: likewise, of other images; ``case`` (int64 ``[N]``, which patient a row is part of) where Dice
            is of patients, and ``judged`` (bool ``[N, *space]``) where some pixels have no truth.
        channels: names of the images' channels.
        classes: names of the foreground classes.
        space: the size of what the network is given.
        size: height and width of a whole image.
        labels: the classes' values in masks; 1, 2, ... unless given.
    """

    train: dict[str, Tensor]
    validation: dict[str, Tensor]
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    space: tuple[int, ...]
    size: tuple[int, int]
    labels: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    @abstractmethod
    def limit_names(self) -> tuple[str, ...]:
        """What the limits are called."""

    @abstractmethod
    def limits(self, unit: Unit) -> Limits:
        """The limits, with residuals measured in ``unit``."""

    @property
    def tolerances(self) -> dict[str, float]:
        """By how many pixels a limit may be exceeded and still count as held, by its name; by none unless given."""
        return {}

    def varied(self, batch: Batch) -> Batch:
        """A training batch as it is trained on: augmented, or cut into patches, on whatever device it is."""
        return batch

    @property
    def mirrors(self) -> tuple[str, ...]:
        """What a network's answers are averaged over, by the names of ``mirrors.AXES``; nothing unless given."""
        return ()

    def pictured(self, count: int) -> list[int]:
        """Rows of the validation set to keep pictures of."""
        return list(range(min(count, len(self.validation["image"]))))
