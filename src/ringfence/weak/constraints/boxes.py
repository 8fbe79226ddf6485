"""What constraints on boxes share: the boxes of each sample, how these move, and what is still whole of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ringfence.segmentation import Region
from ringfence.segmentation.boxes import places_within
from ringfence.weak.annotations.ragged import objects_at, present_first
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets
from ringfence.weak.constraints.motion import Motion


class OnBoxes(Constraint):
    """A constraint that reads boxes.

    Its targets are ``box`` (int64 ``[N, K, objects, axes, 2]``, empty ones at the end), ``whole`` (bool
    ``[N, K, objects, axes]``: whether the strips along an axis are), ``margin`` (int64 ``[N, axes]``) and ``uncut``
    (bool ``[N, K]``: whether all of a class's objects are seen as a whole).
    """

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """The case's boxes, from a file or from its masks."""
        return box_targets(case)

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Boxes go where their objects do; one that is cut at the window's border is no longer whole."""
        return moved_boxes(targets, motion)


def box_targets(case: CaseSamples) -> dict[str, Tensor]:
    """``box``, ``whole``, ``margin`` and ``uncut`` of a case."""
    uncut = torch.ones(case.boxes.shape[:2], dtype=torch.bool)
    return {"box": case.boxes, "whole": case.whole, "margin": case.margins, "uncut": uncut}


def moved_boxes(targets: Targets, motion: Motion) -> dict[str, Tensor]:
    """``box``, ``whole``, ``margin`` and ``uncut`` after the images have moved."""
    box, whole = motion.boxes(targets["box"], targets["whole"])
    uncut = targets["uncut"] & motion.uncut(targets["box"], targets["whole"]).all(dim=-1)
    margin = (targets["margin"] * motion.scale.abs()).ceil().long()
    return {"box": box, "whole": whole, "margin": margin, "uncut": uncut}


def compacted(targets: Targets, most: int | None = None) -> dict[str, Tensor]:
    """``box`` and ``whole`` without most of the empty boxes: a patch has few of the boxes of all slices.

    Args:
        targets: those of a batch.
        most: boxes of a class that are kept, no fewer than any sample has; default: the largest number.
    """
    order = present_first(targets["box"], most)
    return {name: objects_at(targets[name], order) for name in ("box", "whole")}


def areas(boxes: Tensor, region: Region) -> Tensor:
    """Pixels in each box: ``[N, K, objects]``, 0 of an empty one."""
    return (boxes[..., 1] - boxes[..., 0]).prod(dim=-1).to(region.size)


def as_drawn(targets: Targets) -> Tensor:
    """Whether a box is tight and seen as a whole, one slice deep as it may be: bool ``[N, K, objects]``.

    One that was cut along any axis is not whole along two others: of the last two, one says so.
    """
    return targets["whole"][..., -2:].all(dim=-1)


def slice_contents(boxes: Tensor, area: Tensor, region: Region) -> Tensor:
    """What sizes are fractions of in volumes, ``[N, K, objects]``: all boxes of a class in the slices of each."""
    there = places_within(boxes, 0, region.shape[2])
    depth = (boxes[..., 0, 1] - boxes[..., 0, 0]).clamp(min=1)
    in_slice = (there * (area / depth).unsqueeze(-1)).sum(dim=2, keepdim=True)
    return (there * in_slice).sum(dim=-1).clamp(min=1.0)


def contents(area: Tensor, region: Region) -> Tensor:
    """What relative sizes are fractions of, ``[N, K]``: all boxes of a class; the image where there is none."""
    total = area.sum(dim=-1)
    return torch.where(total > 0, total, float(math.prod(region.shape[2:])))
