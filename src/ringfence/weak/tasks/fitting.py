"""Fitting: what a model finds of an object, stretched along each axis until it ends where its tight box does.

    fitted(x) = mean over alike boxes j of ahead_j(a_j + (x - s) · (b_j - a_j) / (e - s)),   x in edges of pixels

where the object goes from s to e, as its box says, and what is found of the j-th one from a_j to b_j. Alike are the
box itself and tight ones of its class in other slices of the case that overlap with it: each counts by 2 IoU - 1.

A network that learnt from constraints may be too shy or too bold as a whole, or in one image. To find more until
the sides of a box are reached fills its corners on the way, and labels are too large; stretched, what is found
keeps its shape. And slices of an object that are next to each other have about the same shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""Boxes that are averaged over, at most: the likest, and of equals those of the nearest slices."""

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
        any: that of whichever class is likeliest over background; None if there is but one.
        found: from where to where it was found, along each axis of ``ahead``.
        ends: from where to where it is, as the box says, along each axis of the sample.
    """

    box: Box
    ahead: Lead
    any: Lead | None
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
    possible = _possible(probabilities[here], inside[here], box.label)
    seen = lead(possible, box.label)
    own = ~inside[here][box.label - 1]
    inner = tuple(
        slice(low - wide.start, high - wide.start) for (low, high), wide in zip(box.ends, around, strict=True)
    )
    own[inner] = True
    part = part_in((seen > 0.0) & own, inner)
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
        lines = np.flatnonzero(part.any(axis=tuple(one for one in range(part.ndim) if one != axis)))
        if lines[-1] + 1 - lines[0] < REACH * (high - low - 2 * margin):
            return None
        first, last = _span(np.moveaxis(seen, axis, 0), np.moveaxis(part, axis, 0), int(lines[0]), int(lines[-1]))
        found.append((first, last))
        ends.append(_ends((begin + first, begin + last), (low, high), margin))
    whichever = lead(np.stack([possible[0], possible[1:].max(axis=0)]), 1) if len(inside) > 1 else None
    return Fit(box, seen, whichever, tuple(found), tuple(ends))


def fitted(fits: Sequence[Fit]) -> list[tuple[Lead, Lead]]:
    """The lead of its class in each box of a case, as if what is found ended where the box does; and that of any.

    Args:
        fits: of all samples of the case.
    """
    boxes = np.array([one.box.ends for one in fits])
    label = np.array([one.box.label for one in fits])
    depth = np.array([one.box.depth for one in fits])
    tight = np.array([one.box.tight[-2:].all() for one in fits])  # along others, nothing says where an object is
    leads = []
    for number, own in enumerate(fits):
        alike = (label == own.box.label) & (depth != own.box.depth) & tight & tight[number]
        share = np.where(alike, np.maximum(0.0, 2.0 * _overlap(boxes, number) - 1.0), 0.0)
        share[number] = 1.0
        far = np.abs(depth - own.box.depth) - (np.arange(len(fits)) == number)  # itself first of all
        closest = [one for one in np.lexsort((far, -share))[:MOST] if share[one] > 0.0]
        shares = [(fits[one], float(share[one] / share[closest].sum())) for one in closest]
        ahead = _mean((_stretched(fit.ahead, fit, own), part) for fit, part in shares)
        anything = _mean((_stretched(fit.any, fit, own), part) for fit, part in shares if fit.any is not None)
        leads.append((ahead, ahead if own.any is None else anything))
    return leads


def _mean(leads: Iterable[tuple[Lead, float]]) -> Lead:
    """Of leads and their shares."""
    return np.asarray(sum(part * one for one, part in leads), np.float32)


def _possible(probabilities: NDArray[np.floating[Any]], inside: Pixels, label: int) -> NDArray[np.floating[Any]]:
    """Probabilities of what boxes allow; and of the class itself everywhere, to see where it ends."""
    allowed = inside.copy()
    allowed[label - 1] = True
    return np.concatenate([probabilities[:1], np.where(allowed, probabilities[1:], 0.0)])


def _around(ends: Ends, length: int, tight: np.bool_) -> slice:
    """A box's ends along an axis, and as much around them as may be its object's."""
    beside = int(np.ceil(AROUND * (ends[1] - ends[0]))) if tight else 0
    return slice(max(0, ends[0] - beside), min(length, ends[1] + beside))


def part_in(found: Pixels, place: tuple[slice, ...]) -> Pixels | None:
    """The connected part (by faces of pixels) that has most pixels in a place; None if there is none."""
    parts, _ = require("scipy.ndimage", "refinement", "train").label(found)
    counts = np.bincount(parts[place].ravel())
    if len(counts) < 2:
        return None
    most: Pixels = parts == 1 + counts[1:].argmax()
    return most


def _span(seen: Lead, part: Pixels, first: int, last: int) -> Span:
    """From where to where a part goes along the first axis: between its last line and the next, the lead is 0."""
    return first + 0.5 - _beyond(seen, part, first, -1), last + 0.5 + _beyond(seen, part, last, 1)


def _beyond(seen: Lead, part: Pixels, line: int, step: int) -> float:
    """How far a part goes beyond the middle of its last line: of the way to the middle of the next one."""
    if not 0 <= line + step < len(seen):
        return 0.5
    ahead, behind = float(seen[line][part[line]].max()), float(seen[line + step][part[line]].max())
    return ahead / (ahead - behind) if behind <= 0.0 else 0.5


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


def _stretched(there: Lead, seen: Fit, own: Fit) -> Lead:
    """What is found of one object, where another one's box is: its ends are at the other's."""
    for axis, ((a, b), (first, last), (low, high)) in enumerate(
        zip(seen.found, own.ends, own.box.ends, strict=True)
    ):
        at = a + (np.arange(low, high) + 0.5 - first) * ((b - a) / (last - first)) - 0.5
        there = _interpolated(there, at, axis)
    return there


def _interpolated(values: Lead, at: NDArray[np.floating[Any]], axis: int) -> Lead:
    """Between the middles of pixels along an axis, linearly; beyond the last one, as there."""
    at = np.clip(at, 0.0, values.shape[axis] - 1)
    before = np.floor(at).astype(np.int64)
    after = np.minimum(before + 1, values.shape[axis] - 1)
    share = (at - before).astype(np.float32).reshape([-1 if one == axis else 1 for one in range(values.ndim)])
    found: Lead = (1.0 - share) * values.take(before, axis) + share * values.take(after, axis)
    return found
