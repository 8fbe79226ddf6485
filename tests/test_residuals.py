"""Residuals against their definition entry by entry, their masks and scales, and what they say of themselves."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringfence as rf

INF = math.inf


def test_between_is_below_and_above_on_a_last_dimension() -> None:
    residual = rf.between(torch.tensor([3.0, 7.0]), 0.0, 5.0)
    assert residual.f.tolist() == [[-3.0, -2.0], [-7.0, 2.0]]
    assert residual.violation.tolist() == [[0.0, 0.0], [0.0, 2.0]]
    assert residual.satisfied().tolist() == [[True, True], [True, False]]
    assert residual.satisfied(tol=2.0).all()


def test_one_sided_and_equal() -> None:
    value = torch.tensor([1.0, 4.0])
    assert rf.at_most(value, 3.0).f.tolist() == [-2.0, 1.0]
    assert rf.at_least(value, 3.0).f.tolist() == [2.0, -1.0]
    assert rf.equal(value, 3.0, 0.5).f.tolist() == [[1.5, -2.5], [-1.5, 0.5]]


@given(
    value=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    low=st.floats(-1e3, 1e3),
    width=st.floats(0, 1e3),
    scale=st.floats(1e-2, 1e2),
)
@settings(max_examples=100, deadline=None)
def test_satisfied_is_exactly_low_le_value_le_high(
    value: list[float], low: float, width: float, scale: float
) -> None:
    high = low + width
    values = torch.tensor(value, dtype=torch.float64)
    both = rf.between(values, low, high).satisfied().all(dim=-1)
    assert both.tolist() == [low <= one <= high for one in value]
    scaled = rf.between(values, low, high, scale=scale).satisfied().all(dim=-1)
    # what Python's floats say: 5e-324 / 2 is 0
    assert scaled.tolist() == [(low - one) / scale <= 0.0 >= (one - high) / scale for one in value]


def test_bounds_broadcast_over_values() -> None:
    value = torch.arange(6.0).view(3, 2)
    per_row, per_column = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 4.0])
    residual = rf.between(value, -per_row, per_column)
    for row in range(3):
        for column in range(2):
            below = -per_row[row, 0] - value[row, column]
            above = value[row, column] - per_column[column]
            assert residual.f[row, column].tolist() == [below, above]


def test_integer_bounds_are_numbers_too() -> None:
    assert rf.at_most(torch.tensor([1.5]), torch.tensor([1])).f.item() == 0.5
    assert rf.at_most(torch.tensor([1.5]), 1).f.item() == 0.5


def test_infinite_bounds_and_masks_constrain_nothing() -> None:
    value = torch.tensor([1.0, 9.0, 5.0, float("nan")], requires_grad=True)
    residual = rf.between(
        value,
        torch.tensor([0.0, -INF, 6.0, 0.0]),
        torch.tensor([INF, 8.0, 7.0, 1.0]),
        mask=torch.tensor([True, True, False, False]),
    )
    assert residual.present.tolist() == [[True, False], [False, True], [False, False], [False, False]]
    assert residual.satisfied().tolist() == [[True, True], [True, False], [True, True], [True, True]]
    assert residual.violation.tolist() == [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    present = torch.tensor([-1.0, 1.0])  # the two that are left: 0 - 1 and 9 - 8
    for make in (
        rf.LogBarrier,
        rf.Penalty,
        partial(rf.Lagrangian, same_rows=True, initial=2.0),
        partial(rf.AugmentedLagrangian, same_rows=True),
    ):
        loss = make()(a=residual)
        (gradient,) = torch.autograd.grad(loss, value, retain_graph=True)
        torch.testing.assert_close(loss, make()(a=present))
        assert gradient[2:].tolist() == [0.0, 0.0]


def test_a_masked_row_may_have_nonsense_bounds() -> None:
    empty = rf.between(
        torch.ones(2), torch.tensor([0.0, INF]), torch.tensor([2.0, -INF]), mask=torch.tensor([True, False])
    )
    assert empty.satisfied().all()


def test_a_masked_row_may_have_no_scale() -> None:
    value = torch.tensor([1.0, 1.0], requires_grad=True)
    residual = rf.at_most(value, 0.0, scale=torch.tensor([1.0, 0.0]), mask=torch.tensor([True, False]))
    (gradient,) = torch.autograd.grad(rf.LogBarrier(t=5.0)(a=residual), value)
    assert gradient.tolist() == [5.0, 0.0]


def test_numpy_numbers_are_numbers() -> None:
    assert rf.between(torch.ones(1), np.float32(0.0), np.int64(2)).f.tolist() == [[-1.0, -1.0]]
    assert rf.LogBarrier(t=np.float64(2.0)).t == 2.0


def test_scale_divides_and_may_differ_by_row() -> None:
    value = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    assert rf.at_most(value, 0.0, scale=10.0).f.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    per_row = rf.between(value, 0.0, 10.0, scale=torch.tensor([[10.0], [100.0]]))
    assert per_row.f.tolist() == [
        [pytest.approx([-1.0, 0.0]), pytest.approx([-2.0, 1.0])],
        [pytest.approx([-0.3, 0.2]), pytest.approx([-0.4, 0.3])],
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_values_are_compared_in_float32(dtype: torch.dtype) -> None:
    value = torch.tensor([60000.0, 1024.0], dtype=dtype)
    residual = rf.at_most(value, torch.tensor([-60000.0, 1023.9]))
    assert residual.f.dtype == torch.float32
    assert torch.isfinite(residual.f).all()
    torch.testing.assert_close(residual.f, value.float() - torch.tensor([-60000.0, 1023.9]))


def test_gradients_reach_value_and_bounds() -> None:
    value = torch.randn(4, dtype=torch.float64, requires_grad=True)
    low = torch.full((4,), -5.0, dtype=torch.float64, requires_grad=True)
    high = torch.full((4,), 5.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, lo, hi: rf.between(v, lo, hi, scale=3.0).f, (value, low, high))


@pytest.mark.parametrize(
    ("residual", "text"),
    [
        (rf.between(torch.tensor([3.0, 7.0]), 0.0, 5.0), "Residual [2, 2]: 3 of 4 constraints satisfied, worst violation 2 at [1] (above high)"),
        (rf.between(torch.tensor([-3.0]), 0.0, 5.0), "Residual [1, 2]: 1 of 2 constraints satisfied, worst violation 3 at [0] (below low)"),
        (rf.at_most(torch.tensor([[1.0, 2.5]]), 3.0), "Residual [1, 2]: 2 of 2 constraints satisfied, closest to its bound by 0.5"),
        (rf.at_least(torch.tensor([1.0]), -INF), "Residual [1]: nothing constrained"),
        (rf.at_most(torch.tensor(4.0), 3.0), "Residual []: 0 of 1 constraint satisfied, worst violation 1 at []"),
    ],
)  # fmt: skip
def test_prints_readably(residual: rf.Residual, text: str) -> None:
    assert str(residual) == repr(residual) == text
