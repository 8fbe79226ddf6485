"""Masks of which every kind of constraint is true, and a network's answer that is as certain of them as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ringfence.segmentation import Region
from ringfence.weak.constraints.boxes import box_targets
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint, TaskFacts
from ringfence.weak.constraints.registry import make_constraints

CLASSES = ("organ", "lesion", "other")


def hard(mask: Tensor) -> Tensor:
    """Logits of which the softmax is exactly the mask: ``[N, 1 + K, *space]``."""
    return 200.0 * torch.cat([~mask.any(dim=1, keepdim=True), mask], dim=1).float()


def found(mask: Tensor) -> Region:
    return Region(hard(mask))


def ready(asked: Mapping[str, Any], axes: int, classes: Sequence[str] = CLASSES) -> dict[str, Constraint]:
    facts = TaskFacts(tuple(classes), axes)
    return {name: one.ready(facts) for name, one in make_constraints(asked).items()}


def batch_of(mask: Tensor, constraints: Mapping[str, Constraint], **known: Any) -> dict[str, Tensor]:
    """A batch as training has it: image, mask, boxes, and the constraints' targets."""
    image = (60 + 90 * mask.any(dim=1, keepdim=True)).to(torch.uint8)
    case = CaseSamples(image, mask, **known)
    rows = {"image": image, "mask": mask} | box_targets(case)
    for one in constraints.values():
        rows |= one.targets(case)
    return rows


def grown(rows: int, space: Sequence[int], seed: int = 0) -> Tensor:
    """Organs of several parts, some at the border; lesions within them; and another class that touches no lesion.

    Blobs are smoothed noise above a level. The last two images have nothing in them, and one pixel of each class.
    """
    random = np.random.default_rng(seed)
    faces = ndimage.generate_binary_structure(len(space), 1)
    masks = np.zeros((rows, 3, *space), bool)
    for mask in masks[:-2]:
        smooth = [ndimage.gaussian_filter(random.normal(size=space), 2.0) for _ in range(3)]
        whole = smooth[0] > np.quantile(smooth[0], 0.6)
        # beyond the image there may be more of the organ
        deep = ndimage.binary_erosion(whole, faces, border_value=1)
        lesion = deep & (smooth[1] > np.quantile(smooth[1], 0.5))
        mask[:] = whole & ~lesion, lesion, ~whole & (smooth[2] > np.quantile(smooth[2], 0.7))
    middle = tuple(length // 2 for length in space)
    masks[(-1, 0, *(slice(one - 1, one + 2) for one in middle))] = True
    masks[(-1, 0, *middle)], masks[(-1, 1, *middle)] = False, True
    masks[(-1, 2, *[0] * len(space))] = True
    return torch.from_numpy(masks)


def ellipsoids(rows: int, space: Sequence[int], classes: int = 3, longest: float = 2.0, seed: int = 0) -> Tensor:
    """Up to two ellipses (ellipsoids) of each class, in bands beside each other; axes up to ``longest`` : 1."""
    random = np.random.default_rng(seed)
    masks = np.zeros((rows, classes, *space), bool)
    grid = np.indices(space) + 0.5
    band = space[-1] / (2 * classes)  # along the last axis
    for mask in masks:
        for place in range(2 * classes):
            if random.random() < 0.2:
                continue
            radius = random.uniform(0.3, 0.5 * min(band, *space) / longest)
            radii = [random.uniform(radius, radius * longest) for _ in space]
            radii[-1] = radius
            centre = [random.uniform(0.1, 0.9) * length for length in space]
            centre[-1] = band * (place + 0.5)
            apart = sum(((grid[axis] - centre[axis]) / radii[axis]) ** 2 for axis in range(len(space)))
            mask[place // 2] |= apart <= 1
    return torch.from_numpy(masks)
