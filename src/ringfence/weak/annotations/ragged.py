"""Several boxes of a class in an image, as one array: each list is padded with empty boxes to the longest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Box: TypeAlias = tuple[tuple[int, int], ...]
"""First voxel and one past the last, along each axis."""


def padded_boxes(lists: Iterable[Iterable[Box]], axes: int) -> NDArray[np.int64]:
    """``[lists, objects, axes, 2]``: the boxes of each list, then empty ones (all zeros) up to the longest list.

    Boxes are ordered by their starts along the axes, then by their stops. The same box twice is kept once, since
    the second says nothing that the first does not. ``objects`` is at least 1.
    """
    ordered: list[Sequence[Box]] = [sorted(set(boxes), key=_corners) for boxes in lists]
    padded = np.zeros((len(ordered), max(map(len, ordered), default=0) or 1, axes, 2), dtype=np.int64)
    for row, boxes in zip(padded, ordered, strict=True):
        if boxes:
            row[: len(boxes)] = boxes
    return padded


def present_first(boxes: Tensor, most: int | None = None) -> Tensor:
    """Places of the boxes that are there, in their order, and then of empty ones: int64 ``[..., most]``.

    Args:
        boxes: integers ``[..., objects, axes, 2]``.
        most: how many to keep, no fewer than are there; default: the largest number, at least 1, for which one has
            to look: a GPU would wait.
    """
    there = (boxes[..., 1] > boxes[..., 0]).all(dim=-1)
    order = (~there).to(torch.uint8).argsort(dim=-1, stable=True)
    if most is None:
        most = max(1, int(there.sum(dim=-1).max())) if there.numel() else 1
    return order[..., :most]


def objects_at(tensor: Tensor, order: Tensor) -> Tensor:
    """The entries of ``[..., objects, *rest]`` at places ``order``, ``[..., most]``."""
    rest = tensor.shape[order.ndim :]
    return tensor.gather(order.ndim - 1, order.view(*order.shape, *[1] * len(rest)).expand(*order.shape, *rest))


def _corners(box: Box) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(start for start, _ in box), tuple(stop for _, stop in box)
