"""How a map is cut into tiles and programs, and what goes in and out of the launches. Needs no Triton."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

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
            columns = min(power_of_two(x), BINARY_COLUMNS)
            rows = min(power_of_two(y), max(1, BINARY_TILE // element // columns))
        else:
            held = TILE // power_of_two(channels)
            columns = min(power_of_two(x), WIDEST, max(16, held))
            rows = min(power_of_two(y), max(1, held // columns))
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
            "CHANNELS": power_of_two(self.channels),
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

    @property
    def about_boxes(self) -> tuple[Tensor, ...]:
        """What is about boxes, in one; nothing without them."""
        if self.inside is None or self.outside is None:
            return ()
        return (*self.along, self.inside, self.outside)


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


def power_of_two(number: int) -> int:
    """The least one that is no less."""
    return 1 << math.ceil(math.log2(number)) if number > 1 else 1
