"""Boxes that fit their images, but mirrored: told by masks, and otherwise guessed from what is within the boxes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringfence.hints import listed, one_line
from ringfence.weak.annotations.annotation import BoxAnnotation
from ringfence.weak.prepared.prepared_set import Case, PreparedSet

WAYS: Final[dict[tuple[int, ...], str]] = {
    (1,): "up-down",
    (2,): "left-right",
    (1, 2): "up-down and left-right",
    (0,): "in the order of slices",
    (0, 1): "in the order of slices and up-down",
    (0, 2): "in the order of slices and left-right",
    (0, 1, 2): "along all axes",
}
"""Axes that are reversed (slices, rows, columns), in words; the fewest first."""
SWAPPED: Final = "with rows and columns swapped"
READ: Final = 2_000_000_000
"""Bytes of images and masks that are read to look; of a larger set, every so many cases."""

MISSED: Final = 0.1
"""Of a mask's voxels: so many outside of the boxes are more than an annotator's inaccuracy."""

FEWEST_BOXES: Final = 20
FEWEST_CASES: Final = 4
CLEARLY: Final = 0.25
"""By how much boxes must stand out more when mirrored, on a scale from 0 to 1."""
OF_A_CASE: Final = 24
"""Boxes that are looked at of each case."""


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        wrong: lines about boxes that are mirrored, as masks show.
        odd: lines about boxes that may be wrong.
    """

    wrong: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def look_for_mirrored(boxes: Sequence[BoxAnnotation], prepared: PreparedSet) -> Verdict:
    """Compare boxes with the masks of their cases; with the images, where no case with boxes has a mask."""
    by_case: defaultdict[str, list[BoxAnnotation]] = defaultdict(list)
    for one in boxes:
        by_case[one.case].append(one)
    boxed = [case for case in prepared.cases if case.name in by_case]
    boxed = boxed[:: max(1, math.ceil(prepared.nbytes / READ))]
    if masked := [case for case in boxed if case.masked]:
        return _by_masks(masked, by_case, prepared)
    return Verdict(odd=_by_images(boxed, by_case, prepared))


def _by_masks(cases: Sequence[Case], boxes: dict[str, list[BoxAnnotation]], prepared: PreparedSet) -> Verdict:
    """A case's boxes are mirrored if much of its mask is outside of them, and little once they are turned back."""
    mirrored: defaultdict[str, list[str]] = defaultdict(list)
    odd = []
    for case in cases:
        mask = prepared.load(case)[1]
        if mask is None or not mask.any():
            continue
        mask = case.frame(prepared.size).cut(mask)
        missed, slices = _missed(mask, boxes[case.name], case)
        how = min(missed, key=lambda way: missed[way])  # of equal ones the first, which changes least
        if missed[""] < MISSED:
            continue
        if missed[how] <= missed[""] / 4:
            mirrored[how].append(case.name)
        else:
            odd.append(
                f"{missed['']:.0%} of the mask of {case.title} is outside of its boxes, most of it in slice "
                f"{int(slices.argmax())}: one of the two is wrong."
            )
    wrong = [
        f"the boxes of {listed(names)} fit their masks only {how if how == SWAPPED else f'mirrored {how}'}"
        for how, names in mirrored.items()
    ]
    return Verdict(tuple(wrong), tuple(odd[:3]))


def _missed(
    mask: NDArray[np.uint8], boxes: Sequence[BoxAnnotation], case: Case
) -> tuple[dict[str, float], NDArray[np.int64]]:
    """Which share of a mask is outside of the boxes in every way they may be meant ("": as they are).

    And how many of its voxels are, in each slice, as they are.
    """
    total, counts = int((mask > 0).sum()), defaultdict[str, int](int)
    slices = np.zeros(len(mask), np.int64)
    for label in np.unique(mask[mask > 0]).tolist():
        ours = mask == label
        covered = np.zeros(mask.shape, bool)
        for one in boxes:
            if one.label == label:
                covered[_in_grid(one, case, mask.shape)] = True
        slices += (ours & ~covered).sum(axis=(1, 2))
        counts[""] += int((ours & ~covered).sum())
        for axes, how in WAYS.items():
            counts[how] += int((ours & ~np.flip(covered, axes)).sum())
        if mask.shape[1] == mask.shape[2] and case.shape[1] == case.shape[2]:
            counts[SWAPPED] += int((ours & ~covered.transpose(0, 2, 1)).sum())
    return {how: count / total for how, count in counts.items()}, slices


