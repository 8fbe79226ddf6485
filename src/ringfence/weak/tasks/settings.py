# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""What the images are, and what is known of them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ringfence.numbers import fraction, positive_number, whole_number
from ringfence.options import check_words, inside, option


@dataclass(frozen=True)
class BoxDataSettings:
    """The images and their boxes."""

    prepared: str = option("", "the folder that `ringfence prepare` wrote; default: none, and it is needed")
    boxes: str | None = option(
        None,
        "a file of boxes (CSV, JSON, COCO), or the word masks: those around the masks; default: the boxes.csv or "
        "boxes.json that came with the set, else masks",
    )
    margin: int = option(
        0, "pixels by which boxes may be too wide on every side; those taken from masks are made so much wider"
    )
    tighten: float = option(
        0.0, "of boxes from a file that are drawn too wide: fraction of their sides that is taken off at either end"
    )
    smallest_part: int = option(
        1, "pixels; from masks, every connected part of at least this size has a box of its own"
    )
    gap: int = option(
        2, "of boxes in slices from a file: slices that may be left out between two boxes of an object; 0: none"
    )
    volumes: bool | None = option(
        None,
        "train on volumes (true), in patches that a plan derives, or on slices (false); default: as planned; "
        "without a plan, on slices, unless there is data.patch",
    )
    patch: list[int] | None = option(
        None, "train on volumes, in patches of this many slices, rows and columns; default: see data.volumes"
    )
    folds: int | None = option(
        None,
        "cross-validation: train on the training cases but for one of so many parts of them, and judge by that "
        "part; the cases for validation are not used. Default: train on all, and judge by those",
    )
    fold: int = option(
        0, "with data.folds: which part is held out, from 0; by name, every so many-th case is in it"
    )
    streamed: Literal["auto", "always", "never"] = option(
        "auto", "read images from the disk while training; auto: if they do not fit into memory"
    )
    workers: int = option(2, "of a streamed set: processes that read ahead; 0: read in the process that trains")

    def __post_init__(self) -> None:
        with inside("data."):
            check_words(self)
            whole_number("margin", self.margin, 0)
            if not 0.0 <= fraction("tighten", self.tighten) < 0.5:
                raise ValueError(f"tighten is below 0.5, or nothing would be left of a box; got {self.tighten}")
            whole_number("smallest_part", self.smallest_part)
            whole_number("gap", self.gap, 0)
            whole_number("workers", self.workers, 0)
            whole_number("fold", self.fold, 0)
            if self.folds is not None:
                whole_number("folds", self.folds, 2)
        if self.fold >= (self.folds or 1):
            known = (
                "say how many there are, data.folds" if self.folds is None else f"folds are 0 to {self.folds - 1}"
            )
            raise ValueError(f"data.fold {self.fold}: {known}")
        if self.patch is not None and (len(self.patch) != 3 or min(self.patch) < 1):
            raise ValueError(f"data.patch is three numbers: slices, rows and columns; got {self.patch}")
        if self.patch is not None and self.volumes is False:
            raise ValueError(
                f"data.volumes false asks for slices, and data.patch {self.patch} for volumes: change one of "
                "them. Where a plan's file has the other, plan again: `ringfence plan PREPARED --volumes`, or "
                "--no-volumes"
            )


@dataclass(frozen=True)
class DiscSettings:
    """The images."""

    size: int = option(64, "pixels along each side of an image")
    train: int = option(500, "how many training images")
    validation: int = option(100, "how many validation images")
    radius: float | None = option(None, "of the discs, in pixels; default: 25 at 256, and in proportion")
    size_slack: float = option(0.1, "size bounds are (1 ± this) × the true size")
    centroid_slack: float | None = option(
        None, "centroid bounds are the true one ± this many pixels; default: 20 at 256, and in proportion"
    )

    def __post_init__(self) -> None:
        with inside("data."):
            for name in ("size", "train", "validation"):
                whole_number(name, getattr(self, name))
            positive_number("size_slack", self.size_slack)
            if self.centroid_slack is not None:
                positive_number("centroid_slack", self.centroid_slack)
