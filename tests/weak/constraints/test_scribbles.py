"""Scribbles: against loops over points, on slices and volumes, wherever images move."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from true_masks import batch_of, grown, ready

from prepared_sets import make_prepared
from ringfence import weak
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.constraints.scribbles import Scribbles
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.tiles import tile_starts
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.loading.patches import Patches
from ringfence.weak.training.settings import AugmentSettings

HEADER = "case,slice,class,row,column\n"


def expected(logits: Tensor, scribble: Tensor) -> list[list[float]]:
    """Points that are missed, of each class; -inf where there is none."""
    found = logits.double().softmax(dim=1)
    rows = []
    for sample, points in enumerate(scribble.tolist()):
        sums = [-np.inf] * logits.shape[1]
        for label, *place in points:
            if label:
                missed = 1.0 - float(found[(sample, label - 1, *place)])
                sums[label - 1] = max(sums[label - 1], 0.0) + missed
        rows.append(sums)
    return rows


@pytest.mark.parametrize("space", [(12, 15), (4, 9, 8)], ids=["slices", "volumes"])
def test_residuals_are_those_of_a_loop(space: tuple[int, ...]) -> None:
    constraints = ready({"scribbles": {"points": 6}}, len(space))
    batch = batch_of(grown(5, space, seed=2), constraints)
    logits = torch.randn(5, 4, *space)
    plain, relative = (
        constraints["scribbles"].residual(Region(logits), batch, one) for one in ("pixels", "relative")
    )
    wanted = torch.tensor(expected(logits, batch["scribble"]), dtype=torch.float64)
    torch.testing.assert_close(plain.f.double(), wanted, atol=1e-5, rtol=1e-5)
    count = torch.stack([(batch["scribble"][..., 0] == 1 + label).sum(dim=1) for label in range(4)], dim=1)
    assert bool((plain.present == (count > 0)).all())
    assert not bool(plain.present.all())  # an image of background alone
    there = plain.present
    torch.testing.assert_close(relative.f[there], (plain.f / count)[there])


@pytest.mark.parametrize("space", [(31, 24), (9, 14, 12)], ids=["slices", "volumes"])
def test_points_stay_on_their_class_however_images_move(space: tuple[int, ...]) -> None:
    """Flips, shifts, scaling both ways and windows: the mask, resampled on its own, has the class of every point."""
    constraints = ready({"scribbles": {"points": 20}}, len(space))
    batch = batch_of(grown(6, space, seed=5), constraints)
    flips = ["slices", "up-down", "left-right"][-len(space) :]
    moving = Augmentation(AugmentSettings(flip=flips, shift=0.3, scale=0.4), constraints)
    patches = Patches([length * 2 // 3 for length in space], constraints)
    counted = []
    for number in range(12):
        torch.manual_seed(number)
        one = moving(patches(batch) if number % 2 else batch)
        classes = torch.cat([~one["mask"].any(dim=1, keepdim=True), one["mask"]], dim=1)
        points = [
            (sample, label - 1, *place)
            for sample, some in enumerate(one["scribble"].tolist())
            for label, *place in some
            if label
        ]
        counted.append(len(points))
        assert len(points) > 30
        assert all(bool(classes[point]) for point in points)
    assert min(counted) < max(counted) < int((batch["scribble"][..., 0] > 0).sum())


def test_a_window_keeps_exactly_the_points_within_it() -> None:
    points = torch.tensor([[[2, 3, 4], [1, 0, 0], [2, 9, 9], [0, 0, 0]]] * 2, dtype=torch.int32)
    moved = Scribbles(points=1).moved(
        {"scribble": points}, Motion.crop(torch.tensor([[2, 3], [0, 0]]), (10, 10), (5, 5))
    )
    assert moved["scribble"].tolist() == [
        [[2, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[2, 3, 4], [1, 0, 0], [0, 0, 0], [0, 0, 0]],
    ]
    assert moved["scribble"].dtype == torch.int32


def test_shrinking_keeps_the_point_that_a_pixel_shows() -> None:
    """By half, a pixel shows one of four: against torch's own nearest neighbours."""
    motion = Motion.resampled(torch.full((1, 2), 0.5), torch.full((1, 2), 0.013), (8, 8))
    every = torch.cartesian_prod(torch.arange(8), torch.arange(8))[None]
    moved, seen = motion.points(every)
    grid = torch.nn.functional.affine_grid(
        torch.tensor([[[2.0, 0, -0.052], [0, 2.0, -0.052]]]), [1, 1, 8, 8], align_corners=False
    )
    numbered = torch.arange(1.0, 65.0).view(1, 1, 8, 8)
    shown = torch.nn.functional.grid_sample(numbered, grid, mode="nearest", align_corners=False)[0, 0]
    found = torch.zeros(8, 8)
    for number, (place, there) in enumerate(zip(moved[0].tolist(), seen[0].tolist(), strict=True), start=1):
        if there:
            found[tuple(place)] = number
    assert torch.equal(found, shown)
    assert int(seen.sum()) == int((shown > 0).sum()) == 16


