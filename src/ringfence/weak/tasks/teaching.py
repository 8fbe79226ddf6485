"""A teacher's labels: a model's answers about an image, cut to what its boxes and scribbles say.

    y_p = k        if k is the likeliest class that boxes allow at p, and p is in the largest part of k in its box
    y_p = 0        where no box is, and where the background is the likeliest
    y_p = unsure   elsewhere, and at the pixels of each box whose two likeliest classes are closest to each other:
                   there nobody teaches anything

A share of each box is left out, not all below some probability: a network that learnt from constraints says 0.6 of
one class, and 0.99 of another, and is as right about both.

Likeliest, that is, where the boxes' levels (``levels``) are taken as even: what is found touches its box's sides.

Boxes are not doubted: a class is nowhere outside of its boxes; and a box in which it was not found is unsure as a
whole, never background.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.extras import require
from ringfence.segmentation.boxes import covered
from ringfence.weak.tasks.levels import box_level, lead, settled_level
from ringfence.weak.tasks.windows import UNSURE

Labels: TypeAlias = NDArray[np.uint8]
Pixels: TypeAlias = NDArray[np.bool_]
REACH: Final = 0.5
"""Of the side of a tight box: an answer that reaches less far has missed the object."""


@dataclass(frozen=True)
class KnownOf:
    """What labels say of one sample.

    Attributes:
        box: int64 ``[K, objects, axes, 2]``, empty ones (0, 0) among them.
        whole: bool ``[K, objects, axes]``: whether a box is tight along an axis, but for the margin.
        margin: int64 ``[axes]``.
        scribble: ``[points, 1 + axes]``: 1 + class and the pixel; zeros where there is none.
    """

    box: NDArray[np.int64]
    whole: Pixels
    margin: NDArray[np.int64]
    scribble: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Mapping[str, Tensor], number: int) -> KnownOf:
        """A sample of a task."""
        axes = rows["box"].shape[-2]
        scribble = rows["scribble"][number] if "scribble" in rows else torch.zeros(0, 1 + axes)
        found = (rows["box"][number], rows["whole"][number], rows["margin"][number], scribble.long())
        return cls(*(one.cpu().numpy() for one in found))


@dataclass(frozen=True)
class _Box:
    """A box, its class, and along which axes it is tight."""

    label: int
    place: tuple[slice, ...]
    tight: Pixels


def levels_of(probabilities: NDArray[np.floating[Any]], known: KnownOf) -> list[tuple[int, float]]:
    """The class, from 1, and the level of each box of a sample that is tight."""
    possible = _possible(probabilities, known)
    found = []
    for box in _boxes(known):
        level = box_level(_lead(possible, box), box.tight, known.margin)
        if level is not None:
            found.append((box.label, level))
    return found


def taught_labels(
    probabilities: NDArray[np.floating[Any]], known: KnownOf, unsure: float, usual: Sequence[float] | None = None
) -> Labels:
    """Labels of one sample, uint8 ``[*space]``: 0 for background, k for the k-th class, ``UNSURE``.

    Args:
        probabilities: ``[1 + K, *space]``, of one teacher or the mean of several.
        known: what must hold.
        unsure: of the pixels of each box, the share that is left out.
        usual: the usual level of each class; default: the likeliest class has the pixel, whether it touches the
            sides of its box or not.
    """
    space = probabilities.shape[1:]
    possible, boxes, certain = _possible(probabilities, known), list(_boxes(known)), np.ones(space, np.bool_)
    if usual is not None:
        possible = _levelled(possible, boxes, known, usual)
    likeliest = possible.argmax(axis=0).astype(np.uint8)
    second, first = np.partition(possible, -2, axis=0)[-2:]
    for box in boxes:
        certain[box.place] &= _surest(first[box.place] - second[box.place], unsure)
    labels: Labels = np.where(certain & (likeliest == 0), 0, UNSURE).astype(np.uint8)
    for box in boxes:
        if _reaches(likeliest[box.place] == box.label, box.tight, known.margin):
            labels[box.place][_found(likeliest[box.place], certain[box.place], box.label)] = box.label
    _give_up(labels, boxes)
    for one, *pixel in known.scribble.tolist():
        if one > 0:
            labels[tuple(pixel)] = one - 1
    return labels


def _possible(probabilities: NDArray[np.floating[Any]], known: KnownOf) -> NDArray[np.floating[Any]]:
    """The probabilities of the classes that boxes allow; where there is no box, background is certain."""
    inside = covered(torch.from_numpy(known.box)[None], torch.Size(probabilities.shape[1:]))[0].numpy()
    background = np.where(inside.any(axis=0), probabilities[:1], 1.0)
    return np.concatenate([background, np.where(inside, probabilities[1:], 0.0)])


def _levelled(
    possible: NDArray[np.floating[Any]], boxes: Sequence[_Box], known: KnownOf, usual: Sequence[float]
) -> NDArray[np.floating[Any]]:
    """With each class's probabilities divided by e^level in its boxes: 'likeliest' then means above the level."""
    levelled: NDArray[np.floating[Any]] = possible.copy()
    for box in boxes:
        level = box_level(_lead(possible, box), box.tight, known.margin)
        place: Any = (box.label, *box.place)
        own = possible[place] * math.exp(-settled_level(level, box.label, usual))
        # where boxes of a class overlap, the bolder one counts
        first = levelled[place] == possible[place]
        levelled[place] = np.where(first, own, np.maximum(own, levelled[place]))
    return levelled


