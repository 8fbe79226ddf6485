"""Where the slices of a volume lie in prepared ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Size: TypeAlias = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Frame:
    """x' = start + x · size / native, along rows and columns: from a volume's pixels to those of prepared slices.

    Attributes:
        native: height and width of the volume's own slices.
        size: to which they are resized.
        start: the row and the column where they begin.
        canvas: height and width of prepared slices, of which they may be a part: zeros are around them.
    """

    native: Size
    size: Size
    start: Size
    canvas: Size

    @property
    def resized(self) -> bool:
        """Whether pixels are of another size than they were."""
        return self.native != self.size

    @property
    def full(self) -> bool:
        """Whether nothing is around them."""
        return self.size == self.canvas

    @property
    def inside(self) -> tuple[slice, slice]:
        """Their rows and columns in a prepared slice."""
        rows, columns = (slice(start, start + length) for start, length in zip(self.start, self.size, strict=True))
        return rows, columns

    @property
    def known(self) -> NDArray[np.bool_]:
        """Pixels of a prepared slice that are theirs: bool ``[*canvas]``."""
        found = np.zeros(self.canvas, dtype=bool)
        found[self.inside] = True
        return found

    def cut(self, maps: NDArray[Any]) -> NDArray[Any]:
        """Of prepared ``[..., *canvas]``, what is not around them: ``[..., *size]``."""
        rows, columns = self.inside
        return maps[..., rows, columns]
