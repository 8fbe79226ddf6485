"""What constraints on boxes share: the boxes of each sample, how these move, and what is still whole of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ringfence.segmentation import Region
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, Targets
from ringfence.weak.constraints.motion import Motion


class OnBoxes(Constraint):
    """A constraint that reads boxes.

    Its targets are ``box`` (int64 ``[N, K, objects, axes, 2]``, empty ones at the end), ``whole`` (bool
    ``[N, K, objects, axes]``: whether the strips along an axis are) and ``margin`` (int64 ``[N, axes]``).
    """

    def targets(self, case: CaseSamples) -> dict[str, Tensor]:
        """The case's boxes, from a file or from its masks."""
        return box_targets(case)

    def moved(self, targets: Targets, motion: Motion) -> dict[str, Tensor]:
        """Boxes go where their objects do; one that is cut at the window's border is no longer whole."""
        return moved_boxes(targets, motion)


def box_targets(case: CaseSamples) -> dict[str, Tensor]:
    """``box``, ``whole`` and ``margin`` of a case."""
    whole = torch.ones(case.boxes.shape[:-1], dtype=torch.bool)
    return {"box": case.boxes, "whole": whole, "margin": case.margins}


def moved_boxes(targets: Targets, motion: Motion) -> dict[str, Tensor]:
    """``box``, ``whole`` and ``margin`` after the images have moved."""
    box, whole = motion.boxes(targets["box"], targets["whole"])
    return {"box": box, "whole": whole, "margin": (targets["margin"] * motion.scale.abs()).ceil().long()}


def areas(boxes: Tensor, region: Region) -> Tensor:
    """Pixels in each box: ``[N, K, objects]``, 0 of an empty one."""
    return (boxes[..., 1] - boxes[..., 0]).prod(dim=-1).to(region.size)


def uncut(targets: Targets) -> Tensor:
    """Whether every object of a class is seen as a whole: bool ``[N, K]``."""
    return targets["whole"].all(dim=-1).all(dim=-1)


def contents(area: Tensor, region: Region) -> Tensor:
    """What relative sizes are fractions of, ``[N, K]``: all boxes of a class; the image where there is none."""
    total = area.sum(dim=-1)
    return torch.where(total > 0, total, float(math.prod(region.shape[2:])))
