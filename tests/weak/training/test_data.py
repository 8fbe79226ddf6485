"""Batches: every row once, in an order that depends on seed and epoch alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.training.data import Batches


@given(count=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 500))
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
