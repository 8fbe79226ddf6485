"""Limits from boxes: against plain loops over strips, on slices and volumes, from masks and from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from prepared_sets import make_prepared
from ringfence.segmentation import Region
from ringfence.weak.annotations import annotations_from_boxes, write_boxes_csv
from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.tasks.boxes import LIMITS, box_task
from ringfence.weak.tasks.samples import check_memory
from ringfence.weak.training.box_settings import AugmentSettings, BoxDataSettings, BoxSettings, LimitSettings


def settings(folder: Path, limits: LimitSettings | None = None, **data: object) -> BoxSettings:
    return BoxSettings(data=BoxDataSettings(prepared=str(folder), **data), limits=limits or LimitSettings())


@pytest.mark.parametrize("patch", [None, [8, 28, 32]])
def test_true_masks_meet_every_limit(tmp_path: Path, patch: list[int] | None) -> None:
    """A hard map of the truth is feasible, on whole images and on whatever patches and variations make of them."""
    make_prepared(tmp_path, classes=2, shape=(8, 32, 40))
    torch.manual_seed(0)
    task = box_task(settings(tmp_path, patch=patch, limits=LimitSettings(size_slack=0.02, centroid_slack=0.7)))
    # moving resamples the mask to the nearest pixel: its centroid may be half a pixel off
    still = replace(task, augment=replace(task.augment, scale=0.0))  # scaling resamples: a strip may lose a pixel
    batches = [task.validation, *(still.varied(task.train) for _ in range(5))]
    for batch in batches:
        background = ~batch["mask"].any(dim=1, keepdim=True)
        logits = 200.0 * torch.cat([background, batch["mask"]], dim=1).float()
        residuals = task.limits("pixels")(Region(logits), batch)
        assert tuple(residuals) == task.limit_names == LIMITS
        for name, residual in residuals.items():
            assert float(residual.violation.max()) <= 1e-3, name
        for name, residual in residuals.items():
            assert bool(residual.present.any()), name


def test_residuals_are_the_papers_three_constraints(tmp_path: Path) -> None:
    make_prepared(tmp_path, shape=(3, 17, 23))
    task = box_task(settings(tmp_path))
    task = replace(task, asked=LimitSettings(strip_width=4))
    batch = task.train
    torch.manual_seed(1)
    logits = torch.randn(len(batch["image"]), 2, 17, 23)
    residuals = task.limits("pixels")(Region(logits), batch)
    probability = torch.softmax(logits.double(), dim=1)[:, 1].numpy()
    for row, map_ in enumerate(probability):
        rows, columns = np.nonzero(batch["mask"][row, 0].numpy())
        if len(rows) == 0:
            assert not bool(residuals["strips"].present[row].any())
            assert residuals["outside"].f[row].item() == pytest.approx(map_.sum(), rel=1e-5)
            continue
        top, bottom, left, right = rows.min(), rows.max() + 1, columns.min(), columns.max() + 1
        inside = map_[top:bottom, left:right]
        assert residuals["outside"].f[row].item() == pytest.approx(map_.sum() - inside.sum(), rel=1e-5)
        area = (bottom - top) * (right - left)
        assert residuals["size"].f[row].item() == pytest.approx(map_.sum() - area, rel=1e-5)
        for axis, length in enumerate(inside.shape):
            expected = [
                min(4, length - first) - inside.take(range(first, min(first + 4, length)), axis=axis).sum()
                for first in range(0, length, 4)
            ]
            found = residuals["strips"].f[row, 0, axis]
            assert found[: len(expected)].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)
            assert bool((found[len(expected) :] == -torch.inf).all())


def test_relative_units_and_a_size_range(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = box_task(settings(tmp_path))
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    plain, relative = (task.limits(unit)(Region(logits), task.train) for unit in ("pixels", "relative"))
    area = (task.train["box"][..., 1] - task.train["box"][..., 0]).prod(dim=-1)
    there = area > 0
    torch.testing.assert_close(relative["size"].f[there], plain["size"].f[there] / area[there])
    ranged = replace(task, asked=LimitSettings(size_low=0.5, size_high=0.9)).limits("pixels")(
        Region(logits), task.train
    )
    size = Region(logits).size
    torch.testing.assert_close(ranged["size"].f[there][:, 0], (0.5 * area - size)[there])
    torch.testing.assert_close(ranged["size"].f[there][:, 1], (size - 0.9 * area)[there])


def test_boxes_from_a_file_are_those_of_the_masks(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", classes=2, shape=(6, 24, 40))
    notes = []
    for case in prepared.cases:
        labels = torch.from_numpy(prepared.load(case)[1])
        masks = torch.stack([labels == 1, labels == 2], dim=1)
        notes += annotations_from_boxes(case.name, boxes_from_masks(masks).numpy())
    write_boxes_csv(tmp_path / "boxes.csv", notes, prepared)
    for patch in (None, [4, 16, 16]):
        one = box_task(settings(tmp_path / "set", patch=patch))
        other = box_task(settings(tmp_path / "set", patch=patch, boxes=str(tmp_path / "boxes.csv")))
        for name in one.train:
            assert torch.equal(one.train[name], other.train[name]), name


def test_no_mask_is_needed_with_a_file_of_boxes(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", masked=False)
    with pytest.raises(ValueError, match=r"case0 has neither a mask nor a box: give boxes by data.boxes"):
        box_task(settings(tmp_path / "set"))
    lines = [f"{case.name},2,class 1,4,12,5,15" for case in prepared.of("train")]
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    task = box_task(settings(tmp_path / "set", boxes=str(tmp_path / "boxes.csv")))
    assert task.train["box"][2].tolist() == [[[4, 12], [5, 15]]]
    assert task.train["box"][3].tolist() == [[[0, 0], [0, 0]]]
    assert not bool(task.train["mask"].any())
    assert bool(task.validation["mask"].any())


def test_a_margin_widens_boxes_and_strips_stay_true(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    tight, loose = box_task(settings(tmp_path)), box_task(settings(tmp_path, margin=2))
    assert bool((loose.train["box"][..., 0] <= tight.train["box"][..., 0]).all())
    mask = loose.train["mask"]
    logits = 200.0 * torch.cat([~mask, mask], dim=1).float()
    for residual in loose.limits("pixels")(Region(logits), loose.train).values():
        assert float(residual.violation.max()) <= 1e-3


def test_sizes_from_a_file_become_a_limit(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    (tmp_path / "sizes.csv").write_text("case,slice,class,low,high\ncase0,2,class 1,10,50\n")
    task = box_task(settings(tmp_path / "set", sizes=str(tmp_path / "sizes.csv")))
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    residual = task.limits("pixels")(Region(logits), task.train)["given_size"]
    size = Region(logits).size[2, 0]
    torch.testing.assert_close(residual.f[2, 0], torch.stack([10.0 - size, size - 50.0]))
    assert int(residual.present.sum()) == 2


@pytest.mark.parametrize("patch", [None, [4, 16, 16]])
def test_sizes_that_boxes_have_no_room_for_are_refused(tmp_path: Path, patch: list[int] | None) -> None:
    make_prepared(tmp_path / "set")
    row, place = (0, "case0") if patch else (2, "case0, slice 2")
    box = box_task(settings(tmp_path / "set", patch=patch)).train["box"][row, 0]
    room = int((box[:, 1] - box[:, 0]).prod())
    file = tmp_path / "sizes.csv"
    for low in (room, room + 1):
        file.write_text(f"case,slice,class,low,high\ncase0,{'' if patch else row},class 1,{low},\n")
        asked = settings(tmp_path / "set", sizes=str(file), patch=patch)
        if low == room:
            box_task(asked)
            continue
        with pytest.raises(ValueError, match=rf"{place}: data.sizes asks for at least {low} .* holds {room}:"):
            box_task(asked)
    box_task(settings(tmp_path / "set", LimitSettings(box=False), sizes=str(file), patch=patch))  # no limits then


def test_a_size_where_there_is_no_box_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    boxes, sizes = tmp_path / "boxes.csv", tmp_path / "sizes.csv"
    lines = [f"case{number},3,class 1,2,9,2,9" for number in range(3)]
    boxes.write_text("\n".join(["case,slice,class,row_low,row_high,column_low,column_high", *lines]) + "\n")
    sizes.write_text("case,slice,class,low,high\ncase0,2,class 1,5,\n")
    with pytest.raises(ValueError, match="at least 5 voxels of class 1, and there is no box of it"):
        box_task(settings(tmp_path / "set", sizes=str(sizes), boxes=str(boxes)))


def test_validation_tiles_cover_each_voxel_once(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, shape=(7, 24, 20))
    tiles = box_task(settings(tmp_path, patch=[4, 16, 16])).validation
    case = prepared.of("validation")[0]
    assert int(tiles["judged"].sum()) == 7 * 24 * 20
    assert int(tiles["mask"].sum()) == int((prepared.load(case)[1] > 0).sum())
    assert len(tiles["image"]) == 2 * 2 * 2


@pytest.mark.parametrize("patch", [[4, 16], [0, 4, 4]])
def test_a_patch_is_three_numbers(tmp_path: Path, patch: list[int]) -> None:
    make_prepared(tmp_path)
    with pytest.raises(ValueError, match=r"data.patch is three numbers"):
        box_task(settings(tmp_path, patch=patch))


def test_slices_are_mirrored_in_volumes_alone(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    asked = replace(settings(tmp_path), augment=AugmentSettings(flip=["slices", "left-right"]))
    with pytest.raises(
        ValueError, match=r"augment\.flip: slices can be mirrored in volumes alone: give data\.patch"
    ):
        box_task(asked)
    volumes = box_task(replace(asked, data=replace(asked.data, patch=[4, 16, 16])))
    assert volumes.mirrors == ("slices", "left-right")
    assert replace(volumes, augment=replace(asked.augment, average=False)).mirrors == ()


def test_bounds_from_masks_against_scipy(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = box_task(settings(tmp_path, limits=LimitSettings(box=False, size_slack=0.1, centroid_slack=2.0)))
    assert task.limit_names == ("given_size", "centroid")
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    residuals = task.limits("pixels")(Region(logits), task.train)
    probability = torch.softmax(logits, dim=1)[:, 1].numpy()
    for row, mask in enumerate(task.train["mask"][:, 0].numpy()):
        found = probability[row].sum()
        expected = [0.9 * mask.sum() - found, found - 1.1 * mask.sum()]
        assert residuals["given_size"].f[row, 0].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-3)
        if not mask.any():
            assert not bool(residuals["centroid"].present[row].any())
            continue
        there, wanted = (ndimage.center_of_mass(one) for one in (probability[row], mask))
        for axis in (0, 1):
            expected = [wanted[axis] - 2.0 - there[axis], there[axis] - wanted[axis] - 2.0]
            assert residuals["centroid"].f[row, 0, axis].tolist() == pytest.approx(expected, abs=1e-3)


def test_bounds_need_masks_and_one_source(tmp_path: Path) -> None:
    make_prepared(tmp_path / "none", masked=False)
    with pytest.raises(ValueError, match="limits.size_slack is about masks, and no training case"):
        box_task(settings(tmp_path / "none", limits=LimitSettings(size_slack=0.1)))
    make_prepared(tmp_path / "set")
    (tmp_path / "sizes.csv").write_text("case,slice,class,low,high\ncase0,2,class 1,10,50\n")
    with pytest.raises(ValueError, match=r"by data.sizes or by limits.size_slack: give one of them"):
        box_task(
            settings(tmp_path / "set", sizes=str(tmp_path / "sizes.csv"), limits=LimitSettings(size_slack=0.1))
        )


@pytest.mark.parametrize("border", [False, True])
def test_strips_of_a_loose_box_go_through_all_of_it(tmp_path: Path, border: bool) -> None:
    """A C: the middle of its right side is empty, and a strip that were cut there would meet nothing."""
    prepared = make_prepared(tmp_path, shape=(3, 24, 20))
    for case in prepared.cases:
        image, mask = prepared.load(case)
        mask[:] = 0
        top = 0 if border else 4
        mask[:, top : top + 14, 3:15] = 1
        mask[:, top + 2 : top + 12, 5:15] = 0
        np.savez(tmp_path / case.file, image=image, mask=mask)
    for margin in (0, 2, 3):
        task = box_task(settings(tmp_path, margin=margin))
        mask = task.train["mask"]
        logits = 200.0 * torch.cat([~mask, mask], dim=1).float()
        residuals = task.limits("pixels")(Region(logits), task.train)
        assert bool(residuals["strips"].present.any())
        for name, residual in residuals.items():
            assert float(residual.violation.max()) <= 1e-3, name


def test_a_margin_that_leaves_no_strip_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    with pytest.raises(ValueError, match="data.margin 50 leaves no strip across any box"):
        box_task(settings(tmp_path, margin=50))


def test_resized_boxes_are_loose_within_slices_only(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", shape=(6, 24, 20))
    larger = tuple(replace(case, shape=(6, 48, 40)) for case in prepared.cases)
    replace(prepared, cases=larger).write_manifest()
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    lines = [f"{case.name},{number},class 1,9,31,11,30" for case in larger for number in (2, 3)]
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    for patch, expected in ((None, [1, 1]), ([4, 24, 20], [0, 1, 1])):
        task = box_task(settings(tmp_path / "set", boxes=str(tmp_path / "boxes.csv"), patch=patch))
        assert task.train["margin"][0].tolist() == expected


def test_relative_residuals_of_empty_slices_are_shares_of_the_image(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = box_task(settings(tmp_path, limits=LimitSettings(size_slack=0.1)))
    empty = (task.train["box"][..., 1] == 0).all(dim=-1)[:, 0]
    assert bool(empty.any())
    logits = torch.zeros(len(empty), 2, 24, 20)
    residuals = task.limits("relative")(Region(logits), task.train)
    for share in (residuals["outside"].f[empty], residuals["given_size"].f[empty][..., 1]):  # above a size of 0
        torch.testing.assert_close(share, torch.full_like(share, 0.5))


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, classes=2)
    replace(prepared, classes=("class 1",), labels=(1,)).write_manifest()
    with pytest.raises(ValueError, match=r"label 2 in its mask, and 1 classes in manifest.json"):
        box_task(settings(tmp_path))


def test_a_patch_is_not_without_end(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    with pytest.raises(ValueError, match=r"at most \[32, 48, 40\] for volumes of up to \[6, 24, 20\]"):
        box_task(settings(tmp_path, patch=[4, 16000, 16000]))


def test_a_set_that_memory_cannot_hold_is_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, cases=4, shape=(6, 24, 20), classes=2, channels=3)
    needed = 2 * 4 * 6 * 24 * 20 * (3 + 2)
    check_memory(prepared, free=needed)
    with pytest.raises(ValueError, match=r"needs about 0.0 GB of memory to train on.*smaller --size"):
        check_memory(prepared, free=needed - 1)
    check_memory(prepared)
