"""The grid that slices are brought to: one size and, where cases differ in it, one spacing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, TypedDict

from ringfence.weak.datasets.layout import Layout, Spacing
from ringfence.weak.datasets.source import Source
from ringfence.weak.prepared.preprocessing import MULTIPLE, size_at, up
from ringfence.weak.volumes import read_shape, read_spacing

UNEVEN: Final = 1.1
"""How many times as far apart pixels of a case may be as another's, after whole slices are resized to one size."""

Slices: TypeAlias = tuple[tuple[int, int], tuple[float, float] | None]
"""Height and width of a case's slices, and millimetres between rows and columns, where they are known."""


class Grid(NamedTuple):
    """What slices become.

    Attributes:
        size: height and width.
        spacing: millimetres between pixels; None: whole slices are resized to that size.
    """

    size: tuple[int, int]
    spacing: float | None = None


class GridAsked(TypedDict):
    """What was asked of the slices' grid."""

    size: tuple[int, int] | None
    spacing: Spacing


def grid_of(layout: Layout, size: tuple[int, int] | None, spacing: Spacing | None) -> GridAsked:
    """Size and spacing as they were given, or else the layout's."""
    asked = layout.spacing if spacing is None else spacing
    fits = isinstance(asked, str)  # the layout's size says nothing of pixels so many millimetres wide
    return {"size": size or (layout.size if fits else None), "spacing": asked}


def choose_grid(source: Source, size: tuple[int, int] | None, spacing: Spacing) -> Grid:
    """The grid for a data set, by the headers of its cases that can be read.

    A common spacing is the median of the cases' own. Nothing of a slice is ever cut off: where the size is given,
    the spacing is as large as the largest slices need; else the size is the largest's, up to a multiple of 16.

    Args:
        source: the data set.
        size: height and width, if they are given.
        spacing: millimetres, or "none": slices of any extent are resized to one size; or "auto": a common one, if
            it is known of all cases, and their pixels would differ by more than a tenth without.
    """
    found = _slices(source)
    if spacing == "auto":
        wanted = _median(found) if _uneven(found) else None
        if wanted is not None and size is not None:  # pixels as large as the largest slices need
            fitting = max(one / side for extent in _extents(found) for one, side in zip(extent, size, strict=True))
            wanted = max(wanted, _short(fitting))
    else:
        wanted = None if spacing == "none" else spacing
    if size is None:
        size = _median_size(found) if wanted is None else _largest(found, wanted)
    return Grid(size, wanted)


def median_size(source: Source) -> tuple[int, int]:
    """The median height and width of the cases whose headers can be read, up to a multiple of 16."""
    return _median_size(_slices(source))


def _slices(source: Source) -> list[Slices]:
    found: list[Slices] = []
    for case in source.cases:
        try:
            _, height, width = read_shape(case.images[0])
            spacing = read_spacing(case.images[0])
        except (ValueError, OSError):
            continue  # said when the case's turn comes
        found.append(((height, width), None if spacing is None else spacing[1:]))
    return found


def _extents(found: Sequence[Slices]) -> list[tuple[float, float]]:
    """Millimetres along rows and columns of the cases where they are known."""
    return [(height * spacing[0], width * spacing[1]) for (height, width), spacing in found if spacing is not None]


def _uneven(found: Sequence[Slices]) -> bool:
    """Whether all spacings are known, and slices of one size would have pixels that differ."""
    if not found or any(spacing is None for _, spacing in found):
        return False
    return any(max(sides) > UNEVEN * min(sides) for sides in zip(*_extents(found), strict=True))


def _median(found: Sequence[Slices]) -> float:
    return _short(statistics.median(math.sqrt(spacing[0] * spacing[1]) for _, spacing in found if spacing))


def _short(length: float) -> float:
    """In four digits, which people can read: no slice of up to 4096 pixels has another number of them so."""
    return float(f"{length:.4g}")


def _median_size(found: Sequence[Slices]) -> tuple[int, int]:
    if not found:
        return MULTIPLE, MULTIPLE
    height, width = (up(statistics.median(sizes)) for sizes in zip(*(size for size, _ in found), strict=True))
    return height, width


def _largest(found: Sequence[Slices], wanted: float) -> tuple[int, int]:
    sizes = [size_at(size, spacing, wanted) for size, spacing in found if spacing is not None]
    if not sizes:
        return MULTIPLE, MULTIPLE
    height, width = (up(max(some)) for some in zip(*sizes, strict=True))
    return height, width
