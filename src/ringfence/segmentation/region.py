"""Sizes, centroids, strips and what lies outside boxes: all from sums of one probability map along its axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from ringfence.numbers import positive_number
from ringfence.segmentation.boxes import checked_boxes, checked_margin, places_within
from ringfence.segmentation.fused import MOST_OBJECTS, FusedSums, fused_sums
from ringfence.segmentation.neighbours import boundary_length
from ringfence.segmentation.plain import PlainSums, centroid_of, probability_map
from ringfence.segmentation.points import at_points
from ringfence.segmentation.slanted import slanted_strips
from ringfence.segmentation.strips import Strips, checked_width

T = TypeVar("T")


@final
class Region:
    """V = Σ_p s_p and C = Σ_p s_p c_p / Σ_p s_p, with s = softmax(logits / temperature) and c_p pixel coordinates.

    One softmax serves everything, and most measures need nothing of it but its sums along each axis. Sums are
    in float32 (float64 for float64 logits) whatever the logits are, under autocast as well. On a GPU they come from
    one kernel that reads the logits once, and their gradient from another; the map s itself is never stored, unless
    somebody asks for it.

    Args:
        logits: ``[batch, channels, *space]``, space of one, two or three axes. A single channel is taken as the
            foreground's logit (a sigmoid), and is class 0.
        classes: the channels to measure; default: all but the first, the background.
        temperature: > 0; below 1 sharpens. (The paper's authors multiply logits by 5: temperature 0.2.)
        boxes: those that will be asked for, as in ``outside``, if known by now: on a GPU they are then measured in
            the same pass as all else. Any others can be asked for just as well.
    """

    def __init__(
        self,
        logits: Tensor,
        classes: Sequence[int] | None = None,
        temperature: float = 1.0,
        boxes: Tensor | None = None,
    ) -> None:
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(f"logits must be a floating-point tensor, got {kind}")
        if not 3 <= logits.ndim <= 5:
            raise ValueError(
                "logits must be [batch, channels, *space] with one to three axes of space, "
                f"got {list(logits.shape)}"
            )
        self.classes = _checked_classes(classes, logits.shape[1])
        self._logits, self._temperature = logits, positive_number("temperature", temperature)
        self._known: dict[str, Any] = {}
        known = None if boxes is None else _each(checked_boxes(boxes, self.shape))
        self._fused = fused_sums(logits, self.classes, self._temperature, known)

    @property
    def shape(self) -> torch.Size:
        """``[batch, classes, *space]``."""
        return torch.Size((self._logits.shape[0], len(self.classes), *self._logits.shape[2:]))

    @property
    def probabilities(self) -> Tensor:
        """s, of the measured classes: ``[batch, classes, *space]``, made when it is first asked for."""
        return self._plain.maps

    @property
    def _plain(self) -> PlainSums:
        return self._once(
            "plain", lambda: PlainSums(probability_map(self._logits, self.classes, self._temperature))
        )

    @property
    def axes(self) -> int:
        """How many axes space has."""
        return self._logits.ndim - 2

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """For each axis, the map summed over all the others: ``[batch, classes, length of the axis]``."""
        return self._once("sums", lambda: self._plain.sums if self._fused is None else self._fused.sums)

    @property
    def size(self) -> Tensor:
        """V, in pixels: ``[batch, classes]``."""
        return self._once("size", lambda: self.sums[0].sum(dim=-1) if self._fused is None else self._fused.size)

    @property
    def centroid(self) -> Tensor:
        """C, in pixel indices: ``[batch, classes, axes]``; the middle of the image for an empty map."""
        return self._once(
            "centroid",
            lambda: centroid_of(self.sums, self.size) if self._fused is None else self._fused.centroid,
        )

    @property
    def boundary(self) -> Tensor:
        """The length of the boundary in pixels' sides (its area in pixels' faces, in 3-D): ``[batch, classes]``."""
        return self._once("boundary", lambda: boundary_length(self.probabilities, self.axes))

    def at(self, points: Tensor) -> Tensor:
        """s at single pixels, ``[batch, classes, points]``; the map elsewhere is not computed.

        Args:
            points: integers ``[batch, points, axes]``, pixels within the image.
        """
        return probability_map(at_points(self._logits, points), self.classes, self._temperature)

    def outside(self, boxes: Tensor) -> Tensor:
        """The probability mass outside all boxes of a class, in pixels: ``[batch, classes]``.

        Args:
            boxes: integers ``[batch, classes, axes, 2]``: first pixel and one past the last, along every axis; no
                box if start = stop. Or several boxes of a class, ``[batch, classes, objects, axes, 2]``, of which
                some may be empty and some overlap.
        """
        each = _each(checked_boxes(boxes, self.shape))
        return self._of(each).outside(each)

    def inside(self, boxes: Tensor) -> Tensor:
        """The probability mass within each box, in pixels: ``[batch, classes]`` or ``[batch, classes, objects]``.

        Args:
            boxes: as for ``outside``; 0 for an empty one.
        """
        each = _each(checked_boxes(boxes, self.shape))
        return self._of(each).inside(each).view(boxes.shape[:-2])

    def sizes(self, boxes: Tensor, *, slices: bool = False) -> Tensor:
        """V_b, the mass in box b plus the mass outside all boxes of its class: ``[batch, classes, objects]``.

        That is all of the class that is in no other box alone, and just V if there is but one box.

        Args:
            boxes: integers ``[batch, classes, objects, axes, 2]``, as for ``outside``; an empty one has
                what is outside and no more.
            slices: count only those places along the first axis that a box goes through: V of its slices.
        """
        checked_boxes(boxes, self.shape)
        if boxes.ndim != 5:
            raise ValueError(f"sizes needs boxes [batch, classes, objects, axes, 2], got {list(boxes.shape)}")
        if not slices:
            return (
                self.size.unsqueeze(-1)
                if boxes.shape[2] == 1
                else self.inside(boxes) + self.outside(boxes).unsqueeze(-1)
            )
        there = places_within(boxes, 0, self.shape[2])
        if boxes.shape[2] == 1:
            return (self.sums[0].unsqueeze(2) * there).sum(dim=-1)
        return self.inside(boxes) + (self._plain.outside_slices(boxes.long()).unsqueeze(2) * there).sum(dim=-1)

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
        checked_boxes(boxes, self.shape)
        if margin is not None:
            checked_margin(margin, self.shape)
        each = _each(boxes)
        strips = self._of(each).strips(each, width, margin)
        return strips if boxes.ndim == 5 else Strips(*(one.squeeze(2) for one in strips))

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
        checked_boxes(boxes, self.shape)
        if margin is not None:
            checked_margin(margin, self.shape)
        strips = self._as_measured(slanted_strips(self._plain.running, _each(boxes), angle, width, margin))
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

    def _of(self, boxes: Tensor) -> PlainSums | FusedSums:
        """What measures these boxes."""
        return self._plain if self._fused is None or boxes.shape[2] > MOST_OBJECTS else self._fused


def _each(boxes: Tensor) -> Tensor:
    """int64, with an axis for the objects of a class."""
    return (boxes if boxes.ndim == 5 else boxes.unsqueeze(2)).long()


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
