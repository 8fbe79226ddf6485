"""A teacher's labels: a model's answers about an image, cut to what its boxes and scribbles say.

    y_p = k        if k leads by most at p, of the classes whose boxes hold p, and p is in the largest part of k in
                   its box: once what is found of each object is stretched to its box (``fitting``)
    y_p = 0        where no box is, and where no class leads
    y_p = unsure   elsewhere, above all at the pixels of each box where the decision is closest: there nobody
                   teaches anything

A share of each box is left out, not all below some probability: a network that learnt from constraints says 0.6 of
one class, and 0.99 of another, and is as right about both.

Boxes are not doubted: a class is nowhere outside of its boxes; and a box in which it was not found is unsure as a
whole, never background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.extras import require
from ringfence.segmentation.boxes import covered
from ringfence.weak.tasks.fitting import Box, Fit, Lead, fitted, found_in, part_in
from ringfence.weak.tasks.windows import UNSURE

Labels: TypeAlias = NDArray[np.uint8]
Pixels: TypeAlias = NDArray[np.bool_]


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


def taught_labels(samples: Sequence[tuple[NDArray[np.floating[Any]], KnownOf]], unsure: float) -> list[Labels]:
    """Labels of a case's samples, uint8 ``[*space]``: 0 for background, k for the k-th class, ``UNSURE``.

    Args:
        samples: probabilities ``[1 + K, *space]``, of one teacher or the mean of several, and what must hold.
        unsure: of the pixels of each box, the share that is left out.
    """
    found = [_fits(probabilities, known, number) for number, (probabilities, known) in enumerate(samples)]
    leads = iter(fitted([fit for fits in found for fit in fits if fit is not None]))
    labels = []
    for (probabilities, known), fits in zip(samples, found, strict=True):
        ahead = np.full(probabilities.shape, -np.inf, np.float32)  # a class without a box, or that was missed
        ahead[0] = 0.0  # what does not lead is background
        seen, there = np.zeros(ahead.shape[1:], np.bool_), [fit is not None for fit in fits]
        for fit in fits:
            if fit is not None:
                place: Any = (fit.box.label, *fit.box.place)
                own, anything = next(leads)
                ahead[place] = np.maximum(ahead[place], own)  # of overlapping boxes, the bolder one counts
                seen[fit.box.place] |= anything > 0.0
        labels.append(_labelled(ahead, seen, known, there, unsure))
    return labels


def _fits(probabilities: NDArray[np.floating[Any]], known: KnownOf, number: int) -> list[Fit | None]:
    """What is found in each box of a sample, the number-th."""
    inside = covered(torch.from_numpy(known.box)[None], torch.Size(probabilities.shape[1:]))[0].numpy()
    return [found_in(probabilities, inside, box) for box in _boxes(known, number)]


def _labelled(ahead: Lead, seen: Pixels, known: KnownOf, there: Sequence[bool], unsure: float) -> Labels:
    """Labels of a sample.

    Args:
        ahead: how far classes lead, ``[1 + K, *space]``.
        seen: where there is some class. Stretched each by itself, they may have parted: if none leads there, it is
            no background.
        known: what must hold.
        there: for each of its boxes, whether its object was found.
        unsure: the share of each box that is left out.
    """
    boxes, certain = _boxes(known), np.ones(ahead.shape[1:], np.bool_)
    likeliest = ahead.argmax(axis=0).astype(np.uint8)
    second, first = np.partition(ahead, -2, axis=0)[-2:]
    for box in boxes:
        certain[box.place] &= _surest(first[box.place] - second[box.place], unsure)
    certain &= ~seen | (likeliest > 0)
    labels: Labels = np.where(certain & (likeliest == 0), 0, UNSURE).astype(np.uint8)
    for box, found in zip(boxes, there, strict=True):
        if found:
            labels[box.place][_found(likeliest[box.place], certain[box.place], box.label)] = box.label
    for box, found in zip(boxes, there, strict=True):
        if not found:
            labels[box.place] = UNSURE
    _give_up(labels, boxes)
    return scribbled(labels, known)


def scribbled(labels: Labels, known: KnownOf) -> Labels:
    """Labels of a sample, with what is marked in it: that is always right."""
    for one, *pixel in known.scribble.tolist():
        if one > 0:
            labels[tuple(pixel)] = one - 1
    return labels


def _boxes(known: KnownOf, number: int = 0) -> list[Box]:
    """Those of the number-th sample: a slice, or the volume."""
    return [
        Box(
            1 + one,
            int(ends[0, 0]) if len(ends) == 3 else number,
            tuple((int(low), int(high)) for low, high in ends),
            whole,
            known.margin,
        )
        for one, objects in enumerate(known.box)
        for ends, whole in zip(objects, known.whole[one], strict=True)
        if (ends[:, 1] > ends[:, 0]).all()
    ]


def _surest(by: Lead, unsure: float) -> Pixels:
    """All but the share of pixels that are decided by least; of equals, none is left out."""
    count = int(unsure * by.size)
    surest: Pixels = by >= np.partition(by, count, axis=None)[count]
    return surest


def _found(likeliest: Labels, certain: Pixels, label: int) -> Pixels:
    """Of a box: the sure pixels of the largest part of its class, and holes in them.

    A hole with anything in it that the teacher is sure of stays as it is: a ring has one.
    """
    ndimage = require("scipy.ndimage", "refinement", "train")
    shape = likeliest.shape
    if likeliest.ndim == 3 and len(likeliest) == 1:  # in space, a slice has no holes
        likeliest, certain = likeliest[0], certain[0]
    part = part_in(likeliest == label, (slice(None),) * likeliest.ndim)
    kept = np.zeros_like(certain) if part is None else part & certain
    holes, _ = ndimage.label(ndimage.binary_fill_holes(kept) & ~kept)
    other = np.unique(holes[certain & (likeliest != label)])
    filled: Pixels = kept | ((holes > 0) & ~np.isin(holes, other))
    return filled.reshape(shape)


def _give_up(labels: Labels, boxes: Sequence[Box]) -> None:
    """Boxes without a label of their class become unsure: which may take the last label from another."""
    left = list(boxes)
    while lost := [box for box in left if not (labels[box.place] == box.label).any()]:
        for box in lost:
            labels[box.place] = UNSURE
        left = [box for box in left if not any(box is one for one in lost)]
