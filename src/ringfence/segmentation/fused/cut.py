"""How a map is cut into tiles and programs, and what goes in and out of the launches. Needs no Triton."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

HELD: Final = 1024
"""Numbers that one warp holds beside their sums: 32 for each thread. More channels take more warps."""


@dataclass(frozen=True)
class Tuning:
    """What the kernels' speed depends on, and nothing else does; as an H200 was fastest.

    Attributes:
        tile: pixels that a warp holds at once, for one class against one other.
        row: bytes of a channel that are one row of such a tile, at most.
        pixels: that such a warp walks over, if that leaves enough programs: it writes its sums along X once.
        values: numbers of all channels that a warp holds at once, for several classes with one box each.
        class_columns: of such a tile, at most.
        numbers: of all channels that such a program walks over, likewise.
        crowd: numbers that a program of four warps holds at once, for several boxes of a class.
        crowd_columns: of such a tile, at most.
        crowd_rows: that such a program walks over, likewise.
        enough: programs: eight for each multiprocessor of a large GPU.
    """

    tile: int = 512
    row: int = 1024
    pixels: int = 8192
    values: int = 1024
    class_columns: int = 256
    numbers: int = 32768
    crowd: int = 4096
    crowd_columns: int = 512
    crowd_rows: int = 64
    enough: int = 1024


tuning = Tuning()


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
        kind: "binary", one class against one other, with one box at most; "classes", several, with one box each at
            most; or "crowd", several boxes of a class.
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
    kind: str

    @classmethod
    def of(cls, shape: Sequence[int], first: int, count: int, objects: int, element: int = 4) -> Cut:
        """For logits of this shape, each of ``element`` bytes."""
        batch, channels, *lengths = shape
        z, y, x = [1] * (3 - len(lengths)) + list(lengths)
        held = power_of_two(channels)
        if objects > 1:
            kind, widest, most = "crowd", tuning.crowd_columns, tuning.crowd // held
        elif channels <= 2 and count == 1:
            kind, widest, most = "binary", tuning.row // element, tuning.tile
        else:
            kind, widest, most = "classes", tuning.class_columns, tuning.values // held
        columns = min(power_of_two(x), widest, max(16, most))
        rows = min(power_of_two(y), max(1, most // columns))
        walked = {
            "binary": tuning.pixels // columns,
            "classes": tuning.numbers // held // columns,
            "crowd": tuning.crowd_rows,
        }[kind]
        deep = kind == "crowd" and len(lengths) == 3  # these go along Z, all others along Y
        along = z if deep else -(-y // rows)
        steps = min(along, walked // 4 if deep else max(1, walked // rows))
        others = batch * -(-x // columns) * objects * (-(-y // rows) if deep else z)
        while steps > 1 and others * -(-along // steps) < tuning.enough:
            steps = -(-steps // 2)
        return cls(batch, channels, first, count, (z, y, x), len(lengths), rows, columns, steps, kind)

    @property
    def tiles_y(self) -> int:
        """Tiles along Y."""
        return -(-self.space[1] // self.rows)

    @property
    def tiles_x(self) -> int:
        """Tiles along X."""
        return -(-self.space[2] // self.columns)

    @property
    def parts_y(self) -> int:
        """Programs along Y."""
        return self.tiles_y if self.deep else -(-self.tiles_y // self.steps)

    @property
    def parts(self) -> int:
        """Programs over a tile's column: along Z and Y."""
        return self.parts_y * (-(-self.space[0] // self.steps) if self.deep else self.space[0])

    @property
    def deep(self) -> bool:
        """Programs walk along Z, not along Y."""
        return self.kind == "crowd" and self.axes == 3

    @property
    def even(self) -> bool:
        """Tiles end where the map does."""
        return self.space[1] % (self.rows * self.steps) == 0 and self.space[2] % self.columns == 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many parts there are of the sums along Z, Y and X, and of what is outside."""
        along_z = self.parts // self.parts_y
        return self.parts_y * self.tiles_x, along_z * self.tiles_x, self.parts, self.parts * self.tiles_x

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of the axes that there are."""
        return self.space[3 - self.axes :]

    @property
    def warps(self) -> int:
        """Of a program."""
        held = power_of_two(self.channels) * self.rows * self.columns
        return {"binary": 1, "classes": max(1, held // HELD), "crowd": 4}[self.kind]

    @property
    def constants(self) -> dict[str, Any]:
        """What the general kernels, and those of several classes, are compiled for."""
        return {
            "C": self.channels,
            "FIRST": self.first,
            "K": self.count,
            "CHANNELS": power_of_two(self.channels),
            "R": self.rows,
            "W": self.columns,
            "AXES": self.axes,
            "SIGMOID": self.channels == 1,
            **({} if self.kind == "crowd" else {"EVEN": self.even}),
            "num_warps": self.warps,
        }

    @property
    def sign(self) -> int:
        """0 for a single channel, else 1 or -1 as the class is channel 1 or 0: for one against one other."""
        return 0 if self.channels == 1 else 1 if self.first == 1 else -1

    @property
    def binary_constants(self) -> dict[str, Any]:
        """What those of one class against one other are compiled for."""
        return {
            "SIGN": self.sign,
            "R": self.rows,
            "W": self.columns,
            "AXES": self.axes,
            "EVEN": self.even,
            "num_warps": self.warps,
        }


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


def finishing_warps(programs: int) -> int:
    """For each of the programs that add up parts: where there are few of these, they read more at once."""
    return min(16, max(4, power_of_two(tuning.enough // programs)))


def power_of_two(number: int) -> int:
    """The least one that is no less."""
    return 1 << math.ceil(math.log2(number)) if number > 1 else 1
