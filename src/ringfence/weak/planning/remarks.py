"""What boxes cannot tell, and what looks odd."""

from __future__ import annotations

from typing import Final

from ringfence.hints import one_line
from ringfence.weak.planning.barrier import LINES
from ringfence.weak.planning.computing import LARGE, whole_halvings
from ringfence.weak.planning.fingerprint import Fingerprint

LEAST: Final = 3.0
"""Pixels along a side: what is smaller says little more than where it is."""


def set_remarks(found: Fingerprint, looked: bool = False) -> list[str]:
    """About the set and its boxes.

    Args:
        found: the fingerprint.
        looked: whether labels from brightness say what boxes do not.
    """
    notes = [
        f"nine of ten boxes of {one_line(one.name)} are at most {one.longest:.0f} pixels wide, half of them "
        f"{one.side:.0f}: that says where it is, not what shape it has; prepare the set with larger "
        "slices (--size) if the images are larger"
        for one in found.classes
        if one.side < LEAST
    ]
    notes += [
        f"{one_line(inner)} lies within the boxes of {one_line(outer)} in {share:.0%} of its boxes: there both are "
        "asked for, and only what they look like tells them apart. If one is always inside of the other, say so: "
        f"--constraints.inclusion '{{inner: {one_line(inner)}, outer: {one_line(outer)}}}'"
        for inner, outer, share in found.nested
    ]
    notes += [
        f"{one_line(one.name)} seems to fill no more than {one.fill:.0%} of its boxes. What is thin and lies at an "
        "angle leaves most of its box to others, and boxes do not say so: look whether they are filled. Scribbles "
        "would say more (--constraints.scribbles.file), or masks of some cases"
        for one in found.classes
        if one.thin and not looked
    ]
    if found.uneven > 1.5:
        notes.append(
            f"pixels of one case are {found.uneven:.1f} times as large as another's: prepare the set again, with "
            "--spacing auto"
        )
    if not found.validated:
        notes.append("no case for validation has a mask: nothing here can be measured by Dice (docs/quality.md)")
    return notes


def cpu_remarks(found: Fingerprint, volumes: bool) -> list[str]:
    """Slices that a CPU sees too seldom, and whose objects would be large enough at half their size; or volumes."""
    height, width = found.size
    if height * width <= LARGE:
        return []
    if volumes:
        slices = "train on slices (data.volumes false), " if not found.spatial else ""
        return [
            f"a CPU learns little of volumes of {height} × {width} in the minutes that it is given, from masks as "
            f"from boxes: {slices}prepare them smaller (--size), or train on a GPU"
        ]
    if min(one.side for one in found.classes) < 2 * LINES:
        return []
    half = f"{whole_halvings(height / 2)} {whole_halvings(width / 2)}"
    return [
        f"a CPU sees slices of {height} × {width} few times in the minutes that it is given; objects would be "
        f"large enough at half the size: prepared with --size {half}, it sees them four times as often"
    ]