def _lead(possible: NDArray[np.floating[Any]], box: _Box) -> NDArray[np.float32]:
    place: Any = (slice(None), *box.place)
    return lead(possible[place], box.label)


def _boxes(known: KnownOf) -> Iterator[_Box]:
    for number, objects in enumerate(known.box):
        for ends, whole in zip(objects, known.whole[number], strict=True):
            if (ends[:, 1] > ends[:, 0]).all():
                yield _Box(1 + number, tuple(slice(int(low), int(high)) for low, high in ends), whole)


def _surest(lead: NDArray[np.floating[Any]], unsure: float) -> Pixels:
    """All but the share of pixels with the smallest lead; of equals, none is left out."""
    count = int(unsure * lead.size)
    surest: Pixels = lead >= np.partition(lead, count, axis=None)[count]
    return surest


def _found(likeliest: Labels, certain: Pixels, label: int) -> Pixels:
    """Of a box: the sure pixels of the largest part of its class, and holes in them.

    A hole with anything in it that the teacher is sure of stays as it is: a ring has one.
    """
    ndimage = require("scipy.ndimage", "refinement", "train")
    shape = likeliest.shape
    if likeliest.ndim == 3 and len(likeliest) == 1:  # in space, a slice has no holes
        likeliest, certain = likeliest[0], certain[0]
    kept = _largest(likeliest == label) & certain
    holes, _ = ndimage.label(ndimage.binary_fill_holes(kept) & ~kept)
    other = np.unique(holes[certain & (likeliest != label)])
    filled: Pixels = kept | ((holes > 0) & ~np.isin(holes, other))
    return filled.reshape(shape)


def _largest(mask: Pixels) -> Pixels:
    """The largest part of a mask, of pixels that touch by their faces; nothing where there is nothing."""
    parts, count = require("scipy.ndimage", "refinement", "train").label(mask)
    if count == 0:
        return mask
    largest: Pixels = parts == 1 + np.bincount(parts.ravel())[1:].argmax()
    return largest


def _reaches(mask: Pixels, tight: Pixels, margin: NDArray[np.int64]) -> bool:
    """Whether the largest part in a box reaches over half of its sides, where the box is tight."""
    largest = _largest(mask)
    for axis, side in enumerate(mask.shape):
        there = np.flatnonzero(largest.any(axis=tuple(one for one in range(mask.ndim) if one != axis)))
        length = there[-1] + 1 - there[0] if len(there) else 0
        if tight[axis] and length < REACH * (side - 2 * int(margin[axis])):
            return False
    return True


def _give_up(labels: Labels, boxes: list[_Box]) -> None:
    """Boxes without a label of their class become unsure: which may take the last label from another."""
    left = list(boxes)
    while lost := [box for box in left if not (labels[box.place] == box.label).any()]:
        for box in lost:
            labels[box.place] = UNSURE
        left = [box for box in left if not any(box is one for one in lost)]
