"""On a GPU checks wait: nothing is read during a call, and the message still names constraint and rows.

The waiting is tested here on the CPU by telling checks that their tensors are elsewhere; test_gpu.py does it for real.
"""

from __future__ import annotations

import pickle

import pytest
import torch

import ringfence as rf
from ringfence.checks import CALLS_HELD, Check


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """Every check believes its tensors are on a GPU; the list holds those that were made."""
    made: list[Check] = []
    entries = Check.entries
    monkeypatch.setattr(Check, "on_cpu", property(lambda self: False))
    monkeypatch.setattr(Check, "entries", lambda self: (made.append(self), entries(self))[1])
    return made


def test_nothing_is_read_until_the_step(elsewhere: list[Check]) -> None:
    fence = rf.LogBarrier()
    size = torch.tensor([1.0, torch.nan], requires_grad=True)
    for _ in range(3):
        fence(size=rf.between(torch.zeros(2, requires_grad=True), 0.0, 1.0), place=torch.zeros(2))
    fence(size=rf.between(size, 0.0, 1.0), place=torch.zeros(2))
    assert elsewhere == []
    with pytest.raises(
        ValueError, match=r"constraint 'size' \(call 4 since the last check\): value is NaN or infinite in row 1"
    ):
        fence.step()
    assert fence.t == 5.0  # the step did not happen


def test_bounds_on_a_gpu_are_named_later(elsewhere: list[Check]) -> None:
    fence = rf.Penalty()
    fence(size=rf.between(torch.zeros(3), torch.tensor([0.0, 2.0, 3.0]), 1.0))
    with pytest.raises(ValueError, match=r"constraint 'size' \(call 1 .*low > high.* in rows 1, 2"):
        fence.step()


def test_a_wild_index_on_a_gpu_is_named_later_and_harms_nobody(elsewhere: list[Check]) -> None:
    fence = rf.Lagrangian(1.0, samples=3)
    fence(size=torch.ones(2, requires_grad=True), index=torch.tensor([1, 77]))
    with pytest.raises(ValueError, match=r"index \(call 1 .*sample out of range in row 1.*index=77"):
        fence.step()


def test_checks_are_made_after_some_calls_even_without_a_step(elsewhere: list[Check]) -> None:
    fence = rf.LogBarrier()
    for _ in range(CALLS_HELD - 1):
        fence(size=torch.tensor([torch.nan]))
    assert elsewhere == []
    with pytest.raises(ValueError, match="constraint 'size'"):
        fence(size=torch.tensor([0.0]))


def test_a_step_that_reported_starts_afresh(elsewhere: list[Check]) -> None:
    fence = rf.LogBarrier(t=2.0, mu=2.0)
    fence(size=torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="size"):
        fence.step()
    fence.step()
    assert fence.t == 4.0


def test_validate_checks_at_once(elsewhere: list[Check]) -> None:
    fence = rf.LogBarrier(validate=True)
    with pytest.raises(ValueError, match="constraint 'size': residual is NaN"):
        fence(size=torch.tensor([torch.nan]))


def test_a_fence_with_waiting_checks_can_be_pickled(elsewhere: list[Check]) -> None:
    fence = rf.LogBarrier()
    fence(size=rf.between(torch.zeros(3), torch.tensor([0.0, 2.0, 3.0]), 1.0))
    with pytest.raises(ValueError, match="low > high"):
        pickle.loads(pickle.dumps(fence)).step()


def test_many_bad_rows_are_counted_not_listed() -> None:
    with pytest.raises(ValueError, match=r"in rows 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. \(50 of 50 entries"):
        rf.LogBarrier()(size=torch.full((50,), torch.nan))
