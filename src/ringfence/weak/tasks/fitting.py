"""Fitting: what a model finds of an object, stretched along each axis until it ends where its tight box does.

    fitted(x) = mean over alike boxes j of ahead_j(a_j + (x - s) · (b_j - a_j) / (e - s)),   x in edges of pixels

where the object goes from s to e, as its box says, and what is found of the j-th one from a_j to b_j. Alike are the
box itself and those of its class in other slices of the case that overlap with it: each counts by 2 IoU - 1.

A network that learnt from constraints may be too shy or too bold as a whole, or in one image. To find more until
the sides of a box are reached fills its corners on the way, and labels are too large; stretched, what is found
keeps its shape. And slices of an object that are next to each other have about the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.extras import require

FARTHEST: Final = 6.0
"""A lead is within ± this, odds of 400: how sure one pixel is must not decide about those beside it."""
AROUND: Final = 0.5
"""Of a tight side: how far around a box what is found is still taken for its object."""
REACH: Final = 0.5
"""Of a tight side: an answer that reaches less far has missed the object."""
TINY: Final = 1e-6
"""Probabilities below it are taken as it."""
MOST: Final = 9
"""Alike boxes that are averaged over: the closest ones."""

Pixels: TypeAlias = NDArray[np.bool_]
Lead: TypeAlias = NDArray[np.float32]
Ends: TypeAlias = tuple[int, int]
Span: TypeAlias = tuple[float, float]
"""From where to where, in edges of pixels: the middle of a pixel is at + 1/2."""


class Box(NamedTuple):
    """A box of a class.

    Attributes:
        label: the class, from 1.
        depth: the number of its slice in the case; of a box in space, of its first one.
        ends: first pixel and one past the last, along each axis.
        tight: bool ``[axes]``: along which axes the object touches both ends.
        margin: ``[axes]``: pixels by which it may be too wide at either end.
    """

    label: int
    depth: int
    ends: tuple[Ends, ...]
    tight: Pixels
    margin: NDArray[np.int64]

    @property
    def place(self) -> tuple[slice, ...]:
        """Its pixels."""
        return tuple(slice(*ends) for ends in self.ends)


@dataclass(frozen=True)
class Fit:
    """An object that was found in its box.

    Attributes:
        box: the box.
        ahead: ``lead`` of its class in the box and around it.
        found: from where to where it was found, along each axis of ``ahead``.
        ends: from where to where it is, as the box says, along each axis of the sample.
    """

    box: Box
    ahead: Lead
    found: tuple[Span, ...]
    ends: tuple[Span, ...]


def lead(likely: NDArray[np.floating[Any]], label: int) -> Lead:
    """log(p_k / the largest of the others), ``[*space]``, of probabilities ``[1 + K, *space]``."""
    logs = np.log(np.maximum(likely, TINY))
    found: Lead = (logs[label] - np.delete(logs, label, axis=0).max(axis=0)).astype(np.float32)
    return np.clip(found, -FARTHEST, FARTHEST)


def found_in(probabilities: NDArray[np.floating[Any]], inside: Pixels, box: Box) -> Fit | None:
    """The object of a box; None if it was missed.

    Of what is found in the box and around it, the connected part counts that has most pixels in the box. Around it,
    other boxes of its class are not looked into.

    Args:
        probabilities: ``[1 + K, *space]``, of a sample.
        inside: bool ``[K, *space]``, whether a pixel is in a box of a class.
        box: one of the sample's.
    """
    around = tuple(map(_around, box.ends, inside.shape[1:], box.tight))
    here: Any = (slice(None), *around)
    seen = lead(_possible(probabilities[here], inside[here], box.label), box.label)
    own = ~inside[here][box.label - 1]
    inner = tuple(
        slice(low - wide.start, high - wide.start) for (low, high), wide in zip(box.ends, around, strict=True)
    )
    own[inner] = True
    part = _part((seen > 0.0) & own, inner)
    if part is None:
        return None
    found: list[Span] = []
    ends: list[Span] = []
    for axis, (low, high) in enumerate(box.ends):
        begin, margin = around[axis].start, int(box.margin[axis])
        if not box.tight[axis]:
            found.append((low - begin, high - begin))
            ends.append((low, high))
            continue
        first, last = _span(np.moveaxis(seen, axis, 0), np.moveaxis(part, axis, 0))
        if last - first < REACH * (high - low - 2 * margin):
            return None
        found.append((first, last))
        ends.append(_ends((begin + first, begin + last), (low, high), margin))
    return Fit(box, seen, tuple(found), tuple(ends))


def fitted(fits: Sequence[Fit]) -> list[Lead]:
    """The lead of its class in each box of a case, as if what is found ended where the box does.

    Args:
        fits: of all samples of the case.
    """
    boxes = np.array([one.box.ends for one in fits])
    of = np.array([(one.box.label, one.box.depth) for one in fits])
    leads = []
    for number, own in enumerate(fits):
        elsewhere = (of[:, 0] == own.box.label) & (of[:, 1] != own.box.depth)
        share = np.where(elsewhere, np.maximum(0.0, 2.0 * _overlap(boxes, number) - 1.0), 0.0)
        share[number] = 1.0
        closest = [one for one in np.argsort(-share, kind="stable")[:MOST] if share[one] > 0.0]
        mean = sum(share[one] * _stretched(fits[one], own) for one in closest) / share[closest].sum()
        leads.append(np.asarray(mean, np.float32))
    return leads


def _possible(probabilities: NDArray[np.floating[Any]], inside: Pixels, label: int) -> NDArray[np.floating[Any]]:
    """Probabilities of what boxes allow; and of the class itself everywhere, to see where it ends."""
    allowed = inside.copy()
    allowed[label - 1] = True
    return np.concatenate([probabilities[:1], np.where(allowed, probabilities[1:], 0.0)])


def _around(ends: Ends, length: int, tight: np.bool_) -> slice:
    """A box's ends along an axis, and as much around them as may be its object's."""
    beside = int(np.ceil(AROUND * (ends[1] - ends[0]))) if tight else 0
    return slice(max(0, ends[0] - beside), min(length, ends[1] + beside))


def _part(found: Pixels, box: tuple[slice, ...]) -> Pixels | None:
    """The connected part (by faces of pixels) that has most pixels in the box; None if there is none."""
    parts, _ = require("scipy.ndimage", "refinement", "train").label(found)
    counts = np.bincount(parts[box].ravel())
    if len(counts) < 2:
        return None
    most: Pixels = parts == 1 + counts[1:].argmax()
    return most


def _span(seen: Lead, part: Pixels) -> Span:
    """From where to where a part goes along the first axis: to where the lead would be 0, between two pixels."""
    there = np.flatnonzero(part.any(axis=tuple(range(1, part.ndim))))
    first, last = int(there[0]), int(there[-1])
    return first + 0.5 - _beyond(seen, part, first, -1), last + 0.5 + _beyond(seen, part, last, 1)


def _beyond(seen: Lead, part: Pixels, line: int, step: int) -> float:
    """How far a part goes beyond the middle of its last line: of the way to the middle of the next one."""
    if not 0 <= line + step < len(seen):
        return 0.5
    ahead, behind = float(seen[line][part[line]].max()), float(seen[line + step][part[line]].max())
    return ahead / (ahead - behind) if behind < 0.0 else 0.5


def _ends(found: Span, box: Ends, margin: int) -> Span:
    """Where the object ends: where it was found to, as far as the box and its margin allow."""
    inner = min(margin, (box[1] - box[0] - 1) // 2)
    first = min(max(found[0], box[0]), box[0] + inner)
    return first, max(min(found[1], box[1]), box[1] - inner)


def _overlap(boxes: NDArray[np.int64], number: int) -> NDArray[np.float64]:
    """IoU of one of the boxes ``[boxes, axes, 2]`` with each, along rows and columns.

    A box in space of more than a slice is alike to none: it is another object.
    """
    flat = np.ones(len(boxes), np.bool_)
    if boxes.shape[1] == 3:
        flat = boxes[:, 0, 1] - boxes[:, 0, 0] == 1
        boxes = boxes[:, 1:]
    low, high = boxes[..., 0], boxes[..., 1]
    both = (np.minimum(high, high[number]) - np.maximum(low, low[number])).clip(min=0).prod(axis=1)
    area = (high - low).prod(axis=1)
    overlap: NDArray[np.float64] = np.where(flat & flat[number], both / (area + area[number] - both), 0.0)
    return overlap


def _stretched(seen: Fit, own: Fit) -> Lead:
    """What is found of one object, where another one's box is: its ends are at the other's."""
    at = [
        a + (np.arange(low, high) + 0.5 - first) * ((b - a) / (last - first)) - 0.5
        for (a, b), (first, last), (low, high) in zip(seen.found, own.ends, own.box.ends, strict=True)
    ]
    there: Lead = require("scipy.ndimage", "refinement", "train").map_coordinates(
        seen.ahead, np.meshgrid(*at, indexing="ij"), order=1, mode="nearest"
    )
    return there
