"""Slanted strips: digital lines from one side of a box to the opposite one, which no connected object avoids."""

from __future__ import annotations

import itertools
import math
from typing import Final

import torch
from torch import Tensor

from ringfence.numbers import is_number
from ringfence.segmentation.boxes import places_within
from ringfence.segmentation.running import RunningSums, running_sum
from ringfence.segmentation.strips import Strips, ends_within_margin

ONE: Final = 1 << 20
"""A slope of 1. Slopes are whole numbers of 2^-20, so that a pixel is on the same line whatever the device."""


def pairs_of(axes: int) -> tuple[tuple[int, int], ...]:
    """The ordered pairs (a, b) of axes, a ≠ b, in the order in which slanted strips come.

    A strip of the pair (a, b) lies across axis a, drifting along it as it goes along b: it says something if the
    box is tight along a.

    Args:
        axes: how many axes space has: 2 pairs for two, 6 for three, none for one.
    """
    return tuple(itertools.permutations(range(axes), 2))


def slanted_strips(
    running: RunningSums, boxes: Tensor, angle: float, width: int, margin: Tensor | None = None
) -> Strips:
    """S_k = Σ s_p over w whole lines x_a - ⌊tan(angle) (x_b - start_b) + ½⌋ = j, one after another.

    A line is whole if it stays within the box, less the margin at each of its ends along a, for every x_b of the
    box. A step through a pixel's face changes j by at most one, as |tan(angle)| <= 1. So an object connected
    through faces that reaches both ends of the box along a has a pixel on every whole line, and S_k is at least w.
    (One connected through corners may slip between two lines.)

    Args:
        running: running sums of the maps ``[batch, classes, *space]``.
        boxes: int64 ``[batch, classes, objects, axes, 2]``.
        angle: degrees, 0 < |angle| <= 45.
        width: lines, >= 1; the last strip of a box has as many as are left.
        margin: int64 ``[batch, axes]``, or None.

    Returns:
        Strips ``[batch, classes, objects, pairs, strips]``, in float64.
    """
    slope, space = _checked_slope(angle), running.space
    if len(space) < 2:
        raise ValueError(f"slanted strips need two or three axes of space, got {len(space)}, of shape {[*space]}")
    most = max(-(-length // width) for length in space)
    widest = width * torch.arange(most + 1, device=boxes.device)
    exists = (boxes[..., 0] < boxes[..., 1]).all(dim=-1)[..., None]
    sums, widths = [], []
    for a, b in pairs_of(len(space)):
        start_b, stop_b = boxes[..., b, 0, None], boxes[..., b, 1, None]
        drift = _drift(slope, torch.arange(space[b], device=boxes.device) - start_b)
        furthest = _drift(slope, stop_b - 1 - start_b)  # drift is monotone: from 0 to this, in the box
        start, stop = ends_within_margin(boxes, a, margin)
        first, end = start - furthest.clamp(max=0), stop - furthest.clamp(min=0)
        edges = torch.minimum(widest, (end - first).clamp(min=0) * exists)
        # At each place along b, lines first + edge to first + next edge are a stretch along a: a difference of two
        # running sums. Places beyond the box count for nothing, and are clamped only so that there is something.
        place = ((first + edges)[..., None] + drift[..., None, :]).clamp(0, space[a])
        inside = places_within(boxes, b, space[b])[..., None, :]
        up_to_edge = (_gathered(_planes(running, boxes, a, b), place) * inside).sum(dim=-1)
        sums.append(up_to_edge.diff(dim=-1))
        widths.append(edges.diff(dim=-1))
    mass, lines = torch.stack(sums, dim=-2), torch.stack(widths, dim=-2)
    return Strips(mass, lines.to(mass.dtype), lines > 0)


def _checked_slope(angle: float) -> int:
    """tan(angle), as a whole number of 2^-20."""
    if not is_number(angle) or not 0.0 < abs(angle) <= 45.0:
        raise ValueError(f"angle must be in degrees, 0 < |angle| <= 45, got {angle!r}")
    return round(math.tan(math.radians(angle)) * ONE)


def _drift(slope: int, steps: Tensor) -> Tensor:
    """⌊tan(angle) steps + ½⌋, in integers."""
    return (slope * steps + ONE // 2) // ONE


def _planes(running: RunningSums, boxes: Tensor, a: int, b: int) -> Tensor:
    """Running sums along a of what is within the box along any third axis: ``[batch, classes, objects, a + 1, b]``.

    With two axes there is nothing to sum before: all objects share one, ``[batch, classes, 1, a + 1, b]``.
    """
    if len(running.space) == 2:
        return running.along(a).movedim(2 + a, 2).unsqueeze(2)
    plane = running.within(boxes, (min(a, b), max(a, b)))
    return running_sum(plane if a < b else plane.transpose(-1, -2), 3)


def _gathered(planes: Tensor, place: Tensor) -> Tensor:
    """``planes`` at ``place`` along a: ``[batch, classes, objects, edges, b]``.

    Objects that share a plane queue up along a. Expanding the plane would make the gradient one plane per object.
    """
    queued = place.reshape(*planes.shape[:3], -1, place.shape[-1])
    return planes.gather(3, queued).reshape(place.shape)
