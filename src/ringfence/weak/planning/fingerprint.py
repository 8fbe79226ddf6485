"""What a prepared set and its boxes are like, in a few numbers: all that a plan is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ringfence.weak.annotations import BoxAnnotation, boxes_from_masks, place_boxes
from ringfence.weak.annotations.joining import joined_slices
from ringfence.weak.appearance.overlap import area_of, lies_in
from ringfence.weak.planning.showing import what_shows
from ringfence.weak.planning.sides import Sided, sided
from ringfence.weak.prepared.prepared_set import Case, PreparedSet

Boxes: TypeAlias = NDArray[np.int64]
LOOKED: Final = 10
"""Boxes of a class that must have been looked at before it is said not to show."""
VISIBLE: Final = 0.25
"""Of the boxes of a class, in which the object is told from its surroundings by brightness: enough to go by."""
FILLED: Final = 0.68
"""Of a box: what shows and seems to fill less is no ellipse along the axes: that seems to fill 0.70 or more."""
OFTEN: Final = 0.8
"""In this fraction of its boxes a class lies within another, for it to count as being inside of that."""
DRAWN: Final = 0.25
"""Of a class's boxes in slices that somebody drew, those around what is in their own slice. With fewer, its boxes
are in 3-D, of which a few go through one slice."""


@dataclass(frozen=True)
class ClassFacts:
    """A class's boxes in the slices for training, in pixels of the prepared set.

    Attributes:
        name: of the class.
        cases: in how many it is.
        slices: in how many it is.
        boxes: how many there are.
        together: the most in one slice.
        rows: heights of boxes: the 10th, 50th and 90th percentile.
        columns: widths, likewise.
        share: of all pixels of all slices, what lies in its boxes.
        tight: how many boxes are drawn around what is in their own slice.
        visible: of some of these, the share in which the object is told from its surroundings by brightness.
        fill: what such an object seems to fill of its box: the median. Ellipses: 0.70 and more.
        loose: by which fraction of its side a box seems too wide at either end; None if too few objects show.
        alike: intersection over union of a box and the one in the next slice that is most like it: the mean; 0
            where there is no next slice.
        looked: how many boxes ``visible`` is about: neither tiny ones nor those with nothing around them.
        depth: slices that an object goes through: the median.
        between: how many nobody drew: of slices left out between two boxes of an object.
    """

    name: str
    cases: int
    slices: int
    boxes: int
    together: int
    rows: tuple[float, float, float]
    columns: tuple[float, float, float]
    share: float
    tight: int
    visible: float = 0.0
    fill: float = 1.0
    loose: float | None = None
    alike: float = 0.0
    looked: int = 0
    depth: float = 1.0
    between: int = 0

    @property
    def shows(self) -> bool:
        """Whether its objects are told from their surroundings by brightness."""
        return self.visible >= VISIBLE

    @property
    def hidden(self) -> bool:
        """Whether they were looked at and are not; of neither, nothing is known."""
        return self.looked >= LOOKED and not self.shows

    @property
    def thin(self) -> bool:
        """Whether its objects show, and fill little of their boxes: what is thin and at an angle, or curves."""
        return self.looked >= LOOKED and self.shows and self.fill < FILLED

    @property
    def side(self) -> float:
        """The shorter of the median sides."""
        return min(self.rows[1], self.columns[1])

    @property
    def longest(self) -> float:
        """The longer of the sides that nine of ten boxes do not exceed."""
        return max(self.rows[2], self.columns[2])


@dataclass(frozen=True)
class Fingerprint:
    """A set for training.

    Attributes:
        name: of the set.
        cases: for training.
        slices: of these.
        depths: slices of a case: the fewest, the median and the most.
        size: height and width of every slice.
        channels: how many.
        spacing: the median of millimetres between slices, rows and columns of the prepared set, where known.
        uneven: the largest in-plane spacing of a case over the smallest, where known; 1 if all are alike.
        classes: each class's boxes.
        within: pairs of classes, and the fraction of the first's boxes that lie in one of the second's.
        validated: cases for validation with a mask.
        judged: cases by whose boxes in slices rounds can be judged: those for validation, or, if there is none, for
            training.
        sided: a class that is always on the same side of another one or of the image; None: there is none.
    """

    name: str
    cases: int
    slices: int
    depths: tuple[int, int, int]
    size: tuple[int, int]
    channels: int
    spacing: tuple[float, float, float] | None
    uneven: float
    classes: tuple[ClassFacts, ...]
    within: dict[tuple[str, str], float]
    validated: int
    judged: int
    sided: Sided | None = None

    @property
    def flatness(self) -> float | None:
        """How many times as far slices are from each other as rows and columns."""
        return None if self.spacing is None else self.spacing[0] / float(np.sqrt(self.spacing[1] * self.spacing[2]))

    @property
    def nested(self) -> list[tuple[str, str, float]]:
        """Classes within the boxes of others: the inner one, the outer one, and in which fraction of its boxes."""
        return [(inner, outer, share) for (inner, outer), share in self.within.items() if share >= OFTEN]

    @property
    def tight(self) -> bool:
        """Whether any box is drawn around what is in its own slice."""
        return any(one.tight for one in self.classes)

    @property
    def spatial(self) -> list[str]:
        """Classes with hardly a box around what is in its own slice: theirs are in 3-D."""
        return [one.name for one in self.classes if one.tight < DRAWN * (one.boxes - one.between)]


def read_fingerprint(
    prepared: PreparedSet,
    boxes: Sequence[BoxAnnotation] | None = None,
    smallest: int = 1,
    each: Callable[[], None] = lambda: None,
) -> Fingerprint:
    """Look at the boxes of a set's cases for training: one case at a time.

    Args:
        prepared: the set.
        boxes: from a file; default: taken from the masks.
        smallest: pixels; smaller parts of a mask get no box.
        each: called after every case.
    """
    cases = prepared.of("train")
    if not cases:
        raise ValueError(f"{prepared.path} has no case for training")
    found = [*_placed(prepared, cases, boxes, smallest, each)]
    shown = what_shows(prepared, cases, found, boxes or ())
    spacings = [scaled for case in cases if (scaled := _spacing(case, prepared.size)) is not None]
    in_plane = [float(np.sqrt(one[1] * one[2])) for one in spacings]
    depths = sorted(case.shape[0] for case in cases)
    validation = prepared.of("validation")
    drawn = {box.case for box in boxes or () if box.slice is not None and box.tight}
    names = {case.name for case in cases}
    between = Counter(
        box.label for box in boxes or () if box.slice is not None and not box.tight and box.case in names
    )
    return Fingerprint(
        prepared.name,
        len(cases),
        sum(depths),
        (depths[0], int(np.median(depths)), depths[-1]),
        prepared.size,
        len(prepared.channels),
        tuple(np.median(spacings, axis=0).tolist()) if spacings else None,
        max(in_plane) / min(in_plane) if in_plane else 1.0,
        tuple(
            replace(_facts(name, number, found, prepared.size), between=between[1 + number], **shown[number])
            for number, name in enumerate(prepared.classes)
        ),
        _within(prepared.classes, found),
        sum(case.masked for case in validation),
        sum(case.masked if boxes is None else case.name in drawn for case in validation or cases),
        sided(prepared.classes, [one for one, _ in found], prepared.size[1]),
    )


def _placed(
    prepared: PreparedSet,
    cases: Sequence[Case],
    boxes: Sequence[BoxAnnotation] | None,
    smallest: int,
    each: Callable[[], None],
) -> Iterator[tuple[Boxes, NDArray[np.bool_]]]:
    """Boxes ``[slices, classes, objects, 2, 2]`` of each case, and which of them are tight."""
    count = len(prepared.classes)
    for case in cases:
        if boxes is not None:
            placed, whole = place_boxes(boxes, case, prepared.size, count)
            yield placed, np.logical_and.reduce(whole, axis=-1)
        else:
            _, labels = prepared.load(case)
            if labels is None:
                raise ValueError(f"{case.title} has neither a mask nor a box: give boxes by --data.boxes FILE")
            masks = torch.from_numpy(labels)[:, None] == torch.arange(1, 1 + count)[None, :, None, None]
            taken = boxes_from_masks(masks, 0, smallest).numpy()
            yield taken, np.ones(taken.shape[:3], dtype=bool)
        each()


def _facts(
    name: str, number: int, found: Sequence[tuple[Boxes, NDArray[np.bool_]]], size: tuple[int, int]
) -> ClassFacts:
    sides = [one[:, number, :, :, 1] - one[:, number, :, :, 0] for one, _ in found]
    there = [(one > 0).all(axis=-1) for one in sides]
    every = np.concatenate([one[some] for one, some in zip(sides, there, strict=True)])
    if not len(every):
        raise ValueError(f"no training image has a box of {name}: nothing to learn from")
    tight = sum(int((some & whole[:, number]).sum()) for some, (_, whole) in zip(there, found, strict=True))
    rows, columns = np.percentile(every, (10, 50, 90), axis=0).T.tolist()
    pixels = sum(len(one) for one in sides) * size[0] * size[1]
    return ClassFacts(
        name,
        sum(bool(one.any()) for one in there),
        sum(int(one.any(axis=-1).sum()) for one in there),
        len(every),
        max(int(one.sum(axis=-1).max()) for one in there),
        tuple(rows),
        tuple(columns),
        float(every.prod(axis=-1).sum()) / pixels,
        tight,
        alike=_alike([one[:, number] for one, _ in found]),
        depth=float(np.median([*_depths([one[:, number] for one, _ in found])])),
    )


def _depths(found: Sequence[Boxes]) -> Iterator[int]:
    """Of each object, the slices that its boxes ``[slices, objects, 2, 2]`` go through."""
    for case in found:
        there = (case[..., 1] > case[..., 0]).all(axis=-1)
        drawn = [
            BoxAnnotation("", int(row), 1, tuple(low), tuple(high))
            for row, (low, high) in zip(np.nonzero(there)[0], case[there].transpose(0, 2, 1).tolist(), strict=True)
        ]
        yield from (high[0] - low[0] for low, high in joined_slices(drawn))


def _alike(found: Sequence[Boxes]) -> float:
    """Intersection over union of boxes ``[slices, objects, 2, 2]`` of cases with the likest of the next slice."""
    shares: list[float] = []
    for case in found:
        for here, there in pairwise(one[(one[..., 1] > one[..., 0]).all(axis=-1)] for one in case):
            low = np.maximum(here[:, None, :, 0], there[None, :, :, 0])
            high = np.minimum(here[:, None, :, 1], there[None, :, :, 1])
            both = (high - low).clip(min=0).prod(axis=-1)
            one, other = ((some[..., 1] - some[..., 0]).prod(axis=-1) for some in (here, there))
            shares += (both / (one[:, None] + other - both)).max(axis=-1, initial=0.0).tolist()
    return float(np.mean(shares)) if shares else 0.0


def _within(
    classes: Sequence[str], found: Sequence[tuple[Boxes, NDArray[np.bool_]]]
) -> dict[tuple[str, str], float]:
    """How often boxes of a class lie in those of another, for all pairs where they ever do."""
    shares: dict[tuple[str, str], float] = {}
    for inner, one in enumerate(classes):
        for outer, other in enumerate(classes):
            if inner == outer:
                continue
            there = inside = 0
            for boxes, _ in found:
                some = area_of(boxes[:, inner]) > 0
                lying = lies_in(boxes[:, inner, :, None], boxes[:, outer, None]).any(axis=-1)
                there, inside = there + int(some.sum()), inside + int((lying & some).sum())
            if inside:
                shares[one, other] = inside / there
    return shares


def _spacing(case: Case, size: tuple[int, int]) -> tuple[float, float, float] | None:
    """Millimetres between slices, rows and columns as they are in the prepared set."""
    if case.spacing is None:
        return None
    (depth, *in_plane), frame = case.spacing, case.frame(size)
    height, width = (
        step * before / after for step, before, after in zip(in_plane, frame.native, frame.size, strict=True)
    )
    return depth, height, width
