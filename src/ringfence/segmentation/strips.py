"""Strips across boxes, parallel to their sides: each holds at least its width, if the box is tight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Strips(NamedTuple):
    """Strips across boxes, along every axis: ``rf.at_least(sums, widths, mask=mask)`` is the tightness prior.

    Attributes:
        sums: ``[batch, classes, axes, strips]``: the probability mass of each strip. With several boxes of a class
            ``[batch, classes, objects, axes, strips]``; slanted strips have pairs of axes in place of axes.
        widths: likewise: how many pixels wide it is, the last one of a box perhaps less than the others.
        mask: likewise, bool: False where a box has no more strips.
    """

    sums: Tensor
    widths: Tensor
    mask: Tensor


def straight_strips(along: Sequence[Tensor], boxes: Tensor, width: int, margin: Tensor | None) -> Strips:
    """S_k = Σ along[start + kw : start + (k+1)w], up to the stop, for every axis of every box.

    Args:
        along: for each axis, the mass within the box at each place: ``[batch, classes, (objects,) length]``.
        boxes: integers ``[batch, classes, (objects,) axes, 2]``.
        width: pixels, >= 1.
        margin: integers ``[batch, axes]``, or None.

    Returns:
        Strips ``[batch, classes, (objects,) axes, strips]``.
    """
    most = max(-(-places.shape[-1] // width) for places in along)
    sums, widths = [], []
    for axis, places in enumerate(along):
        start, stop = ends_within_margin(boxes, axis, margin)
        place = start + torch.arange(most * width, device=places.device)
        present = place < stop
        taken = places.gather(-1, place.clamp(max=places.shape[-1] - 1)) * present
        sums.append(taken.unflatten(-1, (most, width)).sum(dim=-1))
        widths.append(present.unflatten(-1, (most, width)).sum(dim=-1))
    mass, pixels = torch.stack(sums, dim=-2), torch.stack(widths, dim=-2)
    return Strips(mass, pixels.to(mass.dtype), pixels > 0)


def ends_within_margin(boxes: Tensor, axis: int, margin: Tensor | None) -> tuple[Tensor, Tensor]:
    """start + margin and stop - margin along ``axis``: each ``[batch, classes, (objects,) 1]``."""
    start, stop = boxes[..., axis, 0, None], boxes[..., axis, 1, None]
    if margin is None:
        return start, stop
    kept_off = margin[:, axis].view(-1, *[1] * (start.ndim - 1))
    return start + kept_off, stop - kept_off


def checked_width(width: int) -> int:
    """``width``, if it is a whole number of pixels, at least 1."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"width must be a whole number of pixels, at least 1, got {width!r}")
    return width
