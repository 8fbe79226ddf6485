"""Boxes of slices in volumes: they ask of every slice what they would in 2-D, whole or in patches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor
from true_masks import batch_of, ellipsoids, found, ready

from ringfence.residuals import Residual
from ringfence.segmentation import Region
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.prepared import Case
from ringfence.weak.training.loading.patches import Patches, most_in_patch

SPACE = (7, 16, 30)
ASKED: dict[str, Any] = {
    "strips": {"width": 2},
    "slanted_strips": {"width": 2, "angles": [30.0]},
    "outside": {},
    "box_size": {},
    "filled": {"class_path": "box_size", "init_args": {"low": 0.2, "high": 0.9}},
}
IN_PLANE = [3, 5]
"""Which of the six pairs of three axes are those of rows and columns, (1, 2) and (2, 1)."""


@pytest.fixture(scope="module")
def masks() -> Tensor:
    """``[2, 2, *SPACE]``; several objects of a class in a slice, some slices without."""
    return ellipsoids(2, SPACE, classes=2, seed=3)


def slices_of(volumes: Tensor) -> Tensor:
    """``[N, C, slices, rows, columns]`` as ``[N·slices, C, rows, columns]``."""
    return volumes.transpose(1, 2).flatten(0, 1)


def numbered(box: Tensor) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each row and class, the slice of every box of a volume and which of its slice's boxes it is."""
    places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row, classes in enumerate(box.tolist()):
        for label, boxes in enumerate(classes):
            seen: dict[int, int] = defaultdict(int)
            for (first, last), (top, bottom), _ in boxes:
                if bottom > top:
                    assert last == first + 1
                    places[row, label].append((first, seen[first]))
                    seen[first] += 1
    return places


def asked_of(residual: Residual, place: tuple[int, ...]) -> list[float]:
    """What is asked there, without what is only padding."""
    return residual.f[place][residual.present[place]].flatten().tolist()


@pytest.mark.parametrize("unit", ["pixels", "relative"])
@pytest.mark.parametrize("margin", [0, 1])
def test_a_volume_is_asked_what_its_slices_are(masks: Tensor, margin: int, unit: Any) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, *SPACE, dtype=torch.float64)
    residuals = {}
    for axes, mask, answer in ((2, slices_of(masks), slices_of(logits)), (3, masks, logits)):
        constraints = ready(ASKED, axes, ["a", "b"])
        batch = batch_of(mask, constraints, margin=margin)
        residuals[axes] = {name: one.residual(Region(answer), batch, unit) for name, one in constraints.items()}
    flat, deep = residuals[2], residuals[3]
    places = numbered(batch["box"])
    assert max(other for found in places.values() for _, other in found) > 0, "never two in a slice"
    for (row, label), boxes in places.items():
        for number, (first, other) in enumerate(boxes):
            there, here = (row * SPACE[0] + first, label, other), (row, label, number)
            assert not bool(deep["strips"].present[(*here, 0)].any()), "strips along the depth of a slice"
            for axis in (0, 1):
                expected = asked_of(flat["strips"], (*there, axis))
                assert asked_of(deep["strips"], (*here, 1 + axis)) == pytest.approx(expected, abs=1e-9)
                expected = asked_of(flat["slanted_strips"], (*there, axis))
                assert asked_of(deep["slanted_strips"], (*here, IN_PLANE[axis])) == pytest.approx(
                    expected, abs=1e-9
                )
            for name in ("box_size", "filled"):
                assert asked_of(deep[name], here) == pytest.approx(asked_of(flat[name], there), abs=1e-9)
    counted = {name: int(one.present.sum()) for name, one in flat.items()}
    for name in ("strips", "box_size", "filled"):
        assert int(deep[name].present.sum()) == counted[name] > 0, name
    if unit == "pixels":
        total = flat["outside"].f.view(2, SPACE[0], 2).sum(dim=1)
        torch.testing.assert_close(deep["outside"].f, total)


@pytest.mark.parametrize("size", [(3, 16, 30), (4, 9, 17), (7, 5, 8)])
def test_a_patch_keeps_the_strips_that_are_whole(masks: Tensor, size: tuple[int, int, int]) -> None:
    """By loops over boxes: which lines of a cut box still hold what they did; the truth satisfies what is asked."""
    torch.manual_seed(1)
    constraints = ready({"strips": {"width": 1}, "outside": {}, "box_size": {}}, 3, ["a", "b"])
    batch = batch_of(masks.repeat(10, 1, 1, 1, 1), constraints)
    patches = Patches(size, constraints, most_in_patch(batch["box"], size[0]))
    start = torch.stack(
        [torch.randint(length - one + 1, (20,)) for length, one in zip(SPACE, size, strict=True)], dim=1
    )
    seen = patches.moved(batch, start)
    mask = patches.cut(batch["mask"], torch.arange(20), start)
    cut = 0
    for row in range(20):
        for label in range(2):
            expected = []
            for box in batch["box"][row, label].tolist():
                moved = [
                    [end - first for end in ends] for ends, first in zip(box, start[row].tolist(), strict=True)
                ]
                inside = [
                    [min(max(end, 0), length) for end in ends] for ends, length in zip(moved, size, strict=True)
                ]
                if all(low < high for low, high in inside):
                    rows_whole, columns_whole = (moved[axis] == inside[axis] for axis in (1, 2))
                    # lines across the rows go along the columns: they are whole if those are
                    expected.append((inside, [False, columns_whole, rows_whole]))
                    cut += rows_whole != columns_whole
            count = len(expected)
            assert seen["box"][row, label, :count].tolist() == [box for box, _ in expected]
            assert seen["whole"][row, label, :count].tolist() == [whole for _, whole in expected]
            assert not bool(seen["box"][row, label, count:].any())
            complete = [box for box in batch["box"][row, label].tolist() if box[0][1]]
            fits = all(
                first <= low and high <= first + length
                for box in complete
                for (low, high), first, length in zip(box, start[row].tolist(), size, strict=True)
            )
            assert bool(seen["uncut"][row, label]) == fits
    assert cut > 0 or size[1:] == SPACE[1:]
    for name, one in constraints.items():
        residual = one.residual(found(mask), seen, "pixels")
        assert float(residual.violation.max()) <= 1e-3, name
        assert bool(residual.present.any()), name