def _by_images(
    cases: Sequence[Case], boxes: dict[str, list[BoxAnnotation]], prepared: PreparedSet
) -> tuple[str, ...]:
    """What is within a box stands out from what is around it, and alike in all boxes of a class.

    Nobody can be sure of that, so that it is a remark, made only if it is clear over many boxes and cases.
    """
    ways: list[tuple[int, ...]] = [(), *WAYS]
    scores, labels, whose = [], [], []
    for number, case in enumerate(cases):
        image = case.frame(prepared.size).cut(prepared.load(case)[0])
        some = sorted(boxes[case.name], key=lambda one: (one.slice is None, one.slice or 0, one.low))
        for one in some[:: max(1, math.ceil(len(some) / OF_A_CASE))]:
            place = _in_grid(one, case, (len(image), *image.shape[2:]))
            scores.append([_contrast(image, _mirrored(place, axes, image.shape)) for axes in ways])
            labels.append(one.label)
            whose.append(number)
    if len(scores) < FEWEST_BOXES or len(cases) < FEWEST_CASES:
        return ()
    found, label, of = np.array(scores), np.array(labels), np.array(whose)  # [boxes, ways, channels]
    for one in np.unique(label):  # brighter or darker, whichever a class is
        found[label == one] *= np.sign(found[label == one].mean(axis=0))
    strength = found.mean(axis=0)
    channel = strength.max(axis=0).argmax()
    alone, best = strength[0, channel], int(strength[:, channel].argmax())
    by_case = np.array([found[of == one][:, [0, best], channel].mean(axis=0) for one in np.unique(of)])
    if best == 0 or strength[best, channel] < alone + CLEARLY or np.mean(by_case[:, 1] > by_case[:, 0]) < 0.9:
        return ()
    first = boxes[cases[0].name][0]
    where = one_line(first.case) if first.slice is None else f"slice {first.slice} of {one_line(first.case)}"
    return (
        f"The boxes may be mirrored {WAYS[ways[best]]}: what is in them stands out from its surroundings by "
        f"{strength[best, channel]:.2f} then, and as they are by {alone:.2f} (of 1). Look at some on their images, "
        f"such as {where}: rows and columns count as stored, not as a viewer shows them.",
    )


def _contrast(image: NDArray[np.uint8], place: tuple[slice, ...]) -> list[float]:
    """For each channel 2 P(a pixel of the box's core is brighter than one around the box) - 1: from -1 to 1."""
    slices, rows, columns = place
    plane = image[(slices.start + slices.stop) // 2]
    sides = [(one.start, one.stop, max(2, (one.stop - one.start) // 4)) for one in (rows, columns)]
    core = tuple(
        slice(start + (stop - start) // 4, max(stop - (stop - start) // 4, start + (stop - start) // 4 + 1))
        for start, stop, _ in sides
    )
    around = np.zeros(plane.shape[1:], bool)
    around[tuple(slice(max(start - width, 0), stop + width) for start, stop, width in sides)] = True
    around[rows, columns] = False
    if not around.any():
        return [0.0] * len(plane)
    found = []
    for grey in plane:
        inner = np.bincount(grey[core].ravel(), minlength=256)
        outer = np.bincount(grey[around], minlength=256)
        darker = np.cumsum(outer) - outer
        brighter = outer.sum() - darker - outer
        found.append(float((inner * (darker - brighter)).sum() / (inner.sum() * outer.sum())))
    return found


def _in_grid(box: BoxAnnotation, case: Case, shape: Sequence[int]) -> tuple[slice, ...]:
    """A box's voxels in the prepared set, without what is around its slices; at least one along each axis."""
    low, high = box.low, box.high
    if box.slice is not None:
        low, high = (box.slice, *low), (box.slice + 1, *high)
    found = []
    for start, stop, old, new in zip(low, high, case.shape, shape, strict=True):
        first = min(round(start * new / old), new - 1)
        found.append(slice(first, max(first + 1, round(stop * new / old))))
    return tuple(found)


def _mirrored(place: tuple[slice, ...], axes: tuple[int, ...], shape: Sequence[int]) -> tuple[slice, ...]:
    """Where a box is after these axes of an image ``[slices, channels, rows, columns]`` are reversed."""
    lengths = (shape[0], *shape[2:])
    return tuple(
        slice(length - one.stop, length - one.start) if axis in axes else one
        for axis, (one, length) in enumerate(zip(place, lengths, strict=True))
    )