def task_of(folder: Path, file: Path, **data: object) -> Task:
    asked = {"scribbles": {"file": str(file)}, "outside": {}}
    return box_task(BoxDataSettings(prepared=str(folder), **data), asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("patch", [None, [4, 16, 16]])
def test_a_file_in_training(tmp_path: Path, patch: list[int] | None) -> None:
    """Slices and volumes, patches and tiles: a network that finds the masks satisfies scribbles drawn on them."""
    prepared = make_prepared(tmp_path / "set", classes=2, shape=(6, 24, 40))
    random, lines, marked = np.random.default_rng(1), [], []
    for case in prepared.cases:
        mask = prepared.load(case)[1]
        assert mask is not None
        for label in range(3):
            for place in random.permutation(np.argwhere(mask == label))[:15].tolist():
                lines.append(f"{case.name},{place[0]},{label},{place[1]},{place[2]}\n")
                marked += [place] * (case.split == "validation")
    file = tmp_path / "scribbles.csv"
    file.write_text(HEADER + "".join(lines))
    task = task_of(tmp_path / "set", file, patch=patch)
    cut = Patches(patch, task.constraints) if patch else dict
    for batch in (task.validation, cut(task.train)):
        mask = batch["mask"]
        region = Region(200.0 * torch.cat([~mask.any(dim=1, keepdim=True), mask], dim=1).float())
        right, wrong = (
            task.measure("pixels")(one, batch)["scribbles"]
            for one in (region, Region(torch.zeros(*region.shape[:1], 3, *region.shape[2:])))
        )
        points = int((batch["scribble"][..., 0] > 0).sum())
        assert points > 0
        assert float(right.violation.max()) <= 1e-4
        assert float(wrong.violation.sum()) == pytest.approx(points * 2 / 3, rel=1e-4)
    size = patch or [1, 24, 40]
    tiles = [*itertools.product(*map(tile_starts, (6, 24, 40), size))]  # a slice is one, too
    seen = [
        sum(
            all(0 <= at - first < side for at, first, side in zip(place, start, size, strict=True))
            for start in tiles
        )
        for place in marked
    ]
    assert len(marked) == 45
    assert min(seen) >= 1
    assert int((task.validation["scribble"][..., 0] > 0).sum()) == sum(seen)  # each in every tile that holds it
    assert int((task.train["scribble"][..., 0] > 0).sum()) == (len(prepared.cases) - 1) * 45
    assert task.constraints["scribbles"].files == (file,)


def test_points_from_masks_are_the_same_each_time_and_need_masks(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "a")
    for folder, seen in ((tmp_path / "a", True), (tmp_path / "b", False)):
        facts = TaskFacts(("class 1",), 2, make_prepared(folder, masked=seen))
        if not seen:
            with pytest.raises(ValueError, match="points are those of masks, and no training case of .* has one"):
                Scribbles(points=3).ready(facts)
    first, again = (
        box_task(BoxDataSettings(prepared=str(prepared.path)), {"scribbles": {"points": 3}}).train["scribble"]
        for _ in range(2)
    )
    assert torch.equal(first, again)
    assert len(first[2].unique(dim=0)) == 6


@pytest.mark.parametrize("settings", [{}, {"file": "a", "points": 3}])
def test_a_file_or_points(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"constraints.scribbles.file or points: give one of the two"):
        weak.make_constraints({"scribbles": settings})


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"constraints.scribbles.points must be a whole number, at least 1, got 0"):
        weak.make_constraints({"scribbles": {"points": 0}})
    case = weak.CaseSamples(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.ones(1, 1, 4, 4) > 0)
    with pytest.raises(ValueError, match="there is no case to look up in a file; give points"):
        Scribbles("a.csv").targets(case)
