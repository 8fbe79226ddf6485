"""What is known of the data points that a mini-batch does not have, against a dictionary."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.methods.multipliers.latest import Latest

calls = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-8, 8), st.booleans()), max_size=6), min_size=1, max_size=12
)


@settings(deadline=None)
@given(calls, st.sampled_from([None, 10]), st.lists(st.integers(0, 9), max_size=5), st.booleans())
def test_the_others_are_everybody_but_those_of_the_call(
    calls: list[list[Any]], samples: int | None, asked: list[int], saved: bool
) -> None:
    """With repeated data points, masks, tables that grow, and a state in between."""
    latest = Latest("a", 1, samples)
    known: dict[int, list[tuple[int, bool]]] = {}
    for call in calls:
        for row in {row for row, _, _ in call}:
            known[row] = [(value, there) for other, value, there in call if other == row]
        index = torch.tensor([row for row, _, _ in call], dtype=torch.int64)
        there = torch.tensor([[float(there)] for _, _, there in call]).reshape(-1, 1)
        v = torch.tensor([[float(value)] for _, value, _ in call]).reshape(-1, 1) * there
        latest.put(index, v, there)
        if saved:
            tensors = {name: one.clone() for name, one in latest.tensors().items()}
            latest = Latest("a", 1, samples)
            latest.restore(tensors)
    rest = [one for row, seen in known.items() if row not in asked for one in seen]
    sums, counts = latest.others(torch.tensor(asked, dtype=torch.int64))
    assert sums.tolist() == [sum(value for value, there in rest if there)]
    assert counts.tolist() == [sum(there for _, there in rest)]
