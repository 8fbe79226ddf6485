"""Turning: what a network says of a turned image, turned back.

A box is along the axes, and that of a turned object is another one: images cannot be turned and keep their boxes.
But a network's answer can: it is asked about the turned image, and its answer is turned back onto the box.

A box that was drawn around an object says nothing of its corners, and a network that sees the object upright learns
to fill them, as it sees where the axes are. From a turned image it cannot tell, so that what it can know of all the
boxes there might be is what they have in common: the object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.barrier import computing_dtype

Beyond = Literal["zeros", "border"]


def turned(maps: Tensor, angle: Tensor, beyond: Beyond = "zeros") -> Tensor:
    """y(R x) = m(x), R turning columns towards rows by an angle, about the middle of the last two axes.

    Bilinear, in floats ``[B, C, *space]``; pixels are taken as square. In volumes all slices are turned alike.

    Args:
        maps: ``[B, C, *space]``.
        angle: ``[B]``, in radians.
        beyond: what there is outside of the maps: nothing, or what is at their border.
    """
    # where a pixel comes from needs more than bfloat16's 8 bits
    with torch.autocast(maps.device.type, enabled=False):
        planes = (maps.flatten(1, -3) if maps.ndim == 5 else maps).to(computing_dtype(maps.dtype))
        matrix = _inverse(angle.to(planes.dtype), planes.shape)
        grid = F.affine_grid(matrix, list(planes.shape), align_corners=False)
        return F.grid_sample(planes, grid, "bilinear", beyond, align_corners=False).view(maps.shape)


def answer_of_turned(network: Callable[[Tensor], Tensor], images: Tensor, angle: Tensor) -> Tensor:
    """R⁻¹ network(R x): the network's logits about turned images, back where the images are.

    What is turned out of sight has the answer of the border next to it, from which nothing is learnt.

    Args:
        network: from images to logits.
        images: ``[B, C, *space]``, floats.
        angle: ``[B]``, in radians.
    """
    logits = turned(network(turned(images, angle)), -angle, "border")
    seen = in_sight(angle, images.shape[-2:])
    return torch.where(seen.view(len(seen), *[1] * (logits.ndim - 3), *seen.shape[1:]), logits, logits.detach())


def in_sight(angle: Tensor, size: Sequence[int]) -> Tensor:
    """Whether a pixel's middle is still in the image when that is turned: bool ``[B, height, width]``."""
    rows, columns = (torch.arange(length, device=angle.device) + 0.5 for length in size)
    return _stay(rows.view(1, -1, 1), columns.view(1, 1, -1), angle, size)


def places_in_sight(places: Tensor, angle: Tensor, size: Sequence[int] | Tensor) -> Tensor:
    """Whether places ``[B, N, 2]``, as rows and columns from the first edge, stay in the image: bool ``[B, N]``."""
    rows, columns = places.unbind(dim=-1)
    return _stay(rows, columns, angle, size)


def boxes_in_sight(ends: Tensor, angle: Tensor, size: Sequence[int] | Tensor) -> Tensor:
    """Whether all of a box is still in the image when that is turned: bool ``[B, ...]``.

    Args:
        ends: first and last edge along rows and columns, ``[B, ..., 2, 2]``.
        angle: ``[B]``, in radians.
        size: height and width.
    """
    rows, columns = ends.unbind(dim=-2)
    corners = [_stay(rows[..., i], columns[..., j], angle, size) for i in (0, 1) for j in (0, 1)]
    return torch.stack(corners).all(dim=0)


def _stay(rows: Tensor, columns: Tensor, angle: Tensor, size: Sequence[int] | Tensor) -> Tensor:
    height, width = size[0], size[1]
    between = [1] * (max(rows.ndim, columns.ndim) - 1)
    cosine, sine = (one.view(-1, *between) for one in (angle.cos(), angle.sin()))
    down, across = rows - height / 2, columns - width / 2
    turned_down, turned_across = sine * across + cosine * down, cosine * across - sine * down
    # a corner of the image itself, turned by nothing, is not to be lost to rounding
    far = 0.5 + 1e-5
    return (turned_down.abs() <= far * height) & (turned_across.abs() <= far * width)


def _inverse(angle: Tensor, shape: torch.Size) -> Tensor:
    """Where turned pixels come from, as ``affine_grid`` has it: from -1 to 1 along columns, then along rows."""
    height, width = shape[-2:]
    cosine, sine = angle.cos(), angle.sin()
    nothing = torch.zeros_like(cosine)
    return torch.stack(
        [
            torch.stack([cosine, sine * (height / width), nothing], dim=1),
            torch.stack([-sine * (width / height), cosine, nothing], dim=1),
        ],
        dim=1,
    )