def test_no_patch_has_more_boxes_than_the_most(masks: Tensor) -> None:
    """And what is dropped are empty boxes alone: residuals say the same."""
    constraints = ready(ASKED, 3, ["a", "b"])
    batch = batch_of(masks, constraints)
    for depth in (1, 3, 7):
        size = (depth, *SPACE[1:])
        most = most_in_patch(batch["box"], depth)
        counts = []
        for first in range(SPACE[0] - depth + 1):
            start = torch.tensor([[first, 0, 0]] * 2)
            every, few = (Patches(size, constraints, boxes).moved(batch, start) for boxes in (None, most))
            assert few["box"].shape[2] == few["whole"].shape[2] == most <= every["box"].shape[2]
            counts.append(int((every["box"][..., 1] > every["box"][..., 0]).all(dim=-1).sum(dim=-1).max()))
            region = Region(torch.randn(2, 3, *size, dtype=torch.float64))
            for name, one in constraints.items():
                both = [one.residual(region, seen, "pixels") for seen in (every, few)]
                sums = [
                    torch.where(residual.present, residual.f, 0.0).reshape(2, 2, -1).sum(dim=-1)
                    for residual in both
                ]
                torch.testing.assert_close(*sums, msg=name)
        assert max(counts) == most
    assert most_in_patch(torch.zeros_like(batch["box"]), 3) == 1


def case_of(notes: list[BoxAnnotation], shape: tuple[int, int, int] = (5, 12, 12), *, volume: bool) -> CaseSamples:
    space = (1, 1, *shape) if volume else (shape[0], 1, *shape[1:])
    case = Case("A", "train", "A.npz", "", shape, None, False)
    pixels, mask = torch.zeros(space, dtype=torch.uint8), torch.zeros(space, dtype=torch.bool)
    return CaseSamples(pixels, mask, case, shape[1:], drawn=False, annotated=notes)


def present(case: CaseSamples, axes: int) -> dict[str, Tensor]:
    constraints: dict[str, Constraint] = ready(ASKED, axes, ["a"])
    region = Region(torch.zeros(len(case.image), 2, *case.image.shape[2:]))
    targets = {name: tensor for one in constraints.values() for name, tensor in one.targets(case).items()}
    return {name: one.residual(region, targets, "pixels").present for name, one in constraints.items()}


def test_a_box_in_3d_keeps_its_slabs_in_volumes_and_promises_no_line_in_slices() -> None:
    notes = [BoxAnnotation("A", None, 1, (1, 2, 2), (4, 9, 8))]
    deep = present(case_of(notes, volume=True), 3)
    assert deep["strips"].flatten(4).any(dim=-1).tolist() == [[[[True, True, True]]]]
    assert bool(deep["filled"].all())
    flat = present(case_of(notes, volume=False), 2)
    assert not bool(flat["strips"].any())
    assert not bool(flat["slanted_strips"].any())
    assert not bool(flat["filled"].any()), "how much of the box is filled in a slice, nobody knows"
    assert flat["box_size"].flatten().tolist() == [False, True, True, True, False]
    assert bool(flat["outside"].all())


def test_a_box_that_nobody_drew_says_only_where_nothing_is() -> None:
    notes = [
        BoxAnnotation("A", 1, 1, (2, 2), (9, 8)),
        BoxAnnotation("A", 2, 1, (2, 2), (9, 8), tight=False),
        BoxAnnotation("A", 3, 1, (3, 2), (9, 8)),
    ]
    for volume, axes in ((False, 2), (True, 3)):
        case = case_of(notes, volume=volume)
        found = present(case, axes)
        rows = (slice(1, 4), 0, 0) if not volume else (0, 0, slice(None))
        assert found["box_size"][rows].tolist() == [True, True, True]
        for name in ("strips", "slanted_strips", "filled"):
            assert found[name][rows].flatten(1).any(dim=1).tolist() == [True, False, True], name
    assert case.object_boxes.tolist() == [[[[[1, 2], [2, 9], [2, 8]], [[3, 4], [3, 9], [2, 8]]]]]
