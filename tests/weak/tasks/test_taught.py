"""A teacher's labels on the disk, and as the masks of a task: slices and volumes, in memory and streamed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from prepared_sets import make_prepared
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.taught import LABELS, finish_labels, labels_about, taught, write_labels
from ringfence.weak.tasks.windows import UNSURE, pixels_of
from ringfence.weak.training.loading.data import SegmentationData

ASKED: dict[str, dict[str, int]] = {"strips": {}, "outside": {}}
PATCH = [4, 16, 12]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedSet:
    """A set, and in ``teacher`` beside it labels that are all drawn by chance."""
    made = make_prepared(tmp_path_factory.mktemp("taught") / "set", classes=2, channels=2)
    random, written = np.random.default_rng(0), []
    for case in made.of("train"):
        labels = random.choice([0, 1, 2, UNSURE], (case.shape[0], *made.size)).astype(np.uint8)
        written.append(write_labels(folder(made), case, labels))
    finish_labels(folder(made), written, {"sure": 1})
    return made


def folder(prepared: PreparedSet) -> Path:
    return prepared.path.parent / "teacher"


def stored(prepared: PreparedSet) -> list[np.ndarray]:
    return [np.load(folder(prepared) / case.file)["mask"] for case in prepared.of("train")]


def task_of(prepared: PreparedSet, *, patch: list[int] | None = None, streamed: bool = False) -> Task:
    data = BoxDataSettings(str(prepared.path), patch=patch, streamed="always" if streamed else "never", workers=0)
    return box_task(data, ASKED, prepared)


@pytest.mark.parametrize("streamed", [False, True])
def test_slices_have_the_labels_of_their_files(prepared: PreparedSet, streamed: bool) -> None:
    before = task_of(prepared, streamed=streamed)
    assert not before.taught
    task = taught(before, prepared, folder(prepared))
    assert task.taught
    labels = torch.from_numpy(np.concatenate(stored(prepared)))
    rows = pixels_of(task.train, torch.arange(task.count))
    for number in (1, 2):
        assert torch.equal(rows["mask"][:, number - 1], labels == number)
    assert torch.equal(rows["unsure"], (labels == UNSURE).unsqueeze(1))
    plain = task_of(prepared, streamed=streamed)
    assert torch.equal(rows["image"], pixels_of(plain.train, torch.arange(task.count))["image"])
    for name in set(plain.train) - {"mask"}:  # boxes, and all else that is known
        assert torch.equal(task.train[name], plain.train[name]), name


@pytest.mark.parametrize("patch", [None, PATCH])
def test_batches_from_the_disk_are_those_from_memory(prepared: PreparedSet, patch: list[int] | None) -> None:
    found = []
    for streamed in (False, True):
        task = taught(task_of(prepared, patch=patch, streamed=streamed), prepared, folder(prepared))
        found.append(list(SegmentationData(task, 4, masks=True).train_dataloader()))
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        assert {"mask", "unsure"} <= one.keys()
        for name, tensor in one.items():
            assert torch.equal(tensor, other[name]), name
        assert one["unsure"].shape == (len(one["index"]), 1, *one["image"].shape[2:])
        assert not bool((one["unsure"] & one["mask"]).any())


def test_who_does_not_learn_from_labels_is_not_given_them(prepared: PreparedSet) -> None:
    for streamed in (False, True):
        task = taught(task_of(prepared, streamed=streamed), prepared, folder(prepared))
        batch = next(iter(SegmentationData(task, 4).train_dataloader()))
        assert not {"mask", "unsure"} & batch.keys()


def test_volumes_are_background_beyond_their_end(prepared: PreparedSet) -> None:
    task = taught(task_of(prepared, patch=[9, 30, 20]), prepared, folder(prepared))
    assert task.train["mask"].shape[2:] == (9, 30, 20)
    assert not bool(task.train["mask"][:, :, 6:].any() | task.train["unsure"][:, :, 6:].any())
    labels = np.stack(stored(prepared))
    assert torch.equal(task.train["unsure"][:, 0, :6, :24], torch.from_numpy(labels == UNSURE))


def test_labels_that_are_not_as_written_are_refused(prepared: PreparedSet, tmp_path: Path) -> None:
    assert labels_about(tmp_path) is None
    case = prepared.of("train")[0]
    alone = replace(prepared, cases=(case,))
    task = task_of(alone)
    labels = stored(prepared)[0]
    finish_labels(tmp_path, [write_labels(tmp_path, case, labels)], {})
    taught(task, alone, tmp_path)
    write_labels(tmp_path, case, np.zeros_like(labels))
    with pytest.raises(ValueError, match=r"case0\.npz is not the file that labels\.json describes: remove its"):
        taught(task, alone, tmp_path)
    finish_labels(tmp_path, [write_labels(tmp_path, case, np.full_like(labels, 3))], {})
    with pytest.raises(ValueError, match="labels of more than 2 classes"):
        taught(task, alone, tmp_path)
    finish_labels(tmp_path, [write_labels(tmp_path, case, labels[:-1])], {})
    with pytest.raises(ValueError, match="is damaged"):
        taught(task, alone, tmp_path)
    (tmp_path / case.file).unlink()
    for one in (task, task_of(alone, streamed=True)):
        with pytest.raises(FileNotFoundError, match=r"case0\.npz does not exist: remove its folder and go on"):
            taught(one, alone, tmp_path)
    (tmp_path / LABELS).write_text("{}")
    with pytest.raises(ValueError, match=r"labels\.json is damaged"):
        labels_about(tmp_path)
