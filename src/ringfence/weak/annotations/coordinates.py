"""Boxes in another coordinate system: why they miss the image, guessed from what would make all of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ringfence.weak.annotations.interval import NOISE
from ringfence.weak.prepared.prepared_set import Case, PreparedSet

OFTEN: Final = 0.25
"""Of the boxes: with fewer that do not fit, it is these that are wrong, not all of them."""

Sides: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Drawn:
    """A box as it stands in a file, whether it fits or not.

    Attributes:
        case: where it should be.
        slice: its number; None of a box in 3-D.
        sides: lower and upper end along rows and columns; along slices, rows and columns in 3-D.
    """

    case: Case
    slice: int | None
    sides: Sides

    @property
    def fits(self) -> bool:
        """Whether it is within its image."""
        lengths = self.case.shape[-len(self.sides) :]
        within = self.slice is None or 0 <= self.slice < self.case.shape[0]
        return within and all(
            -NOISE <= low < high <= length + NOISE for (low, high), length in zip(self.sides, lengths, strict=True)
        )


Change: TypeAlias = Callable[[Drawn], Drawn]


def guess(drawn: Sequence[Drawn], prepared: PreparedSet, *, widths: bool = False) -> str:
    """What may be wrong with all boxes together, in a sentence; empty if no one thing would make all of them fit.

    Args:
        drawn: the boxes that were read, those that fit and those that do not.
        prepared: the set that they are for.
        widths: whether the format has widths (COCO), which a file may have taken for ends.
    """
    wrong = sum(not one.fits for one in drawn)
    for why, change, least in _changes(drawn, prepared, widths):
        if wrong >= max(1, least * len(drawn)) and all(change(one).fits for one in drawn):
            return f"all {len(drawn)} boxes read so far would fit if {why}"
    return ""


def are_fractions(drawn: Sequence[Drawn]) -> bool:
    """Whether boxes are given as fractions of the image: several, and none goes beyond the first voxel."""
    ends = [value for one in drawn for side in one.sides[-2:] for value in side]
    several = len({one.sides[-2:] for one in drawn}) > 1
    return several and all(0.0 <= value <= 1.0 for value in ends) and any(0.0 < value < 1.0 for value in ends)


def _changes(drawn: Sequence[Drawn], prepared: PreparedSet, widths: bool) -> Iterator[tuple[str, Change, float]]:
    """What may be wrong, how to undo it, and which share of the boxes does not fit then."""
    yield "slices were counted from 0, and not from 1", _earlier, 0.0
    yield "rows and columns were swapped", _swapped, OFTEN
    if any(one.slice is None for one in drawn):
        yield "slices and columns were swapped (x, y, z for slice, row, column)", _turned, OFTEN
    if widths:
        yield "bbox was x, y, width, height: it seems to hold both corners", _from_corners, OFTEN
    else:
        yield "each upper end was one: they seem to be heights and widths", _from_lengths, OFTEN
    yield "rows and columns were counted from 0, and not from 1", _from_zero, 0.0
    if all(one.case.spacing for one in drawn):
        yield "they were in voxels: they seem to be in millimetres (divide by the spacing)", _in_voxels, OFTEN
    if any(one.case.shape[1:] != prepared.size for one in drawn):
        yield (
            "they were in voxels of the source: they seem to be drawn on slices of {} × {}".format(*prepared.size),
            lambda one: _resized(one, prepared.size),
            OFTEN,
        )


def _earlier(one: Drawn) -> Drawn:
    if one.slice is not None:
        return replace(one, slice=one.slice - 1)
    return replace(one, sides=(_less(one.sides[0]), *one.sides[1:]))


def _swapped(one: Drawn) -> Drawn:
    *slices, rows, columns = one.sides
    return replace(one, sides=(*slices, columns, rows))


def _turned(one: Drawn) -> Drawn:
    return replace(one, sides=tuple(reversed(one.sides))) if one.slice is None else one


def _from_lengths(one: Drawn) -> Drawn:
    return replace(one, sides=tuple((low, low + high) for low, high in one.sides))


def _from_corners(one: Drawn) -> Drawn:
    return replace(one, sides=tuple((low, high - low) for low, high in one.sides))


def _from_zero(one: Drawn) -> Drawn:
    return replace(one, sides=(*one.sides[:-2], *map(_less, one.sides[-2:])))


def _in_voxels(one: Drawn) -> Drawn:
    spacing = (one.case.spacing or (1.0, 1.0, 1.0))[-len(one.sides) :]
    return _scaled_by(one, [1.0 / step for step in spacing])


def _resized(one: Drawn, size: tuple[int, int]) -> Drawn:
    frame = one.case.frame(size)
    factors = [length / new for length, new in zip(frame.native, frame.size, strict=True)]
    sides = ((low - start, high - start) for (low, high), start in zip(one.sides[-2:], frame.start, strict=True))
    return _scaled_by(replace(one, sides=(*one.sides[:-2], *sides)), [1.0] * (len(one.sides) - 2) + factors)


def _scaled_by(one: Drawn, factors: Sequence[float]) -> Drawn:
    sides = zip(one.sides, factors, strict=True)
    return replace(one, sides=tuple((low * factor, high * factor) for (low, high), factor in sides))


def _less(side: tuple[float, float]) -> tuple[float, float]:
    return side[0] - 1.0, side[1] - 1.0
