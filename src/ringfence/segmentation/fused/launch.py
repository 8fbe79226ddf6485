"""How a map is cut into tiles and programs, and the launches: two for all measures, two for their gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.segmentation.fused import binary_kernels, kernels, small_kernels
from ringfence.segmentation.plain import ALMOST_NOTHING

TILE: Final = 4096
"""Numbers that a program holds at once: 32 for each of 128 threads."""
WIDEST: Final = 512
"""Columns of a tile; wider maps have several beside each other."""
ROWS: Final = 64
"""A program walks over so many rows, if that leaves enough programs: it writes its sums along X once."""
ENOUGH: Final = 1056
"""Programs: eight for each multiprocessor of a large GPU."""
WARPS: Final = 4
BINARY_TILE: Final = 2048
"""Bytes of a channel that a program of one warp reads at once, for one class against one other."""
BINARY_COLUMNS: Final = 256
BINARY_STEPS: Final = 32
"""Rows that such a program walks over."""
SHORT: Final = 512
"""Places that the small kernels look at together."""


@dataclass(frozen=True)
class Cut:
    """The tiles of a map ``[batch, channels, *space]``, and of which channels sums are wanted.

    Attributes:
        batch: rows.
        channels: of the logits; one alone is a sigmoid's.
        first: the first channel that is measured.
        count: how many are, one after another.
        space: Z, Y, X.
        axes: how many of these there are.
        rows: of a tile.
        columns: of a tile.
        steps: tiles that a program walks over.
        binary: one class against one other in 2-D, with one object at most.
    """

    batch: int
    channels: int
    first: int
    count: int
    space: tuple[int, int, int]
    axes: int
    rows: int
    columns: int
    steps: int
    binary: bool

    @classmethod
    def of(cls, shape: Sequence[int], first: int, count: int, objects: int, element: int = 4) -> Cut:
        """For logits of this shape, each of ``element`` bytes."""
        batch, channels, *lengths = shape
        z, y, x = [1] * (3 - len(lengths)) + list(lengths)
        binary = channels <= 2 and count == 1 and objects == 1 and len(lengths) == 2
        if binary:
            # one warp holds all of a tile, so that no sum needs another warp
            columns = min(_power(x), BINARY_COLUMNS)
            rows = min(_power(y), max(1, BINARY_TILE // element // columns))
        else:
            held = TILE // _power(channels)
            columns = min(_power(x), WIDEST, max(16, held))
            rows = min(_power(y), max(1, held // columns))
        deep = len(lengths) == 3
        along = z if deep else -(-y // rows)
        walked = BINARY_STEPS if binary else ROWS
        steps = min(along, walked // 2 if deep else max(1, walked // rows))
        others = batch * -(-x // columns) * objects * (-(-y // rows) if deep else 1)
        while steps > 1 and others * -(-along // steps) < ENOUGH:
            steps = -(-steps // 2)
        return cls(batch, channels, first, count, (z, y, x), len(lengths), rows, columns, steps, binary)

    @property
    def tiles_y(self) -> int:
        """Tiles along Y."""
        return -(-self.space[1] // self.rows)

    @property
    def tiles_x(self) -> int:
        """Tiles along X."""
        return -(-self.space[2] // self.columns)

    @property
    def parts(self) -> int:
        """Programs over a tile's column: along Y in 2-D, along Z and Y in 3-D."""
        if self.axes == 3:
            return -(-self.space[0] // self.steps) * self.tiles_y
        return -(-self.tiles_y // self.steps)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many parts there are of the sums along Z, Y and X, and of what is outside."""
        if self.axes == 3:
            tiles = self.tiles_y * self.tiles_x
            return tiles, self.parts // self.tiles_y * self.tiles_x, self.parts, self.parts * self.tiles_x
        return 1, self.tiles_x, self.parts, self.parts * self.tiles_x

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of the axes that there are."""
        return self.space[3 - self.axes :]

    @property
    def constants(self) -> dict[str, Any]:
        """What the general kernels are compiled for."""
        return {
            "C": self.channels,
            "FIRST": self.first,
            "K": self.count,
            "CHANNELS": _power(self.channels),
            "R": self.rows,
            "W": self.columns,
            "AXES": self.axes,
            "SIGMOID": self.channels == 1,
            "num_warps": WARPS,
        }

    @property
    def binary_constants(self) -> dict[str, Any]:
        """What those of one class against one other are compiled for."""
        sign = 0 if self.channels == 1 else 1 if self.first == 1 else -1
        return {"SIGN": sign, "R": self.rows, "W": self.columns, "num_warps": 1}


@dataclass(frozen=True)
class Sums:
    """All that is measured in one pass.

    Attributes:
        sums: along each axis, ``[batch, K, length]``.
        size: ``[batch, K]``.
        centroid: ``[batch, K, axes]``.
        along: within each box, along each axis, ``[batch, K, objects, length]``; none without boxes.
        inside: ``[batch, K, objects]``, and None without boxes.
        outside: ``[batch, K]``, likewise.
    """

    sums: tuple[Tensor, ...]
    size: Tensor
    centroid: Tensor
    along: tuple[Tensor, ...] = ()
    inside: Tensor | None = None
    outside: Tensor | None = None


@dataclass
class Slopes:
    """The gradients of what was measured, None where there is none; strips come with their width and margin."""

    sums: Sequence[Tensor | None]
    size: Tensor | None = None
    centroid: Tensor | None = None
    along: Sequence[Tensor | None] = ()
    inside: Tensor | None = None
    outside: Tensor | None = None
    strips: Tensor | None = None
    width: int = 1
    margin: Tensor | None = None
    measured: Sums | None = field(default=None, repr=False)


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
        AXES=axes, MARGIN=margin is not None, BLOCK=min(SHORT, _power(most)),
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


def _power(number: int) -> int:
    return 1 << math.ceil(math.log2(number)) if number > 1 else 1
