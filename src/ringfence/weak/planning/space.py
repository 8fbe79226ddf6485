"""Slices or volumes, and how large patches of these are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ringfence.hints import one_line
from ringfence.weak.planning.choice import Choice, Device
from ringfence.weak.planning.computing import HALVINGS, MANY, PIXELS, WIDER, whole_halvings
from ringfence.weak.planning.fingerprint import Fingerprint

VOXELS: Final = {"cuda": 128**3, "cpu": 32 * 64 * 64}
"""Of a patch, at most."""
HALF: Final = 0.5
"""Of a volume, which a patch must hold for volumes to be chosen."""
ROOM: Final = PIXELS // (2 * MANY)
"""Of a patch, at least, as far as volumes have as many: what a CPU goes over in all steps; smaller ones lost."""
DEEP: Final = 0.5
"""Slices of an object for each pixel across it, from which on it is found better in volumes."""


def in_space(found: Fingerprint, device: Device) -> bool:
    """Whether to train on volumes, if nobody says: where a class has boxes in 3-D, or slices lie close together.

    So they are if objects go through at least half as many slices as nine of ten have pixels across. A patch must
    hold these whole, and half of a volume: of what is around objects, small patches see too little. And classes
    that do not show are better found in slices, where a second network learns, as are thin ones, where brightness
    teaches the first.
    """
    if found.spatial:
        return True
    deep = all(
        one.depth >= max(2.0, DEEP * one.longest) and not one.hidden and not one.thin for one in found.classes
    )
    whole, volume = math.prod(_whole_patch(found)), found.depths[1] * math.prod(found.size)
    return deep and whole <= VOXELS[device] and math.prod(patch_of(found, VOXELS[device])) >= HALF * volume


def space_choices(
    found: Fingerprint, device: Device, patch: Sequence[int] | None, asked: bool = False, sized: bool = False
) -> list[Choice]:
    """Slices, or patches of volumes that are larger than the boxes.

    Args:
        found: the fingerprint.
        device: what trains.
        patch: slices, rows and columns; None: slices.
        asked: whether slices or volumes were asked for.
        sized: and patches of this size.
    """
    apart = found.flatness
    known = "of unknown spacing" if apart is None else f"{apart:.1f} times as far apart as rows"
    if patch is None:
        what = "images of one slice" if found.depths[2] == 1 else f"slices ({known})"
        why = "as asked for" if asked else "each has boxes of its own, and they say most there"
        return [
            Choice("data.volumes", False, f"{what}: {why}"),
            Choice("data.patch", None, "slices are trained on whole"),
        ]
    if sized:
        return [
            Choice("data.volumes", True, f"volumes ({known}), as asked for"),
            Choice("data.patch", list(patch), "as asked for"),
        ]
    deep, longest, _ = _extent(found)
    most = found.depths[2]
    filled = (
        f"; the network halves slices four times, too, and up to {most} of them are filled up to {patch[0]}"
        if most < patch[0]
        else ""
    )
    if asked:
        why = ", as asked for"
    elif found.spatial:
        of = ", ".join(map(one_line, found.spatial))
        why = f": boxes of {of} are in 3-D, and say little about a single slice"
    else:
        why = ": objects are about as deep in slices as wide in pixels, so that neighbouring slices help each other"
    return [
        Choice("data.volumes", True, f"volumes ({known}){why}"),
        Choice(
            "data.patch",
            list(patch),
            f"half as large again as objects ({deep:.0f} slices of up to {longest:.0f} pixels), or as much more of "
            f"a volume as {ROOM:,} voxels have room for; {VOXELS[device]:,} at most{filled}",
        ),
    ]


def patch_of(found: Fingerprint, most: int) -> list[int]:
    """Whole objects and half as much again, or more of the volume if that is little.

    What is too much is taken from the side that has most to spare; what is too little, added to that which sees the
    least of a volume.
    """
    sides, extent = _whole_patch(found), _extent(found)
    volume = (found.depths[2], *found.size)
    while shorter := [axis for axis in range(3) if sides[axis] < volume[axis]]:
        axis = min(shorter, key=lambda one: (sides[one] / volume[one], -one))
        if math.prod(sides) // sides[axis] * (sides[axis] + HALVINGS) > ROOM:
            break
        sides[axis] += HALVINGS
    while math.prod(sides) > most and max(sides) > HALVINGS:
        spare = [side / length if side > HALVINGS else 0.0 for side, length in zip(sides, extent, strict=True)]
        sides[spare.index(max(spare))] -= HALVINGS
    return sides


def _whole_patch(found: Fingerprint) -> list[int]:
    limits = (found.depths[2], *found.size)
    return [
        min(whole_halvings(limit), whole_halvings(WIDER * length))
        for limit, length in zip(limits, _extent(found), strict=True)
    ]


def _extent(found: Fingerprint) -> tuple[float, float, float]:
    """Slices (the median), rows and columns (nine of ten boxes) of objects of the largest class along each.

    They tell how flat objects are, whatever the spacing.
    """
    longest = max(one.longest for one in found.classes)
    return max(one.depth for one in found.classes), longest, longest
