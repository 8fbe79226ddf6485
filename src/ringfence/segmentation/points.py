"""Single pixels of a network's output, without a pass over the others."""

from __future__ import annotations

from torch import Tensor


def at_points(values: Tensor, points: Tensor) -> Tensor:
    """``values`` at pixels: ``[batch, channels, points]``.

    Args:
        values: ``[batch, channels, *space]``.
        points: integers ``[batch, points, axes]``, pixels within the image.
    """
    space = values.shape[2:]
    if points.is_floating_point() or points.ndim != 3 or points.shape[::2] != (len(values), len(space)):
        raise ValueError(
            f"points must be integers [batch, points, axes], [{len(values)}, ..., {len(space)}] here, got "
            f"{points.dtype} of shape {list(points.shape)}"
        )
    flat = points[..., 0].long()
    for axis, length in enumerate(space[1:], start=1):
        flat = flat * length + points[..., axis]
    return values.flatten(2).gather(2, flat.unsqueeze(1).expand(-1, values.shape[1], -1))
