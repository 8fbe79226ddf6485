"""Several objects of a class in an image: a box for each, from masks and from files, whatever other cases have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from true_masks import batch_of, found, ready

from prepared_sets import described_anew, make_prepared
from ringfence.weak.annotations import annotations_from_boxes, boxes_from_masks, write_boxes_csv
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.loading.patches import Patches
from ringfence.weak.training.settings import AugmentSettings

ALL = {
    "strips": {"width": 2},
    "slanted_strips": {"width": 2},
    "outside": {},
    "box_size": {},
    "size": {"slack": 0.01},
    "centroid": {"slack": 0.6},
    "compactness": {"ratio": 12.0},
}
COUNTS = (1, 4, 0, 2)
"""Objects of class 1 in the cases."""


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedSet:
    """Four cases of squares, some with more of them than others; class 2 is one bar in every slice of every case."""
    made = make_prepared(tmp_path / "set", cases=4, classes=2, shape=(5, 24, 30))
    for case, count in zip(made.cases, COUNTS, strict=True):
        image, _ = made.load(case)
        labels = np.zeros((5, 24, 30), np.uint8)
        for number in range(count):
            row, column = 3 + 8 * (number // 2), 3 + 10 * (number % 2)
            labels[1 : 4 - number % 2, row : row + 4 + number, column : column + 5] = 1
        labels[1:4, 20:22, 4 : 20 + count] = 2
        np.savez(made.path / case.file, image=image, mask=labels)
    return described_anew(made)


def samples(prepared: PreparedSet, patch: list[int] | None = None, **known: object):
    return box_task(BoxDataSettings(prepared=str(prepared.path), patch=patch, **known), ALL)


def check(task, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """The truth satisfies all; what is asked, by constraint."""
    residuals = task.measure("pixels")(found(rows["mask"]), rows)
    for name, residual in residuals.items():
        assert float(residual.violation.max()) <= 2e-3, f"{name}: {residual}"
    return {name: residual.present for name, residual in residuals.items()}


def test_one_box_around_two_objects_is_violated_by_the_truth() -> None:
    """Which is why each has its own: between them there is nothing, and strips there ask for something."""
    mask = torch.zeros(1, 1, 20, 30, dtype=torch.bool)
    mask[0, 0, 3:8, 4:9] = mask[0, 0, 10:16, 20:27] = True
    constraints = ready({"strips": {}}, 2, ["a"])
    batch = batch_of(mask, constraints)
    assert batch["box"][0, 0].tolist() == [[[3, 8], [4, 9]], [[10, 16], [20, 27]]]
    strips = constraints["strips"]
    assert float(strips.residual(found(mask), batch, "pixels").violation.max()) <= 1e-3
    around = batch | {"box": torch.tensor([[[[[3, 16], [4, 27]]]]]), "whole": batch["whole"][:, :, :1]}
    assert float(strips.residual(found(mask), around, "pixels").violation.max()) == pytest.approx(5.0)


@pytest.mark.parametrize("patch", [None, [5, 22, 30]], ids=["slices", "volumes"])
def test_cases_with_fewer_objects_are_asked_as_much(prepared: PreparedSet, patch: list[int] | None) -> None:
    """Empty boxes fill up; they are not boxes that were cut, of which sizes, centroids and boundaries are unknown."""
    task = samples(prepared, patch)
    box = task.train["box"]
    assert box.shape[2] == (4 if patch is None else 10)  # two squares have three slices, two have two
    present = check(task, task.train)
    boxed = (box[..., 1] > box[..., 0]).all(dim=-1)
    counts = boxed.sum(dim=-1)
    objects = task.train["objects"]
    assert torch.equal(objects, counts if patch is None else (task.train["aim"][..., 0, 1] > 0).sum(dim=-1))
    assert objects.view(3, -1, 2)[..., 0].amax(dim=1).tolist() == list(COUNTS[:3])
    assert bool(task.train["uncut"].all())
    assert bool(task.train["whole"][..., -2:].all())
    assert torch.equal(task.train["whole"][..., 0], ~boxed | (patch is None))  # nothing along the depth of a slice
    assert bool(present["size"].all())  # of empty slices, too: there it is 0
    assert torch.equal(present["centroid"].flatten(2).all(dim=-1), counts > 0)
    assert torch.equal(present["compactness"], counts > 0)
    assert torch.equal(present["box_size"], boxed)
    assert torch.equal(present["strips"].flatten(3).any(dim=-1), boxed)
    check(task, task.validation)
    still = {"scale": 0.0, "intensity": 0.0, "bias": 0.0, "noise": 0.0}
    asked = dict.fromkeys(task.constraints, 0)
    for _ in range(8):
        rows = task.train if patch is None else Patches(patch, task.constraints)(task.train)
        seen = Augmentation(AugmentSettings(shift=0.2, **still), task.constraints)(rows)
        for name, there in check(task, seen).items():
            asked[name] += int(there.sum())
    assert min(asked.values()) > 5, asked


@pytest.mark.parametrize("kind", ["csv", "coco"])
@pytest.mark.parametrize("patch", [None, [4, 20, 24]], ids=["slices", "volumes"])
def test_boxes_from_a_file_are_those_of_the_masks(
    prepared: PreparedSet, tmp_path: Path, kind: str, patch: list[int] | None
) -> None:
    notes = []
    for case in prepared.cases:
        labels = torch.from_numpy(prepared.load(case)[1])
        masks = torch.stack([labels == 1, labels == 2], dim=1)
        notes += annotations_from_boxes(case.name, boxes_from_masks(masks).numpy())
    file = tmp_path / f"boxes.{'csv' if kind == 'csv' else 'json'}"
    if kind == "csv":
        write_boxes_csv(file, notes, prepared)
    else:
        places = sorted({(one.case, one.slice) for one in notes})
        content = {
            "images": [
                {"id": number, "file_name": f"{case}_{one}.png"} for number, (case, one) in enumerate(places)
            ],
            "categories": [{"id": 1, "name": "class 1"}, {"id": 2, "name": "class 2"}],
            "annotations": [
                {
                    "image_id": places.index((one.case, one.slice)),
                    "category_id": one.label,
                    "bbox": [one.low[1], one.low[0], one.high[1] - one.low[1], one.high[0] - one.low[0]],
                }
                for one in notes
            ],
        }
        file.write_text(json.dumps(content))
    one, other = samples(prepared, patch), samples(prepared, patch, boxes=str(file))
    assert one.train.keys() == other.train.keys()
    for name in one.train:
        assert torch.equal(one.train[name], other.train[name]), name
    assert one.train["box"].shape[2] == (4 if patch is None else 10)


def test_parts_that_are_too_small_have_no_box(prepared: PreparedSet) -> None:
    """The smallest square is 4×5; of the third case nothing but the bar is left anyway."""
    areas = []
    for row in samples(prepared).train["mask"][:, 0].numpy():
        labels, count = ndimage.label(row)
        areas += [int((labels == one).sum()) for one in range(1, count + 1)]
    for smallest, expected in ((1, len(areas)), (21, sum(area >= 21 for area in areas))):
        task = samples(prepared, smallest_part=smallest)
        box = task.train["box"][:, 0]
        assert int((box[..., 1] > box[..., 0]).all(dim=-1).sum()) == expected
    assert 0 < sum(area >= 21 for area in areas) < len(areas)


def test_an_object_within_the_box_of_another() -> None:
    """A ring and what is in it; an L whose box overlaps that of the next: each says what it can."""
    mask = torch.zeros(1, 1, 24, 40, dtype=torch.bool)
    mask[0, 0, 2:20, 2:18] = True
    mask[0, 0, 4:18, 4:16] = False
    mask[0, 0, 9:13, 8:12] = True
    mask[0, 0, 3:20, 22:25] = mask[0, 0, 17:20, 22:36] = mask[0, 0, 4:12, 30:34] = True
    asked = {"strips": {"width": 1}, "slanted_strips": {"width": 1}, "outside": {}, "box_size": {"low": 0.1}}
    constraints = ready(asked, 2, ["a"])
    batch = batch_of(mask, constraints)
    assert batch["box"].shape[2] == 4
    for name, one in constraints.items():
        residual = one.residual(found(mask), batch, "pixels")
        assert float(residual.violation.max()) <= 1e-3, f"{name}: {residual}"
        assert bool(
            residual.present.flatten(3).any(dim=-1).all() if residual.f.ndim > 2 else residual.present.all()
        )
