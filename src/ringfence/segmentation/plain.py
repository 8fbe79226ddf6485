"""Sums of a probability map along its axes, by plain operations: on any device, in any dtype, to any derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor

from ringfence.segmentation.boxes import covered, places_within
from ringfence.segmentation.running import RunningSums
from ringfence.segmentation.strips import Strips, straight_strips

ALMOST_NOTHING: Final = 1e-6
"""Pixels: added to the size where a centroid divides by it, so that an empty map has its centroid in the middle."""


@final
class PlainSums:
    """Σ s along each axis, of the whole map and within boxes.

    Args:
        maps: s, ``[batch, classes, *space]``.
    """

    def __init__(self, maps: Tensor) -> None:
        self.maps = maps
        self.running = RunningSums(maps)  # of what is asked for, once it is
        self._outside: tuple[Tensor, Tensor] | None = None

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """For each axis, the map summed over all the others: ``[batch, classes, length of the axis]``."""
        return tuple(self._summed_but(axis, None) for axis in range(self._axes))

    def along(self, boxes: Tensor) -> list[Tensor]:
        """For each axis, what is within each box at each place: ``[batch, classes, objects, length]``.

        Args:
            boxes: int64 ``[batch, classes, objects, axes, 2]``.
        """
        if boxes.shape[2] == 1:
            inside = self._inside(boxes[:, :, 0])
            return [self._summed_but(axis, inside).unsqueeze(2) for axis in range(self._axes)]
        found = [self.running.within(boxes, (axis,)) for axis in range(self._axes)]
        return [places.expand(-1, -1, boxes.shape[2], -1).to(self.maps.dtype) for places in found]

    def inside(self, boxes: Tensor) -> Tensor:
        """What is within each box: ``[batch, classes, objects]``."""
        if boxes.shape[2] > 1:
            return self.running.within(boxes, ()).to(self.maps.dtype)
        rest = self.maps
        for within in reversed(self._inside(boxes[:, :, 0])):
            rest = (rest * _along_last(within, rest.ndim - 3)).sum(dim=-1)
        return rest.unsqueeze(2)

    def outside(self, boxes: Tensor) -> Tensor:
        """What is outside of all boxes: ``[batch, classes]``."""
        if boxes.shape[2] > 1:
            return self._free(boxes).flatten(2).sum(dim=-1)
        rest, total = self.maps, self.maps.new_zeros(self.maps.shape[:2])
        # Axis by axis, what lies beyond the box along it: a sum of positive terms, where size minus inside would
        # cancel to noise, perhaps negative, just when the constraint is nearly met.
        for within in reversed(self._inside(boxes[:, :, 0])):
            within = _along_last(within, rest.ndim - 3)
            total = total + (rest * (1.0 - within)).flatten(2).sum(dim=-1)
            rest = (rest * within).sum(dim=-1)
        return total

    def outside_slices(self, boxes: Tensor) -> Tensor:
        """What is outside of all boxes at each place along the first axis: ``[batch, classes, length]``."""
        free = self._free(boxes)
        return free.flatten(3).sum(dim=-1) if self._axes > 1 else free

    def strips(self, boxes: Tensor, width: int, margin: Tensor | None) -> Strips:
        """Strips across each box, along every axis: ``[batch, classes, objects, axes, strips]``."""
        return straight_strips(self.along(boxes), boxes, width, margin)

    def _free(self, boxes: Tensor) -> Tensor:
        """The map, 0 in all boxes; kept for those asked about last, for two constraints ask about the same."""
        if self._outside is None or self._outside[0] is not boxes:
            self._outside = boxes, self.maps * ~covered(boxes, self.maps.shape[2:])
        return self._outside[1]

    @property
    def _axes(self) -> int:
        return self.maps.ndim - 2

    def _summed_but(self, axis: int, inside: list[Tensor] | None) -> Tensor:
        """The map summed over every axis but one, over the inside of the boxes if given."""
        rest = self.maps
        for other in reversed(range(self._axes)):
            if other == axis:
                rest = rest.movedim(2 + axis, 2)  # out of the way of the sums still to come
                continue
            dimension = rest.ndim - 1
            if inside is not None:
                rest = rest * _along_last(inside[other], rest.ndim - 3)
            rest = rest.sum(dim=dimension)
        if inside is not None:
            rest = rest * inside[axis]
        return rest

    def _inside(self, boxes: Tensor) -> list[Tensor]:
        """For each axis, 1 at the places within the box and 0 elsewhere: ``[batch, classes, length]``."""
        space = self.maps.shape[2:]
        return [places_within(boxes, axis, length).to(self.maps) for axis, length in enumerate(space)]


def probability_map(logits: Tensor, classes: tuple[int, ...], temperature: float) -> Tensor:
    """s = softmax(logits / temperature) of the chosen channels, in float32 or wider; a single channel's sigmoid."""
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1.0:  # a pass over the logits saved
        scaled = scaled / temperature
    if logits.shape[1] == 1:
        return scaled.sigmoid()
    maps, first, last = scaled.softmax(dim=1), classes[0], classes[-1]
    if classes == tuple(range(first, last + 1)):
        return maps[:, first : last + 1]  # a view
    return torch.stack([maps[:, one] for one in classes], dim=1)  # a list as index would stall a GPU


def centroid_of(sums: Sequence[Tensor], size: Tensor) -> Tensor:
    """C = Σ_p s_p c_p / Σ_p s_p from the sums along each axis: ``[batch, classes, axes]``."""
    size = size + ALMOST_NOTHING
    places = []
    for along in sums:
        length = along.shape[-1]
        middle = (length - 1) / 2
        # measured from the middle: more exact, and 0 when there is nothing
        offset = torch.arange(length, device=along.device, dtype=along.dtype) - middle
        places.append(middle + (along * offset).sum(dim=-1) / size)
    return torch.stack(places, dim=-1)


def _along_last(within: Tensor, between: int) -> Tensor:
    """``[batch, classes, length]`` so that it multiplies the last axis, with ``between`` axes before it."""
    return within.view(*within.shape[:2], *[1] * between, within.shape[-1])
