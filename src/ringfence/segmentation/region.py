"""Sizes, centroids, strips and what lies outside boxes: all from sums of one probability map along its axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final

import torch
from torch import Tensor

from ringfence.barrier import computing_dtype
from ringfence.numbers import positive_number
from ringfence.segmentation.boxes import checked_boxes, checked_margin, covered, places_within
from ringfence.segmentation.neighbours import boundary_length
from ringfence.segmentation.running import RunningSums
from ringfence.segmentation.slanted import slanted_strips
from ringfence.segmentation.strips import Strips, checked_width, straight_strips

T = TypeVar("T")

ALMOST_NOTHING: Final = 1e-6
"""Pixels: added to the size where a centroid divides by it, so that an empty map has its centroid in the middle."""


@final
class Region:
    """V = Σ_p s_p and C = Σ_p s_p c_p / Σ_p s_p, with s = softmax(logits / temperature) and c_p pixel coordinates.

    One softmax serves everything, and size and centroid need nothing of it but its sums along each axis. Sums are
    in float32 (float64 for float64 logits) whatever the logits are, under autocast as well.

    Args:
        logits: ``[batch, channels, *space]``, space of one, two or three axes. A single channel is taken as the
            foreground's logit (a sigmoid), and is class 0.
        classes: the channels to measure; default: all but the first, the background.
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
        self._known: dict[str, Any] = {}
        self._running = RunningSums(self.probabilities)  # of what is asked for, once it is

    @property
    def axes(self) -> int:
        """How many axes space has."""
        return self.probabilities.ndim - 2

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """For each axis, the map summed over all the others: ``[batch, classes, length of the axis]``."""
        return self._once("sums", lambda: tuple(self._summed_but(axis, None) for axis in range(self.axes)))

    @property
    def size(self) -> Tensor:
        """V, in pixels: ``[batch, classes]``."""
        return self._once("size", lambda: self.sums[0].sum(dim=-1))

    @property
    def centroid(self) -> Tensor:
        """C, in pixel indices: ``[batch, classes, axes]``; the middle of the image for an empty map."""
        return self._once("centroid", lambda: _centroid(self.sums, self.size))

    @property
    def boundary(self) -> Tensor:
        """The length of the boundary in pixels' sides (its area in pixels' faces, in 3-D): ``[batch, classes]``."""
        return self._once("boundary", lambda: boundary_length(self.probabilities, self.axes))

    def outside(self, boxes: Tensor) -> Tensor:
        """The probability mass outside all boxes of a class, in pixels: ``[batch, classes]``.

        Args:
            boxes: integers ``[batch, classes, axes, 2]``: first pixel and one past the last, along every axis; no
                box if start = stop. Or several boxes of a class, ``[batch, classes, objects, axes, 2]``, of which
                some may be empty and some overlap.
        """
        checked_boxes(boxes, self.probabilities.shape)
        if _several(boxes):
            free = ~covered(boxes, self.probabilities.shape[2:])
            return (self.probabilities * free).flatten(2).sum(dim=-1)
        inside = self._inside(_first_of(boxes))
        rest, total = self.probabilities, torch.zeros_like(self.size)
        # Axis by axis, what lies beyond the box along it: a sum of positive terms, where size minus inside would
        # cancel to noise, perhaps negative, just when the constraint is nearly met.
        for axis in reversed(range(self.axes)):
            within = _along_last(inside[axis], rest.ndim - 3)
            beyond = rest * (1.0 - within)
            total = total + beyond.flatten(2).sum(dim=-1)
            rest = (rest * within).sum(dim=-1)
        return total

    def inside(self, boxes: Tensor) -> Tensor:
        """The probability mass within each box, in pixels: ``[batch, classes]`` or ``[batch, classes, objects]``.

        Args:
            boxes: as for ``outside``; 0 for an empty one.
        """
        checked_boxes(boxes, self.probabilities.shape)
        if _several(boxes):
            return self._running.within(boxes.long(), ()).to(self.probabilities.dtype)
        rest = self.probabilities
        for within in reversed(self._inside(_first_of(boxes))):
            rest = (rest * _along_last(within, rest.ndim - 3)).sum(dim=-1)
        return rest.view(boxes.shape[:-2])

    def sizes(self, boxes: Tensor) -> Tensor:
        """V_b, the mass in box b plus the mass outside all boxes of its class: ``[batch, classes, objects]``.

        That is all of the class that is in no other box alone, and just V if there is but one box.

        Args:
            boxes: integers ``[batch, classes, objects, axes, 2]``, as for ``outside``; an empty one has
                what is outside and no more.
        """
        checked_boxes(boxes, self.probabilities.shape)
        if boxes.ndim != 5:
            raise ValueError(f"sizes needs boxes [batch, classes, objects, axes, 2], got {list(boxes.shape)}")
        if not _several(boxes):
            return self.size.unsqueeze(-1)
        return self.inside(boxes) + self.outside(boxes).unsqueeze(-1)

    def strips(self, boxes: Tensor, width: int = 5, margin: Tensor | None = None) -> Strips:
        """The mass in strips of ``width`` pixels across each box, parallel to its sides and within it.

        Each must hold at least its width if the box is tight: any line across it meets the object.

        Args:
            boxes: as for ``outside``.
            width: pixels, >= 1; the last strip of a box is as wide as what is left.
            margin: int64 ``[batch, axes]``, >= 0: how much too wide a box may be at each of its two ends along an
                axis; there are no strips there, but those elsewhere go through all of the box.
        """
        width = checked_width(width)
        checked_boxes(boxes, self.probabilities.shape)
        if margin is not None:
            checked_margin(margin, self.probabilities.shape)
        if not _several(boxes):
            inside = self._inside(_first_of(boxes))
            along = [self._summed_but(axis, inside) for axis in range(self.axes)]
            strips = straight_strips(along, _first_of(boxes), width, margin)
            return strips if boxes.ndim == 4 else Strips(*(one.unsqueeze(2) for one in strips))
        along = [self._running.within(boxes.long(), (axis,)) for axis in range(self.axes)]
        along = [places.expand(-1, -1, boxes.shape[2], -1) for places in along]
        return self._as_measured(straight_strips(along, boxes, width, margin))

    def slanted_strips(self, boxes: Tensor, angle: float, width: int = 5, margin: Tensor | None = None) -> Strips:
        """The mass in strips of ``width`` lines across each box, which drift by tan(angle) per pixel.

        Each must hold at least its width if the box is tight and the object connected through pixels' faces: a line
        from one side of the box to the opposite one meets it. Strips are ``[batch, classes, pairs, strips]``, or
        ``[batch, classes, objects, pairs, strips]``, for the ordered pairs of axes (a, b) that ``pairs_of`` lists:
        across axis a, drifting along it on the way along b.

        Args:
            boxes: as for ``outside``.
            angle: degrees, 0 < |angle| <= 45.
            width: lines, >= 1; the last strip of a box has as many as are left.
            margin: as for ``strips``: lines keep off both ends of the box along a.
        """
        width = checked_width(width)
        checked_boxes(boxes, self.probabilities.shape)
        if margin is not None:
            checked_margin(margin, self.probabilities.shape)
        each = boxes.long() if boxes.ndim == 5 else boxes.long().unsqueeze(2)
        strips = self._as_measured(slanted_strips(self._running, each, angle, width, margin))
        return strips if boxes.ndim == 5 else Strips(*(one.squeeze(2) for one in strips))

    def _once(self, name: str, compute: Callable[[], T]) -> T:
        """What ``compute`` gave when first asked: a cached_property that torch.compile can trace.

        (That of Python 3.11 and before takes a lock, at which a compiled graph breaks.)
        """
        if name not in self._known:
            self._known[name] = compute()
        known: T = self._known[name]
        return known

    def _as_measured(self, strips: Strips) -> Strips:
        """From float64, in which running sums are, to the probabilities' own dtype."""
        dtype = self.probabilities.dtype
        return Strips(strips.sums.to(dtype), strips.widths.to(dtype), strips.mask)

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
        return [places_within(boxes, axis, length).to(self.probabilities) for axis, length in enumerate(space)]


def _centroid(sums: tuple[Tensor, ...], size: Tensor) -> Tensor:
    size = size + ALMOST_NOTHING
    places = []
    for along in sums:
        length = along.shape[-1]
        middle = (length - 1) / 2
        # measured from the middle: more exact, and 0 when there is nothing
        offset = torch.arange(length, device=along.device, dtype=along.dtype) - middle
        places.append(middle + (along * offset).sum(dim=-1) / size)
    return torch.stack(places, dim=-1)


def _several(boxes: Tensor) -> bool:
    return boxes.ndim == 5 and boxes.shape[2] > 1


def _first_of(boxes: Tensor) -> Tensor:
    """The only box of each class, without an axis for objects."""
    return boxes[:, :, 0] if boxes.ndim == 5 else boxes


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
