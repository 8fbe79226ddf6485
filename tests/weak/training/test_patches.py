"""Patches of volumes with a box in every slice: aimed at objects, and of one shape in every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prepared_sets import described_anew, make_prepared
from ringfence.segmentation import Region
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.loading.data import SegmentationData
from ringfence.weak.training.loading.patches import Patches
from ringfence.weak.training.settings import AugmentSettings

BOX: dict[str, Any] = {"strips": {"width": 2}, "outside": {}, "box_size": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cases with a bar through 17 slices and, far from it, a spot in one of them."""
    made = make_prepared(tmp_path, cases=4, shape=(18, 40, 40))
    for case in made.cases:
        image, _ = made.load(case)
        labels = np.zeros((18, 40, 40), np.uint8)
        labels[:17, 2:6, 2:6] = labels[9, 34:38, 34:38] = 1
        np.savez(made.path / case.file, image=image, mask=labels)
    return described_anew(made).path


def test_an_object_of_many_slices_is_aimed_at_as_often_as_one_of_few(folder: Path) -> None:
    task = box_task(BoxDataSettings(prepared=str(folder), patch=[4, 8, 8]), BOX)
    assert task.train["box"].shape[2] == 18
    assert task.train["aim"].shape[2] == 2
    rows = {name: tensor[:1].expand(900, *tensor.shape[1:]) for name, tensor in task.train.items()}
    torch.manual_seed(0)
    seen = Patches([4, 8, 8], task.constraints)(rows)
    there = (seen["box"][..., 1] > seen["box"][..., 0]).all(dim=-1)[:, 0]
    by_spot = int((there.sum(dim=1) == 1).sum())  # the bar has more slices in a patch, but at its ends
    assert 0.3 < by_spot / int(there.any(dim=1).sum()) < 0.7
    assert "aim" not in seen
    assert "volume_size" not in seen


@pytest.mark.parametrize("streamed", ["never", "always"])
def test_every_batch_has_room_for_the_same_number_of_boxes(folder: Path, streamed: Any) -> None:
    task = box_task(BoxDataSettings(prepared=str(folder), patch=[4, 16, 16], streamed=streamed, workers=0), BOX)
    data = SegmentationData(task, batch_size=2, seed=3)
    shapes = set()
    for _ in range(3):
        for batch in data.train_dataloader():
            shapes.add((batch["box"].shape[1:], batch["whole"].shape[1:]))
            varied = Augmentation(AugmentSettings(scale=0.0), task.constraints)(batch)
            residuals = task.measure("pixels")(Region(torch.zeros(len(batch["box"]), 2, 4, 16, 16)), varied)
            assert residuals["strips"].f.shape[1:4] == (1, 5, 3)
    assert shapes == {((1, 5, 3, 2), (1, 5, 3))}  # four slices of the bar, and the spot
    assert task.validation["box"].shape[2] == 4  # of tiles, none has both


def test_slices_move_as_a_whole(folder: Path) -> None:
    """None is a blend of two: each has the boxes that it had, and what is in it fills them."""
    task = box_task(BoxDataSettings(prepared=str(folder), patch=[18, 40, 40]), BOX)
    torch.manual_seed(2)
    varied = Augmentation(AugmentSettings(flip=["slices"], shift=0.2, scale=0.0), task.constraints)
    depths = set()
    for _ in range(10):
        batch = varied({name: tensor for name, tensor in task.train.items() if name != "aim"})
        box, mask = batch["box"], batch["mask"]
        there = (box[..., 1] > box[..., 0]).all(dim=-1)
        depths |= set((box[..., 0, 1] - box[..., 0, 0])[there].tolist())
        for row, label, number in there.nonzero().tolist():
            (z, _), (top, bottom), (left, right) = box[row, label, number].tolist()
            inside = mask[row, label, z, top:bottom, left:right]
            if bool(batch["whole"][row, label, number, 1:].all()):
                assert float(inside.float().mean()) == 1.0
        covered = sum(int((end - start).prod()) for start, end in ((one[:, 0], one[:, 1]) for one in box[there]))
        assert int(mask.sum()) <= covered
    assert depths == {1}
