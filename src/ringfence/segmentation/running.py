"""Sums within many boxes at once, from running sums along the axes: the map is read once, whatever the objects."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.segmentation.boxes import places_within


@final
class RunningSums:
    """R_k = Σ_{i < k} s_i along an axis, so that the sum from start to stop is R_stop - R_start.

    In float64: in float32 the difference of two long sums would lose what is small between them.

    Args:
        maps: ``[batch, classes, *space]``.
    """

    def __init__(self, maps: Tensor) -> None:
        self._maps = maps
        self._along: dict[int, Tensor] = {}
        self._stretched: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def space(self) -> torch.Size:
        """The lengths of the maps' axes of space."""
        return self._maps.shape[2:]

    def along(self, axis: int) -> Tensor:
        """R, float64: ``[batch, classes, *space]`` but for ``axis``, which is one longer: from 0 to the total."""
        if axis not in self._along:
            self._along[axis] = running_sum(self._maps, 2 + axis)
        return self._along[axis]

    def within(self, boxes: Tensor, kept: tuple[int, ...]) -> Tensor:
        """The sum over every axis but those ``kept``, over the inside of each box along the axes summed.

        Args:
            boxes: int64 ``[batch, classes, objects, axes, 2]``.
            kept: axes of space, ascending.

        Returns:
            float64 ``[batch, classes, objects, *kept axes of space]``; 1 in place of objects, the same for all of
            them, if every axis is kept.
        """
        space = self.space
        summed = [axis for axis in range(len(space)) if axis not in kept]
        if not summed:
            return self._maps.double().unsqueeze(2)
        rest = self._stretches(boxes, summed.pop())
        for axis in reversed(summed):  # from here on there are objects, and few places for each
            dimension = 3 + axis
            inside = places_within(boxes, axis, space[axis])
            shape = [*inside.shape[:3], *[1] * axis, space[axis], *[1] * (rest.ndim - dimension - 1)]
            rest = (rest * inside.view(shape)).sum(dim=dimension)
        return rest

    def _stretches(self, boxes: Tensor, axis: int) -> Tensor:
        """The sum from start to stop along ``axis``, at each place of the others: ``[batch, classes, objects, *]``.

        Kept for the boxes asked about last: strips along two axes and what is inside need the same.
        """
        if axis not in self._stretched or self._stretched[axis][0] is not boxes:
            totals, behind = self.along(axis), len(self.space) - 1 - axis
            # [batch, classes, *space] with the objects in place of the axis: expanded, no memory but for its result
            shape = [*totals.shape]
            shape[2 + axis] = boxes.shape[2]
            ends = boxes[..., axis, :].movedim(-1, 0)
            place = ends.view(*ends.shape[:3], *[1] * axis, ends.shape[3], *[1] * behind)
            start, stop = (totals.gather(2 + axis, one.expand(shape)) for one in place)
            self._stretched[axis] = boxes, (stop - start).movedim(2 + axis, 2)
        return self._stretched[axis][1]


def running_sum(values: Tensor, dimension: int) -> Tensor:
    """R_k = Σ_{i < k} values_i along ``dimension``, in float64, which becomes one longer: R_0 = 0."""
    before = [0, 0] * (values.ndim - 1 - dimension) + [1, 0]
    return F.pad(values, before).cumsum(dim=dimension, dtype=torch.float64)
