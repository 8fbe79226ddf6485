"""Boxes around objects: their checks, the places within them along each axis, and the pixels that they cover."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def checked_boxes(boxes: Tensor, shape: torch.Size) -> Tensor:
    """``boxes``, if they fit maps of ``shape`` ``[batch, classes, *space]``; otherwise an error with the shapes.

    Args:
        boxes: integers ``[batch, classes, axes, 2]`` or ``[batch, classes, objects, axes, 2]``: first pixel and one
            past the last, along every axis; start = stop means that there is no box.
        shape: the maps' own.
    """
    one = (*shape[:2], len(shape) - 2, 2)
    given = tuple(boxes.shape) if isinstance(boxes, Tensor) else ()
    several = len(given) == 5 and given[2] >= 1 and (*given[:2], *given[3:]) == one
    if not isinstance(boxes, Tensor) or boxes.is_floating_point() or not (several or given == one):
        kind = f"{boxes.dtype} {list(given)}" if isinstance(boxes, Tensor) else type(boxes).__name__
        raise ValueError(
            f"boxes must be integers of shape [batch, classes, axes, 2] = {list(one)}, or with an axis for the "
            "objects of a class, [batch, classes, objects, axes, 2]: first pixel and one past the last along every "
            f"axis; got {kind}"
        )
    _check_ends(boxes, shape[2:])
    return boxes


def checked_margin(margin: Tensor, shape: torch.Size) -> Tensor:
    """``margin``, if it is integers ``[batch, axes]`` for maps of ``shape`` (or ``[1, axes]``, for all images)."""
    axes = len(shape) - 2
    fits = isinstance(margin, Tensor) and tuple(margin.shape) in ((shape[0], axes), (1, axes))
    if not fits or margin.is_floating_point():
        kind = f"{margin.dtype} {list(margin.shape)}" if isinstance(margin, Tensor) else type(margin).__name__
        raise ValueError(f"margin must be integers of shape [batch, axes] = {[shape[0], axes]}, got {kind}")
    return margin


def places_within(boxes: Tensor, axis: int, length: int) -> Tensor:
    """Whether start <= place < stop along ``axis``: bool ``[batch, classes, (objects,) length]``."""
    place = torch.arange(length, device=boxes.device)
    return (place >= boxes[..., axis, 0, None]) & (place < boxes[..., axis, 1, None])


def covered(boxes: Tensor, space: torch.Size) -> Tensor:
    """Whether a pixel lies in at least one of its class's boxes: bool ``[batch, classes, *space]``.

    A box is +1 and -1, by turns, at its 2^axes corners, summed up along every axis in turn. All in integers, so it
    is exact and the same on every device, and it takes no memory for each object.

    Args:
        boxes: integers ``[batch, classes, objects, axes, 2]``; they may overlap, and an empty one covers nothing.
        space: the image's lengths.
    """
    corners = [length + 1 for length in space]  # a box may end one past the last pixel
    places, signs = [], []
    for ends in itertools.product((0, 1), repeat=len(space)):
        place = torch.zeros_like(boxes[..., 0, 0], dtype=torch.int64)
        for axis, end in enumerate(ends):
            place = place * corners[axis] + boxes[..., axis, end]
        places.append(place)
        signs.append(torch.full_like(place, (-1) ** sum(ends), dtype=torch.int32))
    count = torch.zeros(*boxes.shape[:2], math.prod(corners), device=boxes.device, dtype=torch.int32)
    count = count.scatter_add(-1, torch.cat(places, dim=-1), torch.cat(signs, dim=-1)).view(
        *boxes.shape[:2], *corners
    )
    for axis, length in enumerate(space):
        count = count.cumsum(dim=2 + axis, dtype=torch.int32).narrow(2 + axis, 0, length)
    return count > 0


def _check_ends(boxes: Tensor, space: torch.Size) -> None:
    """On the CPU, where looking costs nothing: within the image, and start <= stop."""
    if boxes.device.type != "cpu" or torch.compiler.is_compiling():
        return
    start, stop = boxes[..., 0], boxes[..., 1]
    broken = (start < 0) | (start > stop) | (stop > torch.tensor(space))
    if bool(broken.any()):
        place = broken.nonzero()[0].tolist()
        low, high = boxes[tuple(place)].tolist()
        names = ("image", "class", "axis") if boxes.ndim == 4 else ("image", "class", "object", "axis")
        where = ", ".join(f"{name} {number}" for name, number in zip(names, place, strict=True))
        raise ValueError(f"box [{low}, {high}) of {where} is not within 0 <= start <= stop <= {space[place[-1]]}")
