"""Streaming: bit for bit the batches of a set in memory; and what is said when it cannot go on."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from prepared_sets import make_prepared
from ringfence import weak
from ringfence.weak.prepared import Case, PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.tasks.task import Task
from ringfence.weak.training.loading.data import Batches, Samples, SegmentationData
from ringfence.weak.training.loading.streaming import ReadingFailed, StreamedBatches, check_stream, memory_words
from ringfence.weak.training.settings import TrainingSettings

PATCHES: dict[str, list[int] | None] = {"slices": None, "patches": [4, 16, 16], "larger": [8, 30, 16]}


def task_of(folder: Path, streamed: str, patch: list[int] | None = None, workers: int = 0) -> Task:
    data = BoxDataSettings(prepared=str(folder), streamed=streamed, workers=workers, patch=patch)
    return box_task(data, {"outside": {}, "strips": {}})


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Task, Task]]:
    folder = tmp_path_factory.mktemp("set")
    make_prepared(folder, cases=5, classes=2, channels=2, shape=(6, 24, 20))
    return {
        name: (task_of(folder, "never", patch), task_of(folder, "always", patch)) for name, patch in PATCHES.items()
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert torch.equal(tensor, other[name]), name


@given(
    kind=st.sampled_from(list(PATCHES)),
    size=st.integers(1, 12),
    seed=st.integers(0, 100),
    epoch=st.integers(0, 100),
    ranks=st.integers(1, 3),
    masks=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_from_the_disk_are_those_from_memory(
    tasks: dict[str, tuple[Task, Task]], kind: str, size: int, seed: int, epoch: int, ranks: int, masks: bool
) -> None:
    kept, streamed = tasks[kind]
    for rank in range(ranks):
        datas = [
            SegmentationData(one, size, seed=seed, masks=masks, rank=rank, ranks=ranks) for one in (kept, streamed)
        ]
        for data in datas:
            data._epoch = lambda: epoch
        pairs = [[data.train_dataloader() for data in datas], [data.val_dataloader() for data in datas]]
        for here, there in pairs:
            assert isinstance(here, Batches)
            assert isinstance(there, StreamedBatches)
            assert len(here) == len(there)
            for one, other in zip(here, there, strict=True):
                same(one, other)
                assert one["image"].shape[2:] == kept.space


@pytest.mark.parametrize("kind", ["slices", "patches"])
def test_workers_read_the_same_and_stay_from_epoch_to_epoch(tasks: dict[str, tuple[Task, Task]], kind: str) -> None:
    kept, streamed = tasks[kind]
    object.__setattr__(streamed, "workers", 2)
    try:
        before = torch.get_rng_state()
        datas = [SegmentationData(one, 4, seed=1, masks=True) for one in (kept, streamed)]
        seen, workers, now = [], set(), [0]
        for data in datas:
            data._epoch = lambda: now[0]
        for epoch in range(3):
            now[0] = epoch
            loader = datas[1].train_dataloader()
            if epoch == 1:
                next(iter(loader))  # begun and left, as who records CUDA graphs does
            for one, other in zip(datas[0].train_dataloader(), loader, strict=True):
                same(one, other)
                seen.append(tuple(one["index"].tolist()))
            workers |= set(loader._loader._iterator._workers)
        assert len(workers) == 2
        assert len(set(seen)) > len(seen) / 2
        assert torch.equal(before, torch.get_rng_state())
        datas[1].teardown("fit")
        assert {worker.exitcode for worker in workers} == {0}  # at once, and not by a signal when time was up
    finally:
        object.__setattr__(streamed, "workers", 0)


@pytest.mark.parametrize(("patch", "way"), [(None, ("always", "never")), ([4, 16, 16], ("never", "always"))])
def test_the_model_is_the_same_from_disk_and_memory_and_when_resumed_from_the_other(
    tmp_path: Path, patch: list[int] | None, way: tuple[str, str]
) -> None:
    make_prepared(tmp_path / "set", cases=3)
    path = f"torch.nn.Conv{2 if patch is None else 3}d"
    training = TrainingSettings(epochs=2, batch_size=4, device="cpu", keep_checkpoint=True)
    begun = replace(
        weak.from_preset(weak.TrainSettings, "boxes"),
        network=weak.NetworkSettings(path, {"kernel_size": 3, "padding": 1}),
        schedule=weak.ScheduleSettings(None),
    )
    models = []
    for number, streamed in enumerate((("never", "never"), way)):
        for epochs, one in enumerate(streamed, start=1):
            asked = replace(
                begun,
                training=replace(training, epochs=epochs),
                data=BoxDataSettings(prepared=str(tmp_path / "set"), streamed=one, workers=0, patch=patch),
            )
            done = weak.train(asked, tmp_path / str(number), resume=epochs > 1, console=Console(quiet=True))
        models.append(done.model_file.read_bytes())
    assert models[0] == models[1]


def test_samples_of_ones_own_loader_are_read_from_the_disk(tasks: dict[str, tuple[Task, Task]]) -> None:
    kept, streamed = (Samples(one.train) for one in tasks["slices"])
    assert len(kept) == len(streamed) == 24
    for number in (0, 7, -1):
        same(kept[number], streamed[number])
    with pytest.raises(ValueError, match=r"of volumes on the disk, patches are read: by SegmentationData"):
        Samples(tasks["patches"][1].train)


def test_what_is_resident_can_be_gathered_by_others(tasks: dict[str, tuple[Task, Task]]) -> None:
    kept, streamed = tasks["slices"]
    data = SegmentationData(kept, 5, seed=2)
    rows = data.resident("train")
    assert rows is not None
    assert "mask" not in rows
    whole = list(data.train_dataloader())
    data.numbers_only = True
    for numbers, batch in zip(data.train_dataloader(), whole, strict=True):
        assert set(numbers) == {"index", "key", "rows"}
        same({**{name: tensor[numbers["index"]] for name, tensor in rows.items()}, **numbers}, batch)
    assert SegmentationData(streamed, 5).resident("train") is None
    assert SegmentationData(tasks["patches"][0], 5).resident("train") is None


def test_a_worker_that_is_killed_ends_it_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.3)  # seconds between looks: 5
    make_prepared(tmp_path, cases=4)
    loader = SegmentationData(task_of(tmp_path, "always", workers=2), 1).train_dataloader()
    assert isinstance(loader, StreamedBatches)
    batches = iter(loader)
    next(batches)
    os.kill(loader._loader._iterator._workers[1].pid, signal.SIGKILL)
    with pytest.raises(ReadingFailed) as raised:
        list(batches)
    said = str(raised.value)
    assert said.startswith("a process that reads images has died (")
    assert "data.workers, now 2; 0 reads without any" in said
    assert "--resume" in said
    assert "\n" not in said
    del raised, batches, loader  # now, while looks are short: its end waits for the dead
    gc.collect()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_changes_or_goes_ends_it_in_a_line(tmp_path: Path, workers: int) -> None:
    make_prepared(tmp_path, cases=2, shape=(40, 24, 20))
    task = task_of(tmp_path, "always", workers=workers)
    loader = SegmentationData(task, 1).train_dataloader()
    batches = iter(loader)
    next(batches)
    path = tmp_path / "case0.npz"
    kept = path.read_bytes()
    (tmp_path / "half").write_bytes(kept[: len(kept) // 2])
    (tmp_path / "half").replace(path)  # at once: a worker that is reading it has the whole one
    with pytest.raises(ReadingFailed, match=r"case0\.npz has changed since it was checked") as raised:
        list(batches)
    assert "\n" not in str(raised.value)
    path.unlink()
    with pytest.raises(ReadingFailed, match=r"case0\.npz does not exist: it was there when training began$"):
        list(loader)


def test_too_little_shared_memory_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_prepared(tmp_path)
    task = task_of(tmp_path, "always", workers=2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=10))
    with pytest.raises(ReadingFailed, match=r"of shared memory, and /dev/shm has 10 bytes left: .*data.workers: 0"):
        next(iter(SegmentationData(task, 8).train_dataloader()))


def test_what_memory_is_needed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_prepared(tmp_path, cases=4, shape=(6, 100, 100))
    kept, streamed = (task_of(tmp_path, how) for how in ("never", "always"))
    assert memory_words(kept, 8).startswith("images in memory: 48")  # 4 · 6 · 100 · 100 · 2 bytes, and targets
    assert memory_words(streamed, 8).startswith("streamed from the disk: 480 kB of images, ")
    check_stream(kept, 8)
    check_stream(streamed, 8)
    monkeypatch.setenv("RINGFENCE_MEMORY", "100kB")
    with pytest.raises(
        ValueError, match="streaming takes .* of memory .* and the limit is 100 kB: make training.batch"
    ):
        check_stream(streamed, 8)


def test_a_streamed_set_takes_a_case_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_prepared(tmp_path, cases=6)
    load, images, most = PreparedSet.load, [], []

    def counted(self: PreparedSet, case: Case) -> Any:
        found = load(self, case)
        images.append(weakref.ref(found[0]))
        most.append(sum(one() is not None for one in images))
        return found

    monkeypatch.setattr(PreparedSet, "load", counted)
    task_of(tmp_path, "always")
    assert len(most) == 6
    assert max(most) <= 2  # the new one, and the one before, until it takes its place
