"""The launches: two for all measures, one for strips, two for the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.segmentation.fused import binary_kernels, kernels, small_kernels
from ringfence.segmentation.fused.cut import Cut, Slopes, Sums, power_of_two
from ringfence.segmentation.plain import ALMOST_NOTHING

SHORT: Final = 512
"""Places that the small kernels look at together."""


def forward(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float) -> Sums:
    """All measures of ``logits``, with ``scale`` being 1 / temperature; boxes as int64 and contiguous."""
    objects = 1 if boxes is None else boxes.shape[2]
    counts = cut.counts
    parts = [
        _room(cut, logits, count, length)
        for count, length in zip(counts[3 - cut.axes : 3], cut.lengths, strict=True)
    ]
    boxed: list[Tensor] = []
    outside_parts: Tensor | None = None
    if boxes is not None:
        boxed = [
            _room(cut, logits, objects, count, length)
            for count, length in zip(counts[3 - cut.axes : 3], cut.lengths, strict=True)
        ]
        outside_parts = _room(cut, logits, counts[3])
    tail = (cut.tiles_x, cut.parts, cut.steps)
    if cut.binary:
        batch, channel, _, row, column = _strides(logits)
        binary_kernels.forward[(cut.batch, cut.parts, cut.tiles_x)](
            logits, boxes, *parts, *_or_none(boxed, 2), outside_parts, *cut.space[1:], batch, channel, row, column,
            scale, *tail, PAIRED=(channel, column) == (1, 2), BOXES=boxes is not None, **cut.binary_constants,
        )  # fmt: skip
    else:
        kernels.forward[(cut.batch, cut.parts, cut.tiles_x * objects)](
            logits, boxes, *_three(parts), *_three(boxed), outside_parts, *cut.space, objects, *_strides(logits),
            scale, cut.tiles_y, *tail, BOXES=boxes is not None, **cut.constants,
        )  # fmt: skip
    sums = tuple(_room(cut, logits, length) for length in cut.lengths)
    size, centroid = _room(cut, logits), _room(cut, logits, cut.axes)
    along: tuple[Tensor, ...] = ()
    inside = outside = None
    if boxes is not None:
        along = tuple(_room(cut, logits, objects, length) for length in cut.lengths)
        inside, outside = _room(cut, logits, objects), _room(cut, logits)
    small_kernels.finish[(cut.batch * cut.count, 1 + (objects if boxes is not None else 0), cut.axes)](
        *_three(parts), *_three(boxed), outside_parts, *_three(sums), *_three(along), size, centroid, inside,
        outside, *counts, *cut.space, objects, ALMOST_NOTHING, AXES=cut.axes, BOXES=boxes is not None, BLOCK=SHORT,
    )  # fmt: skip
    return Sums(sums, size, centroid, along, inside, outside)


def strips(
    along: Sequence[Tensor], boxes: Tensor, width: int, margin: Tensor | None, space: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Strips across boxes: mass, width, and where there are any, each ``[batch, K, objects, axes, most]``."""
    batch, classes, objects, axes, _ = boxes.shape
    most = max(-(-length // width) for length in space[3 - axes :])
    sums = along[0].new_empty(batch, classes, objects, axes, most)
    widths, there = torch.empty_like(sums), torch.empty_like(sums, dtype=torch.bool)
    small_kernels.strips[(batch * classes * objects, axes)](
        *_three(along), boxes, *_margin(margin), sums, widths, there, classes * objects, *space, width, most,
        AXES=axes, MARGIN=margin is not None, BLOCK=min(SHORT, power_of_two(most)),
    )  # fmt: skip
    return sums, widths, there


def backward(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float, slopes: Slopes) -> Tensor:
    """The gradient, laid out as the logits are."""
    objects = 1 if boxes is None else boxes.shape[2]
    whole = [_room(cut, logits, length) for length in cut.lengths]
    boxed = [] if boxes is None else [_room(cut, logits, objects, length) for length in cut.lengths]
    given, own = _dense(slopes, cut), slopes.measured
    most = 1 if slopes.strips is None else slopes.strips.shape[-1]
    small_kernels.combine[(cut.batch * cut.count, 1 + (objects if boxes is not None else 0))](
        *_three(given["sums"]), given["size"], given["centroid"], *_three(given["along"]), given["inside"],
        given["strips"], None if own is None else own.size, None if own is None else own.centroid, boxes,
        *_margin(slopes.margin), *_three(whole), *_three(boxed), *cut.space, objects, cut.count, slopes.width, most,
        ALMOST_NOTHING, AXES=cut.axes, SUMS=bool(given["sums"]), SIZE=given["size"] is not None,
        CENTROID=given["centroid"] is not None, ALONG=bool(given["along"]), INSIDE=given["inside"] is not None,
        STRIPS=given["strips"] is not None, MARGIN=slopes.margin is not None, BOXES=boxes is not None, BLOCK=SHORT,
    )  # fmt: skip
    gradient = torch.empty_like(logits)
    beyond = slopes.outside
    if boxes is not None and beyond is None:
        beyond = torch.zeros((), device=logits.device).expand(cut.batch, cut.count)
    steps = (0, 0) if beyond is None else beyond.stride()
    if cut.binary:
        batch, channel, _, row, column = _strides(logits)
        grad_batch, grad_channel, _, grad_row, grad_column = _strides(gradient)
        binary_kernels.backward[(cut.batch, cut.parts, cut.tiles_x)](
            logits, gradient, boxes, *whole, *_or_none(boxed, 2), beyond, steps[0], *cut.space[1:], batch, channel,
            row, column, grad_batch, grad_channel, grad_row, grad_column, scale, cut.steps,
            PAIRED=(channel, column, grad_channel, grad_column) == (1, 2, 1, 2), BOXES=boxes is not None,
            **cut.binary_constants,
        )  # fmt: skip
    else:
        kernels.backward[(cut.batch, cut.parts, cut.tiles_x)](
            logits, gradient, boxes, *_three(whole), *_three(boxed), beyond, *steps, *cut.space, objects,
            *_strides(logits), *_strides(gradient), scale, cut.tiles_y, cut.steps, BOXES=boxes is not None,
            **cut.constants,
        )  # fmt: skip
    return gradient


def _room(cut: Cut, like: Tensor, *shape: int) -> Tensor:
    return torch.empty(cut.batch, cut.count, *shape, device=like.device)


def _dense(slopes: Slopes, cut: Cut) -> dict[str, Any]:
    """Gradients without gaps in memory; where some axes have one and others none, zeros for these."""

    def all_or_none(some: Sequence[Tensor | None]) -> list[Tensor]:
        like = next((one for one in some if one is not None), None)
        if like is None:
            return []
        return [
            like.new_zeros(*like.shape[:-1], length) if one is None else one.contiguous()
            for one, length in zip(some, cut.lengths, strict=True)
        ]

    singles = {name: getattr(slopes, name) for name in ("size", "centroid", "inside", "strips")}
    return {
        "sums": all_or_none(slopes.sums),
        "along": all_or_none(slopes.along),
        **{name: None if one is None else one.contiguous() for name, one in singles.items()},
    }


def _three(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """One for each of Z, Y and X; None for those that are not there."""
    return [*[None] * (3 - len(tensors)), *tensors]


def _or_none(tensors: Sequence[Tensor], count: int) -> list[Tensor | None]:
    return list(tensors) or [None] * count


def _margin(margin: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A margin, and the strides of its images and axes: one for all images has none."""
    if margin is None:
        return None, 0, 0
    return margin, 0 if len(margin) == 1 else margin.stride(0), margin.stride(1)


def _strides(maps: Tensor) -> list[int]:
    """Of batch, channel, Z, Y and X; 0 for axes that are not there."""
    batch, channel, *rest = maps.stride()
    return [batch, channel, *[0] * (3 - len(rest)), *rest]
