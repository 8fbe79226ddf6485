"""Batches: every row once, in an order that depends on seed and epoch alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.settings import DiscSettings
from ringfence.weak.training.loading.data import VALIDATION_BATCH, Batches, Samples, SegmentationData


@given(count=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_every_row_comes_once_with_its_number(count: int, size: int, seed: int, epoch: int) -> None:
    rows = {"square": torch.arange(count) ** 2, "pair": torch.arange(2 * count).view(count, 2)}
    batches = list(Batches(rows, size, seed, lambda: epoch))
    assert len(batches) == len(Batches(rows, size, seed)) == -(-count // size)
    index = torch.cat([batch["index"] for batch in batches])
    assert sorted(index.tolist()) == list(range(count))
    assert torch.equal(torch.cat([batch["square"] for batch in batches]), index**2)
    assert torch.equal(torch.cat([batch["pair"] for batch in batches])[:, 1], 2 * index + 1)


def test_the_order_is_that_of_the_seed_and_the_epoch() -> None:
    def order(seed: int | None, epoch: int) -> list[int]:
        return torch.cat(
            [batch["index"] for batch in Batches({"x": torch.zeros(50)}, 7, seed, lambda: epoch)]
        ).tolist()

    assert order(None, 3) == list(range(50))
    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_an_order_does_not_touch_the_global_random_numbers() -> None:
    before = torch.get_rng_state()
    list(Batches({"x": torch.zeros(50)}, 7, seed=3))
    assert torch.equal(before, torch.get_rng_state())


def test_batches_may_go_elsewhere_than_where_rows_are() -> None:
    batches = Batches({"x": torch.arange(4)}, 2, device=torch.device("meta"))
    assert all(tensor.device.type == "meta" for batch in batches for tensor in batch.values())


def test_samples_are_a_dataset_for_a_loader_of_ones_own() -> None:
    task = disc_task(DiscSettings(size=32, train=5, validation=3), seed=0)
    samples = Samples(task.train)
    assert len(samples) == 5
    assert samples[3].keys() == task.train.keys() | {"index"}
    assert torch.equal(samples[3]["image"], task.train["image"][3])
    assert torch.equal(samples[-1]["image"], task.train["image"][4])
    batches = list(torch.utils.data.DataLoader(samples, batch_size=2))
    assert [batch["index"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert torch.equal(torch.cat([batch["size_low"] for batch in batches]), task.train["size_low"])
    for number in (5, -6):
        with pytest.raises(IndexError, match=f"sample {number} of 5"):
            samples[number]


@pytest.mark.parametrize("masks", [False, True])
def test_training_sees_masks_only_if_it_learns_from_them(masks: bool) -> None:
    task = disc_task(DiscSettings(size=32, train=5, validation=60), seed=0)
    data = SegmentationData(task, batch_size=2, seed=1, masks=masks)
    batches = list(data.train_dataloader())
    assert [len(batch["image"]) for batch in batches] == [2, 2, 1]
    assert all(("mask" in batch) == masks for batch in batches)
    shown = list(data.val_dataloader())
    assert [len(batch["mask"]) for batch in shown] == [VALIDATION_BATCH, 10]
    assert torch.cat([batch["index"] for batch in shown]).tolist() == list(range(60))


def test_volumes_are_validated_in_batches_as_in_training() -> None:
    task = disc_task(DiscSettings(size=16, train=2, validation=5), seed=0)
    flat = {
        name: tensor[:, :, None] if name in ("image", "mask") else tensor
        for name, tensor in task.validation.items()
    }
    volumes = type(task)(task.train, flat, ("a",), ("b",), (1, 16, 16), {}, task.preprocessing)
    assert [len(batch["image"]) for batch in SegmentationData(volumes, batch_size=2).val_dataloader()] == [2, 2, 1]
