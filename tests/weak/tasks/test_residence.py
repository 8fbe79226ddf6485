"""In memory or on the disk: what decides it, what it takes, and that the samples are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prepared_sets import described_anew, make_prepared
from ringfence.weak.prepared import PreparedSet
from ringfence.weak.tasks import residence
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.residence import allowance, resident_bytes, streams
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import PIXELS, StreamedRows, pixels_of

PATCHES: list[list[int] | None] = [None, [4, 16, 16], [8, 30, 7]]


def task_of(prepared: PreparedSet, streamed: str, **data: Any) -> Task:
    return box_task(
        BoxDataSettings(prepared=str(prepared.path), streamed=streamed, **data), {"strips": {}, "outside": {}}
    )


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("cases", [1, 4])  # one: it is trained on and judged by
def test_what_a_set_takes_is_what_its_tensors_have(tmp_path: Path, patch: list[int] | None, cases: int) -> None:
    prepared = make_prepared(tmp_path, cases=cases, channels=2, classes=3)
    if cases == 1:
        prepared = described_anew(_for_training(prepared))
    task = task_of(prepared, "never", patch=patch)
    held = sum(
        tensor.nbytes for rows in (task.train, task.validation) for name, tensor in rows.items() if name in PIXELS
    )
    assert held == resident_bytes(prepared, None if patch is None else (patch[0], patch[1], patch[2]))


def _for_training(prepared: PreparedSet) -> PreparedSet:
    return replace(prepared, cases=tuple(replace(case, split="train") for case in prepared.cases))


def test_a_set_is_streamed_if_memory_cannot_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = make_prepared(tmp_path, cases=4, shape=(6, 24, 20), classes=2, channels=3)
    needed = 4 * 6 * 24 * 20 * (3 + 2)
    assert resident_bytes(prepared) == needed
    for limit, expected in ((needed, False), (needed - 1, True)):
        monkeypatch.setenv("RINGFENCE_MEMORY", str(limit))
        assert streams(prepared, "auto") == expected
        assert streams(prepared, "always")
    with pytest.raises(
        ValueError,
        match=r"takes 57.6 kB of memory, and 57.6 kB can be used for it: stream it .*RINGFENCE_MEMORY=2GB",
    ):
        streams(prepared, "never")
    monkeypatch.setenv("RINGFENCE_MEMORY", "1GB")
    assert not streams(prepared, "never")
    monkeypatch.setattr(residence, "available", lambda: 2 * needed - 2)  # half of what is free
    assert streams(prepared, "auto")


def test_ranks_of_a_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_MEMORY", "1MB")
    alone = allowance()
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert allowance() == alone // 2 == 500_000


@pytest.mark.parametrize("patch", PATCHES)
def test_streamed_samples_are_those_in_memory(tmp_path: Path, patch: list[int] | None) -> None:
    prepared = make_prepared(tmp_path, classes=2, channels=2, masked=False)
    (tmp_path / "boxes.csv").write_text(
        "case,slice,class,row_low,row_high,column_low,column_high\n"
        + "\n".join(f"{case.name},2,class {one},4,12,5,15" for case in prepared.cases for one in (1, 2))
    )
    boxes = str(tmp_path / "boxes.csv")
    kept = task_of(prepared, "never", patch=patch, boxes=boxes)
    streamed = task_of(prepared, "always", patch=patch, boxes=boxes)
    assert streamed.streamed
    assert not kept.streamed
    assert (streamed.count, streamed.names) == (kept.count, kept.names)
    for one, other in ((kept.train, streamed.train), (kept.validation, streamed.validation)):
        assert isinstance(other, StreamedRows)
        assert other.keys() == one.keys() - set(PIXELS)
        assert all(torch.equal(one[name], other[name]) for name in other)
        if patch is None or one is kept.validation:
            numbers = torch.tensor([len(one["image"]) - 1, 0, 0])
            found, expected = pixels_of(other, numbers), pixels_of(one, numbers)
            assert found.keys() == expected.keys() == one.keys() & set(PIXELS)
            assert all(torch.equal(found[name], expected[name]) for name in found)
    assert streamed.pictured(3) == kept.pictured(3)
    with pytest.raises(KeyError, match="'image' is on the disk: pixels"):
        streamed.train["image"]


def test_a_packed_set_of_an_older_version_is_read_into_memory_alone(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    plain = task_of(prepared, "never")
    for case in prepared.cases:
        with np.load(tmp_path / case.file) as stored:
            held = dict(stored)
        np.savez_compressed(tmp_path / case.file, **held)
    prepared = described_anew(prepared)
    packed = task_of(prepared, "auto")
    assert torch.equal(plain.train["image"], packed.train["image"])
    with pytest.raises(
        ValueError, match=r"packed, and cannot be streamed from the disk. Prepare it again, into a new"
    ):
        task_of(prepared, "always")


def test_a_file_that_is_not_the_manifests_is_refused_when_streamed_too(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path)
    with np.load(tmp_path / "case1.npz") as stored:
        np.savez(tmp_path / "case1.npz", image=255 - stored["image"], mask=stored["mask"])
    with pytest.raises(ValueError, match=r"case1.npz is not the file that manifest.json describes"):
        task_of(prepared, "always")
