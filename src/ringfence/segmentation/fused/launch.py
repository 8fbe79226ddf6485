"""The launches: two for all measures, one for strips, and one or two for the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.segmentation.fused import binary_kernels, class_kernels, kernels, small_kernels
from ringfence.segmentation.fused.cut import HELD, Cut, Slopes, Sums, finishing_warps, power_of_two
from ringfence.segmentation.plain import ALMOST_NOTHING

SHORT: Final = 512
"""Places that the small kernels look at together."""
MANY: Final = 4096
"""Places of strips that are read at once."""


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
    programs = (cut.tiles_x, cut.parts, cut.parts_y, cut.steps)
    into = (*_three(parts), *_three(boxed), outside_parts)
    strides = _strides(logits)
    rate = scale * math.log2(math.e)
    if cut.kind == "binary":
        binary_kernels.forward[(cut.batch * cut.parts * cut.tiles_x,)](
            logits, boxes, *into, *cut.space, *strides, -rate * (cut.sign or 1), *programs,
            PAIRED=_paired(logits), BOXES=boxes is not None, **cut.binary_constants,
        )  # fmt: skip
    elif cut.kind == "classes":
        class_kernels.forward[(cut.batch * cut.parts * cut.tiles_x,)](
            logits, boxes, *into, *cut.space, *strides, rate, *programs, BOXES=boxes is not None, **cut.constants,
        )  # fmt: skip
    else:
        kernels.forward[(cut.batch, cut.parts, cut.tiles_x * objects)](
            logits, boxes, *into, *cut.space, objects, *strides, scale, cut.tiles_y, cut.tiles_x, cut.parts,
            cut.steps, BOXES=boxes is not None, **cut.constants,
        )  # fmt: skip
    sums = tuple(_room(cut, logits, length) for length in cut.lengths)
    size, centroid = _room(cut, logits), _room(cut, logits, cut.axes)
    along: tuple[Tensor, ...] = ()
    inside = outside = None
    if boxes is not None:
        along = tuple(_room(cut, logits, objects, length) for length in cut.lengths)
        inside, outside = _room(cut, logits, objects), _room(cut, logits)
    block = min(SHORT, power_of_two(max(cut.lengths)))
    grid = (cut.batch * cut.count, 1 + (objects if boxes is not None else 0), cut.axes)
    warps = finishing_warps(math.prod(grid))
    several = min(HELD * warps // block, power_of_two(max(counts[3 - cut.axes : 3])))
    small_kernels.finish[grid](
        *_three(parts), *_three(boxed), outside_parts, *_three(sums), *_three(along), size, centroid, inside,
        outside, *counts, *cut.space, objects, ALMOST_NOTHING, AXES=cut.axes, BOXES=boxes is not None, BLOCK=block,
        SEVERAL=several, num_warps=warps,
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
    wide = min(MANY, power_of_two(width))
    small_kernels.strips[(batch * classes * objects, axes)](
        *_three(along), boxes, *_margin(margin), sums, widths, there, classes * objects, *space, width, most,
        AXES=axes, MARGIN=margin is not None, BLOCK=min(MANY // wide, power_of_two(most)), WIDE=wide,
    )  # fmt: skip
    return sums, widths, there


def backward(logits: Tensor, boxes: Tensor | None, cut: Cut, scale: float, slopes: Slopes) -> Tensor:
    """The gradient, laid out as the logits are."""
    given, measured = _dense(slopes, cut), slopes.measured
    margin = slopes.margin
    if cut.kind != "binary":
        given, measured, margin = _combined(given, boxes, cut, slopes, logits), None, None
    gradient = torch.empty_like(logits)
    beyond = None if boxes is None else slopes.outside
    steps = (0, 0) if beyond is None else beyond.stride()
    strides = (*_strides(logits), *_strides(gradient))
    rate = scale * math.log2(math.e)
    programs = (cut.tiles_x, cut.parts, cut.parts_y, cut.steps)
    how = {"OUTSIDE": beyond is not None, "BOXES": boxes is not None}
    slope = (*_three(given["sums"]), *_three(given["along"]))
    if cut.kind == "binary":
        sign = cut.sign or 1
        binary_kernels.backward[(cut.batch * cut.parts * cut.tiles_x,)](
            logits, gradient, boxes, *_margin(margin), *slope[:3], given["size"], given["centroid"], *slope[3:],
            given["inside"], given["strips"], *_found(measured), beyond, steps[0], *cut.space, *strides,
            -rate * sign, scale * sign, ALMOST_NOTHING, _most(given), *programs,
            PAIRED=_paired(logits) and _paired(gradient), MARGIN=margin is not None, WIDTH=slopes.width,
            **_which(given), **how, **cut.binary_constants,
        )  # fmt: skip
    elif cut.kind == "classes":
        class_kernels.backward[(cut.batch * cut.parts * cut.tiles_x,)](
            logits, gradient, boxes, *slope, beyond, *steps, *cut.space, *strides, rate, scale, *programs, **how,
            **cut.constants,
        )  # fmt: skip
    else:
        objects = 1 if boxes is None else boxes.shape[2]
        kernels.backward[(cut.batch, cut.parts, cut.tiles_x)](
            logits, gradient, boxes, *slope, beyond, *steps, *cut.space, objects, *strides, scale, cut.tiles_y,
            cut.steps, **how, **cut.constants,
        )  # fmt: skip
    return gradient


def _combined(
    given: dict[str, Any], boxes: Tensor | None, cut: Cut, slopes: Slopes, like: Tensor
) -> dict[str, Any]:
    """All gradients as those of the sums along each axis, of the whole map and within boxes."""
    objects = 1 if boxes is None else boxes.shape[2]
    whole = [_room(cut, like, length) for length in cut.lengths]
    boxed = [] if boxes is None else [_room(cut, like, objects, length) for length in cut.lengths]
    block = min(SHORT, power_of_two(max(cut.lengths)))
    grid = (cut.batch * cut.count, 1 + (objects if boxes is not None else 0), -(-max(cut.lengths) // block))
    small_kernels.combine[grid](
        *_three(given["sums"]), given["size"], given["centroid"], *_three(given["along"]), given["inside"],
        given["strips"], *_found(slopes.measured), boxes, *_margin(slopes.margin), *_three(whole), *_three(boxed),
        *cut.space, objects, cut.count, _most(given), ALMOST_NOTHING, AXES=cut.axes,
        MARGIN=slopes.margin is not None, WIDTH=slopes.width, BOXES=boxes is not None, BLOCK=block,
        **_which(given),
    )  # fmt: skip
    return {"sums": whole, "along": boxed, **dict.fromkeys(("size", "centroid", "inside", "strips"))}


def _which(given: dict[str, Any]) -> dict[str, bool]:
    """Which gradients there are, as the kernels are compiled for."""
    axes = {name.upper(): bool(given[name]) for name in ("sums", "along")}
    return axes | {name.upper(): given[name] is not None for name in ("size", "centroid", "inside", "strips")}


def _most(given: dict[str, Any]) -> int:
    """Strips along an axis."""
    return 1 if given["strips"] is None else int(given["strips"].shape[-1])


def _found(measured: Sums | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if measured is None else (measured.size, measured.centroid)


def _paired(maps: Tensor) -> bool:
    """Whether a pixel's two channels lie beside each other, and pixels one after another."""
    return maps.shape[1] == 2 and (maps.stride(1), maps.stride(-1)) == (1, 2)


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


def _margin(margin: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A margin, and the strides of its images and axes: one for all images has none."""
    if margin is None:
        return None, 0, 0
    return margin, 0 if len(margin) == 1 else margin.stride(0), margin.stride(1)


def _strides(maps: Tensor) -> list[int]:
    """Of batch, channel, Z, Y and X; 0 for axes that are not there."""
    batch, channel, *rest = maps.stride()
    return [batch, channel, *[0] * (3 - len(rest)), *rest]
