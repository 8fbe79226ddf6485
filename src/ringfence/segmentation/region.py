"""Sizes, centroids, strips and what lies outside a box: all from sums of one probability map along its axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple, final

import torch
from torch import Tensor

from ringfence.barrier import computing_dtype
from ringfence.numbers import positive_number

ALMOST_NOTHING: Final = 1e-6
"""Pixels: added to the size where a centroid divides by it, so that an empty map has its centroid in the middle."""


class Strips(NamedTuple):
    """Strips across boxes, along every axis: ``rf.at_least(sums, widths, mask=mask)`` is the tightness prior.

    Attributes:
        sums: ``[batch, classes, axes, strips]``: the probability mass of each strip.
        widths: likewise: how many pixels wide it is, the last one of a box perhaps less than the others.
        mask: likewise, bool: False where a box has no more strips.
    """

    sums: Tensor
    widths: Tensor
    mask: Tensor


@final
class Region:
    """V = Σ_p s_p and C = Σ_p s_p c_p / Σ_p s_p, with s = softmax(logits / temperature) and c_p pixel coordinates.

    One softmax serves everything, and size and centroid need nothing of it but its sums along each axis. Sums are
    in float32 (float64 for float64 logits) whatever the logits are, under autocast as well.

    Args:
        logits: ``[batch, channels, *space]``, space of one, two or three axes. A single channel is taken as the
            foreground's logit (a sigmoid), and is class 0.
        classes: the channels to measure; all but the first (the background) unless given.
        temperature: > 0; below 1 sharpens. (The paper's authors multiply logits by 5: temperature 0.2.)
    """

    def __init__(self, logits: Tensor, classes: Sequence[int] | None = None, temperature: float = 1.0) -> None:
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(f"logits must be a floating-point tensor, got {kind}")
        if not 3 <= logits.ndim <= 5:
            raise ValueError(
                "logits must be [batch, channels, *space] with one to three axes of space, "
                f"got {list(logits.shape)}"
            )
        self.classes = _checked_classes(classes, logits.shape[1])
        scaled = logits.to(computing_dtype(logits.dtype))
        if positive_number("temperature", temperature) != 1.0:  # a pass over the logits saved
            scaled = scaled / temperature
        if logits.shape[1] == 1:
            self.probabilities = scaled.sigmoid()
        else:
            self.probabilities = _chosen(scaled.softmax(dim=1), self.classes)

    @property
    def axes(self) -> int:
        """How many axes space has."""
        return self.probabilities.ndim - 2

    @cached_property
    def sums(self) -> tuple[Tensor, ...]:
        """For each axis, the map summed over all the others: ``[batch, classes, length of the axis]``."""
        return tuple(self._summed_but(axis, None) for axis in range(self.axes))

    @cached_property
    def size(self) -> Tensor:
        """V, in pixels: ``[batch, classes]``."""
        return self.sums[0].sum(dim=-1)

    @cached_property
    def centroid(self) -> Tensor:
        """C, in pixel indices: ``[batch, classes, axes]``; the middle of the image for an empty map."""
        size = self.size + ALMOST_NOTHING
        places = []
        for along in self.sums:
            length = along.shape[-1]
            middle = (length - 1) / 2
            # measured from the middle: more exact, and 0 when there is nothing
            offset = torch.arange(length, device=along.device, dtype=along.dtype) - middle
            places.append(middle + (along * offset).sum(dim=-1) / size)
        return torch.stack(places, dim=-1)

    def outside(self, boxes: Tensor) -> Tensor:
        """The probability mass outside each box, in pixels: ``[batch, classes]``; all of it if start = stop.

        Args:
            boxes: integers ``[batch, classes, axes, 2]``: first pixel and one past the last, along every axis.
        """
        inside = self._inside(boxes)
        rest, total = self.probabilities, torch.zeros_like(self.size)
        # Axis by axis, what lies beyond the box along it: a sum of positive terms, where size minus inside would
        # cancel to noise, perhaps negative, just when the constraint is nearly met.
        for axis in reversed(range(self.axes)):
            within = _along_last(inside[axis], rest.ndim - 3)
            beyond = rest * (1.0 - within)
            total = total + beyond.flatten(2).sum(dim=-1)
            rest = (rest * within).sum(dim=-1)
        return total

    def strips(self, boxes: Tensor, width: int = 5, margin: Tensor | None = None) -> Strips:
        """The mass in strips of ``width`` pixels across each box, parallel to its sides.

        Each must hold at least its width if the box is tight: any line across it meets the object.

        Args:
            boxes: as for ``outside``.
            width: pixels, >= 1; the last strip of a box is as wide as what is left.
            margin: int64 ``[batch, axes]``, >= 0: how much too wide a box may be at each of its two ends along an
                axis; there are no strips there, but those elsewhere go through all of the box.
        """
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise ValueError(f"width must be a whole number of pixels, at least 1, got {width!r}")
        inside = self._inside(boxes)
        most = max(-(-length // width) for length in self.probabilities.shape[2:])
        sums, widths = [], []
        for axis, length in enumerate(self.probabilities.shape[2:]):
            along = self._summed_but(axis, inside)
            start, stop = boxes[..., axis, 0, None], boxes[..., axis, 1, None]
            if margin is not None:
                start, stop = start + margin[:, None, axis, None], stop - margin[:, None, axis, None]
            place = start + torch.arange(most * width, device=along.device)
            present = place < stop
            taken = along.gather(-1, place.clamp(max=length - 1)) * present
            sums.append(taken.unflatten(-1, (most, width)).sum(dim=-1))
            widths.append(present.unflatten(-1, (most, width)).sum(dim=-1))
        pixels = torch.stack(widths, dim=2)
        return Strips(torch.stack(sums, dim=2), pixels.to(self.probabilities.dtype), pixels > 0)

    def _summed_but(self, axis: int, inside: list[Tensor] | None) -> Tensor:
        """The map summed over every axis but one, over the inside of the boxes if given."""
        rest = self.probabilities
        for other in reversed(range(self.axes)):
            if other == axis:
                rest = rest.movedim(2 + axis, 2)  # out of the way of the sums still to come
                continue
            dimension = rest.ndim - 1
            if inside is not None:
                rest = rest * _along_last(inside[other], rest.ndim - 3)
            rest = rest.sum(dim=dimension)
        return rest

    def _inside(self, boxes: Tensor) -> list[Tensor]:
        """For each axis, 1 at the places within the box and 0 elsewhere: ``[batch, classes, length]``."""
        space = self.probabilities.shape[2:]
        expected = (*self.probabilities.shape[:2], self.axes, 2)
        if not isinstance(boxes, Tensor) or boxes.is_floating_point() or tuple(boxes.shape) != expected:
            kind = f"{boxes.dtype} {list(boxes.shape)}" if isinstance(boxes, Tensor) else type(boxes).__name__
            raise ValueError(
                f"boxes must be integers of shape [batch, classes, axes, 2] = {list(expected)}: first pixel and "
                f"one past the last along every axis; got {kind}"
            )
        _check_boxes(boxes, space)
        inside = []
        for axis, length in enumerate(space):
            place = torch.arange(length, device=boxes.device)
            within = (place >= boxes[..., axis, 0, None]) & (place < boxes[..., axis, 1, None])
            inside.append(within.to(self.probabilities))
        return inside


def _chosen(maps: Tensor, classes: tuple[int, ...]) -> Tensor:
    first, last = classes[0], classes[-1]
    if classes == tuple(range(first, last + 1)):
        return maps[:, first : last + 1]  # a view
    return torch.stack([maps[:, one] for one in classes], dim=1)  # a list as index would stall a GPU


def _along_last(within: Tensor, between: int) -> Tensor:
    """``[batch, classes, length]`` so that it multiplies the last axis, with ``between`` axes before it."""
    return within.view(*within.shape[:2], *[1] * between, within.shape[-1])


def _checked_classes(classes: Sequence[int] | None, channels: int) -> tuple[int, ...]:
    if classes is None:
        return (0,) if channels == 1 else tuple(range(1, channels))
    wanted = tuple(int(one) for one in classes)
    if not wanted or len(set(wanted)) < len(wanted) or not all(0 <= one < channels for one in wanted):
        raise ValueError(
            f"classes must be different channels from 0 to {channels - 1} of the logits, at least one; "
            f"got {list(wanted)}"
        )
    return wanted


def _check_boxes(boxes: Tensor, space: torch.Size) -> None:
    """On the CPU, where looking costs nothing: within the image, and start <= stop."""
    if boxes.device.type != "cpu" or torch.compiler.is_compiling():
        return
    start, stop = boxes[..., 0], boxes[..., 1]
    broken = (start < 0) | (start > stop) | (stop > torch.tensor(space))
    if bool(broken.any()):
        place = broken.nonzero()[0].tolist()
        low, high = boxes[tuple(place)].tolist()
        raise ValueError(
            f"box [{low}, {high}) of image {place[0]}, class {place[1]}, axis {place[2]} is not within "
            f"0 <= start <= stop <= {space[place[2]]}"
        )
