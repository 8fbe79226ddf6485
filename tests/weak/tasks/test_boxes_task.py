"""The task of boxes: constraints on slices and volumes of a prepared set, with boxes from masks and from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

import ringfence as rf
from prepared_sets import described_anew, make_prepared
from ringfence import weak
from ringfence.segmentation import Region
from ringfence.weak.annotations import annotations_from_boxes, write_boxes_csv
from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.constraints.strips import Strips
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.loading.patches import Patches
from ringfence.weak.training.settings import AugmentSettings

BOX: dict[str, Any] = {"strips": {}, "outside": {}, "box_size": {}}


def task_of(folder: Path, asked: dict[str, Any] | None = None, **data: Any) -> Task:
    return box_task(BoxDataSettings(prepared=str(folder), **data), asked or BOX)


def certain(mask: Tensor) -> Region:
    return Region(200.0 * torch.cat([~mask.any(dim=1, keepdim=True), mask], dim=1).float())


@pytest.mark.parametrize("patch", [None, [8, 28, 32]])
def test_true_masks_satisfy_every_constraint(tmp_path: Path, patch: list[int] | None) -> None:
    """A hard map of the truth is feasible, on whole images and on whatever patches and augmentation make of them."""
    make_prepared(tmp_path, classes=2, shape=(8, 32, 40))
    # moving resamples the mask to the nearest pixel: its centroid may be half a pixel off
    asked = BOX | {
        "size": {"slack": 0.02},
        "centroid": {"slack": 0.7},
        "slanted_strips": {},
        "compactness": {"ratio": 3},
    }
    asked |= {"separation": {"first": "class 1", "second": "class 2"}}
    task = task_of(tmp_path, asked, patch=patch)
    still = Augmentation(AugmentSettings(scale=0.0), task.constraints)  # scaling: a strip may lose a pixel
    cut = Patches(patch, task.constraints) if patch else dict
    for batch in [task.validation, *(still(cut(task.train)) for _ in range(5))]:
        residuals = task.measure("pixels")(certain(batch["mask"]), batch)
        assert tuple(residuals) == tuple(asked)
        for name, residual in residuals.items():
            assert float(residual.violation.max()) <= 1e-3, name
            assert bool(residual.present.any()), name


def test_residuals_are_the_papers_three_constraints(tmp_path: Path) -> None:
    make_prepared(tmp_path, shape=(3, 17, 23))
    task = task_of(tmp_path, BOX | {"strips": {"width": 4}})
    batch = task.train
    torch.manual_seed(1)
    logits = torch.randn(len(batch["image"]), 2, 17, 23)
    residuals = task.measure("pixels")(Region(logits), batch)
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
        assert residuals["box_size"].f[row].item() == pytest.approx(map_.sum() - area, rel=1e-5)
        for axis, length in enumerate(inside.shape):
            expected = [
                min(4, length - first) - inside.take(range(first, min(first + 4, length)), axis=axis).sum()
                for first in range(0, length, 4)
            ]
            found = residuals["strips"].f[row, 0, 0, axis]
            assert found[: len(expected)].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)
            assert bool((found[len(expected) :] == -torch.inf).all())


def test_relative_units_and_a_size_range(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = task_of(tmp_path)
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    plain, relative = (task.measure(unit)(Region(logits), task.train) for unit in ("pixels", "relative"))
    area = (task.train["box"][..., 1] - task.train["box"][..., 0]).prod(dim=-1)
    there = area > 0
    torch.testing.assert_close(relative["box_size"].f[there], plain["box_size"].f[there] / area[there])
    ranged = task_of(tmp_path, {"box_size": {"low": 0.5, "high": 0.9}}).measure("pixels")(
        Region(logits), task.train
    )
    size = Region(logits).size.unsqueeze(-1)
    torch.testing.assert_close(ranged["box_size"].f[there][:, 0], (0.5 * area - size)[there])
    torch.testing.assert_close(ranged["box_size"].f[there][:, 1], (size - 0.9 * area)[there])


def test_boxes_from_a_file_are_those_of_the_masks(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", classes=2, shape=(6, 24, 40))
    notes = []
    for case in prepared.cases:
        labels = torch.from_numpy(prepared.load(case)[1])
        masks = torch.stack([labels == 1, labels == 2], dim=1)
        notes += annotations_from_boxes(case.name, boxes_from_masks(masks).numpy())
    write_boxes_csv(tmp_path / "boxes.csv", notes, prepared)
    for patch in (None, [4, 16, 16]):
        one = task_of(tmp_path / "set", patch=patch)
        other = task_of(tmp_path / "set", patch=patch, boxes=str(tmp_path / "boxes.csv"))
        for name in one.train:
            assert torch.equal(one.train[name], other.train[name]), name


def test_no_mask_is_needed_with_a_file_of_boxes(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", masked=False)
    with pytest.raises(ValueError, match=r"case0 has neither a mask nor a box: give boxes by --data.boxes FILE"):
        task_of(tmp_path / "set")
    lines = [f"{case.name},2,class 1,4,12,5,15" for case in prepared.of("train")]
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    task = task_of(tmp_path / "set", boxes=str(tmp_path / "boxes.csv"))
    assert task.train["box"][2].tolist() == [[[[4, 12], [5, 15]]]]
    assert task.train["box"][3].tolist() == [[[[0, 0], [0, 0]]]]
    assert not bool(task.train["mask"].any())
    assert bool(task.validation["mask"].any())


def test_without_a_case_for_validation_training_images_are_counted_but_have_no_dice(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, cases=3)
    replace(prepared, cases=tuple(replace(case, split="train") for case in prepared.cases)).write_manifest()
    task = task_of(tmp_path)
    assert torch.equal(task.validation["image"], task.train["image"])
    assert bool((task.validation["case"] < 0).all())
    assert sorted(set((-1 - task.validation["case"]).tolist())) == [0, 1, 2]
    assert bool((task.train["case"] >= 0).all())


def test_a_margin_widens_boxes_and_strips_stay_true(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    tight, loose = task_of(tmp_path), task_of(tmp_path, margin=2)
    assert bool((loose.train["box"][..., 0] <= tight.train["box"][..., 0]).all())
    for residual in loose.measure("pixels")(certain(loose.train["mask"]), loose.train).values():
        assert float(residual.violation.max()) <= 1e-3


def test_sizes_from_a_file_become_a_constraint(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    (tmp_path / "sizes.csv").write_text("case,slice,class,low,high\ncase0,2,class 1,10,150\n")
    task = task_of(tmp_path / "set", {"size": {"file": str(tmp_path / "sizes.csv")}})
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    residual = task.measure("pixels")(Region(logits), task.train)["size"]
    size = Region(logits).size[2, 0]
    torch.testing.assert_close(residual.f[2, 0], torch.stack([10.0 - size, size - 150.0]))
    assert int(residual.present.sum()) == 2


def test_small_parts_make_no_quarrel_between_sizes_and_boxes(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    for case in prepared.of("train"):
        image, mask = prepared.load(case)
        mask[0, 1, 1] = 1
        np.savez(tmp_path / case.file, image=image, mask=mask)
    described_anew(prepared)
    task = task_of(tmp_path, {"size": {"slack": 0.1}, "outside": {}}, smallest_part=2)
    assert task.train["size_high"][0].item() == 0.0
    assert task_of(tmp_path, {"size": {"slack": 0.1}}).train["size_high"][0].item() == pytest.approx(1.1)


def test_validation_tiles_judge_each_voxel_once(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, shape=(7, 24, 20))
    tiles = task_of(tmp_path, patch=[4, 16, 16]).validation
    case = prepared.of("validation")[0]
    assert int(tiles["judged"].sum()) == 7 * 24 * 20
    judged = tiles["mask"] & tiles["judged"].unsqueeze(1)
    assert int(judged.sum()) == int((prepared.load(case)[1] > 0).sum())
    assert len(tiles["image"]) == 2 * 2 * 2


def test_volumes_without_a_plan_need_patches(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    with pytest.raises(ValueError, match=r"data\.volumes true, and no data\.patch: .*--volumes` derives"):
        task_of(tmp_path, volumes=True)


@pytest.mark.parametrize("patch", [[4, 16], [0, 4, 4]])
def test_a_patch_is_three_numbers(patch: list[int]) -> None:
    with pytest.raises(ValueError, match=r"data.patch is three numbers"):
        BoxDataSettings(patch=patch)


def test_bounds_from_masks_against_scipy(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = task_of(tmp_path, {"size": {"slack": 0.1}, "centroid": {"slack": 2.0}})
    assert tuple(task.constraints) == ("size", "centroid")
    logits = torch.randn(len(task.train["image"]), 2, 24, 20)
    residuals = task.measure("pixels")(Region(logits), task.train)
    probability = torch.softmax(logits, dim=1)[:, 1].numpy()
    for row, mask in enumerate(task.train["mask"][:, 0].numpy()):
        found = probability[row].sum()
        expected = [0.9 * mask.sum() - found, found - 1.1 * mask.sum()]
        assert residuals["size"].f[row, 0].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-3)
        if not mask.any():
            assert not bool(residuals["centroid"].present[row].any())
            continue
        there, wanted = (ndimage.center_of_mass(one) for one in (probability[row], mask))
        for axis in (0, 1):
            expected = [wanted[axis] - 2.0 - there[axis], there[axis] - wanted[axis] - 2.0]
            assert residuals["centroid"].f[row, 0, axis].tolist() == pytest.approx(expected, abs=1e-3)


def test_bounds_from_masks_need_masks(tmp_path: Path) -> None:
    make_prepared(tmp_path, masked=False)
    with pytest.raises(ValueError, match="constraints.size: slack is about masks, and no training case"):
        task_of(tmp_path, {"size": {"slack": 0.1}})


def test_a_margin_that_leaves_no_strip_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    for asked in (BOX, {"mine": {"class_path": "strips"}}):
        with pytest.raises(ValueError, match="data.margin 50 leaves no strip across any box"):
            task_of(tmp_path, asked, margin=50)
    task_of(tmp_path, {"outside": {}}, margin=50)


def test_resized_boxes_are_loose_within_slices_only(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", shape=(6, 24, 20))
    larger = tuple(replace(case, shape=(6, 48, 40)) for case in prepared.cases)
    replace(prepared, cases=larger).write_manifest()
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    lines = [f"{case.name},{number},class 1,9,31,11,30" for case in larger for number in (2, 3)]
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    for patch, expected in ((None, [1, 1]), ([4, 24, 20], [0, 1, 1])):
        task = task_of(tmp_path / "set", boxes=str(tmp_path / "boxes.csv"), patch=patch)
        assert task.train["margin"][0].tolist() == expected


def test_relative_residuals_of_empty_slices_are_fractions_of_the_image(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    task = task_of(tmp_path, {"outside": {}, "size": {"slack": 0.1}})
    empty = (task.train["box"][..., 1] == 0).all(dim=-1)[:, 0, 0]
    assert bool(empty.any())
    logits = torch.zeros(len(empty), 2, 24, 20)
    residuals = task.measure("relative")(Region(logits), task.train)
    for fraction in (residuals["outside"].f[empty], residuals["size"].f[empty][..., 1]):  # above a size of 0
        torch.testing.assert_close(fraction, torch.full_like(fraction, 0.5))


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, classes=2)
    replace(prepared, classes=("class 1",), labels=(1,)).write_manifest()
    with pytest.raises(ValueError, match=r"label 2 in its mask, and 1 classes in manifest.json"):
        task_of(tmp_path)


def test_a_patch_is_not_without_end(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    with pytest.raises(ValueError, match=r"at most \[32, 48, 40\] for volumes of up to \[6, 24, 20\]"):
        task_of(tmp_path, patch=[4, 16000, 16000])


def test_sets_that_nothing_can_be_learnt_from_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data.prepared: which prepared set\? Name the folder"):
        box_task(BoxDataSettings(), BOX)
    prepared = make_prepared(tmp_path, classes=2)
    none = replace(prepared, cases=prepared.of("validation"))
    with pytest.raises(ValueError, match="has no case for training"):
        box_task(BoxDataSettings(), BOX, none)
    for case in prepared.of("train"):
        image, mask = prepared.load(case)
        np.savez(tmp_path / case.file, image=image, mask=np.where(mask == 2, 0, mask))
    described_anew(prepared)
    with pytest.raises(ValueError, match="no training image has a box of class 2: nothing to learn from"):
        task_of(tmp_path)


class Known(weak.Constraint):
    """Says of each sample what it is told to."""

    def __init__(self, targets: dict[str, Tensor]) -> None:
        self.told = targets

    def targets(self, case: weak.CaseSamples) -> dict[str, Tensor]:
        return {name: one.expand(len(case.image), *one.shape[1:]) for name, one in self.told.items()}

    def residual(self, region: Region, targets: weak.Targets, unit: weak.Unit) -> rf.Residual:
        return rf.at_most(region.size, targets["most"])


def test_constraint_objects_join_those_by_name(tmp_path: Path) -> None:
    make_prepared(tmp_path)
    mine, strips = Known({"most": torch.tensor([[7.0]])}), Strips(3)
    task = task_of(tmp_path, {"mine": mine, "thin": strips, "outside": {}})
    assert (task.constraints["mine"], task.constraints["thin"]) == (mine, strips)
    assert task.train["most"].tolist() == [[7.0]] * len(task.train["image"])
    assert set(task.measure("pixels")(certain(task.train["mask"]), task.train)) == {"mine", "thin", "outside"}


@pytest.mark.parametrize("name", ["most", "box", "image"])
def test_two_targets_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    """The second would replace the first, and what it bounds, without a word."""
    make_prepared(tmp_path)
    value = torch.tensor([[7.0]])
    asked = {"outside": {}, "first": Known({"most": value}), "second": Known({name: value + 1})}
    with pytest.raises(ValueError, match=rf"constraints.second: its target '{name}' of case0 is there already"):
        task_of(tmp_path, asked)
    task_of(tmp_path, asked | {"second": Known({"most": value.clone()})})
    twice = {"size": {"slack": 0.1}, "rough": {"class_path": "size", "init_args": {"slack": 0.5}}}
    with pytest.raises(ValueError, match="constraints.rough: its target 'size_low' of case0"):
        task_of(tmp_path, twice)


def test_targets_have_a_row_for_each_sample(tmp_path: Path) -> None:
    make_prepared(tmp_path)

    class Short(Known):
        def targets(self, case: weak.CaseSamples) -> dict[str, Tensor]:
            return self.told

    with pytest.raises(ValueError, match="constraints.mine: most has 1 rows, and case0 has 6 samples"):
        task_of(tmp_path, {"mine": Short({"most": torch.zeros(1, 1)})})


def test_what_a_constraint_finds_out_when_ready_is_told_with_its_name(tmp_path: Path) -> None:
    make_prepared(tmp_path, classes=2)
    with pytest.raises(
        ValueError, match="constraints.inclusion: there is no class 'clas 1'; did you mean 'class 1'"
    ):
        task_of(tmp_path, {"inclusion": {"inner": "clas 1", "outer": "class 2"}})


def test_boxes_are_there_whatever_is_asked(tmp_path: Path) -> None:
    """Patches are aimed by them, and pictures chosen."""
    make_prepared(tmp_path, classes=2)
    task = task_of(tmp_path, {"separation": {"first": "class 1", "second": "class 2"}}, patch=[4, 16, 16])
    assert {"box", "whole", "margin", "uncut"} <= task.train.keys() & task.validation.keys()
    assert "aim" in task.train
    assert "aim" not in task.validation
