"""How ranks share batches: everything once, in parts of one size, and somebody who stands in where nothing is left."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.training.loading.data import Batches
from ringfence.weak.training.loading.shards import Order, share


@given(rows=st.integers(0, 40), ranks=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_shares_are_contiguous_and_their_sizes_differ_by_one_at_most(rows: int, ranks: int) -> None:
    numbers = torch.arange(rows) * 7
    shares = [share(numbers, rank, ranks) for rank in range(ranks)]
    assert torch.equal(torch.cat(shares), numbers)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(count=st.integers(1, 30), size=st.integers(1, 12), ranks=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_ranks_together_have_every_batch_of_one(count: int, size: int, ranks: int, seed: int) -> None:
    rows = {"square": torch.arange(count) ** 2}
    alone = list(Batches(rows, Order(count, size, seed)))
    everyones = [list(Batches(rows, Order(count, size, seed, rank=rank, ranks=ranks))) for rank in range(ranks)]
    assert {len(batches) for batches in everyones} == {len(alone)}
    for whole, *parts in zip(alone, *everyones, strict=True):
        there = [part for part in parts if "ghost" not in part]
        for name in ("index", "key", "square"):
            assert torch.equal(torch.cat([part[name] for part in there]), whole[name])
        for part in parts:
            assert int(part["rows"]) == len(whole["index"])
            if "ghost" in part:
                assert bool(part["ghost"])
                assert part["index"].tolist() == whole["index"][:1].tolist()
        assert len(there) == min(ranks, len(whole["index"]))
