"""Boxes that are mirrored: told by masks with certainty, by images only where that is clear, and else never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from prepared_sets import described_anew, make_prepared
from ringfence.weak.annotations import BoxAnnotation, annotations_from_boxes, boxes_from_masks
from ringfence.weak.annotations.mirrored import WAYS, look_for_mirrored
from ringfence.weak.prepared import PreparedSet

SHAPE = (8, 40, 40)


def off_centre(folder: Path, *, noise: float = 25.0, contrast: float = 60.0, masked: bool = True) -> PreparedSet:
    """Eight cases with an ellipsoid in one corner, brighter than a background that has structure of its own."""
    prepared = make_prepared(folder, cases=8, shape=SHAPE, masked=True)
    random = np.random.default_rng(0)
    grid = np.indices(SHAPE) + 0.5
    for case in prepared.cases:
        centre = [random.uniform(0.2, 0.3) * SHAPE[0], *(random.uniform(9.0, 12.0, 2))]
        radii = (1.6, random.uniform(4, 7), random.uniform(4, 7))
        mask = sum(((grid[axis] - centre[axis]) / radii[axis]) ** 2 for axis in range(3)) < 1
        waves = 30 * np.sin(grid[1] / 3 + random.uniform(0, 6)) * np.cos(grid[2] / 4 + random.uniform(0, 6))
        image = 110 + waves + contrast * mask + random.normal(0, noise, SHAPE)
        np.savez(folder / case.file, image=image.clip(0, 255).astype(np.uint8)[:, None], mask=mask.astype(np.uint8))
    cases = tuple(replace(one, masked=masked) for one in prepared.cases)
    return described_anew(replace(prepared, cases=cases))


def boxes_of(prepared: PreparedSet, axes: tuple[int, ...] = (), swapped: bool = False) -> list[BoxAnnotation]:
    """The boxes of the masks, as somebody draws them who sees the slices otherwise."""
    found = []
    for case in prepared.cases:
        with np.load(prepared.path / case.file) as stored:
            mask = np.flip(stored["mask"], axes)
        mask = mask.transpose(0, 2, 1) if swapped else mask
        boxes = boxes_from_masks(torch.from_numpy(mask[:, None] > 0))
        found += annotations_from_boxes(case.name, boxes.numpy())
    return found


@pytest.mark.parametrize("axes", [(), *WAYS])
def test_masks_tell_in_which_way(tmp_path: Path, axes: tuple[int, ...]) -> None:
    prepared = off_centre(tmp_path)
    found = look_for_mirrored(boxes_of(prepared, axes), prepared)
    if not axes:
        assert found.wrong == found.odd == ()
        return
    (line,) = found.wrong
    assert line.startswith("the boxes of case0, case1, ")
    assert line.endswith(f"fit their masks only mirrored {WAYS[axes]}")


def test_masks_tell_swapped_axes_single_cases_and_boxes_elsewhere(tmp_path: Path) -> None:
    prepared = off_centre(tmp_path)
    right, wrong = boxes_of(prepared), boxes_of(prepared, (1,))
    mixed = [other if one.case in ("case2", "case5") else one for one, other in zip(right, wrong, strict=True)]
    assert look_for_mirrored(mixed, prepared).wrong == (
        "the boxes of case2, case5 fit their masks only mirrored up-down",
    )
    moved = [replace(one, low=(15, 15), high=(25, 25)) if one.case == "case3" else one for one in right]
    found = look_for_mirrored(moved, prepared)
    assert found.wrong == ()
    (line,) = found.odd
    mask = prepared.load(prepared.cases[3])[1]
    assert mask is not None
    covered = np.zeros_like(mask)
    for one in moved:
        if one.case == "case3":
            covered[one.slice, 15:25, 15:25] = 1
    missed = (mask > covered).sum(axis=(1, 2))
    share = f"{missed.sum() / mask.sum():.0%}"
    assert line.startswith(
        f"{share} of the mask of case3 is outside of its boxes, most of it in slice {missed.argmax()}:"
    )
    # ellipses high above their diagonal
    for case in prepared.cases:
        mask = np.zeros(SHAPE, np.uint8)
        mask[2:5, 3:9, 20:34] = 1
        np.savez(tmp_path / case.file, image=np.full((8, 1, 40, 40), 100, np.uint8), mask=mask)
    again = described_anew(prepared)
    (line,) = look_for_mirrored(boxes_of(again, swapped=True), again).wrong
    assert line.endswith("fit their masks only with rows and columns swapped")


@pytest.mark.parametrize("axes", [(), (1,), (2,), (1, 2), (0,)])
def test_images_tell_where_it_is_clear(tmp_path: Path, axes: tuple[int, ...]) -> None:
    prepared = off_centre(tmp_path)
    boxes = boxes_of(prepared, axes)
    blind = replace(prepared, cases=tuple(replace(one, masked=False) for one in prepared.cases))
    blind = described_anew(blind)
    found = look_for_mirrored(boxes, blind)
    assert found.wrong == ()
    if not axes:
        assert found.odd == ()
        return
    (line,) = found.odd
    assert line.startswith(f"The boxes may be mirrored {WAYS[axes]}: what is in them stands out")
    few = look_for_mirrored([one for one in boxes if one.case in ("case0", "case1", "case2")], blind)
    assert few.odd == ()


def test_images_that_show_nothing_tell_nothing(tmp_path: Path) -> None:
    prepared = off_centre(tmp_path, contrast=0.0, masked=True)
    boxes = boxes_of(prepared, (1,))
    blind = described_anew(replace(prepared, cases=tuple(replace(one, masked=False) for one in prepared.cases)))
    assert look_for_mirrored(boxes, blind).odd == ()
