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
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every check believes its tensors are on a GPU; the list holds those that were read all the same."""
    read: list[str] = []
    enforce = Check.enforce
    monkeypatch.setattr(Check, "on_cpu", property(lambda self: False))
    monkeypatch.setattr(Check, "enforce", lambda self, where: (read.append(where), enforce(self, where))[1])
    return read


def test_nothing_is_read_until_the_step(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier()
    size = torch.tensor([1.0, torch.nan], requires_grad=True)
    for _ in range(3):
        fence(size=rf.between(torch.zeros(2, requires_grad=True), 0.0, 1.0), place=torch.zeros(2))
    fence(size=rf.between(size, 0.0, 1.0), place=torch.zeros(2))
    assert elsewhere == []
    with pytest.raises(
        ValueError,
        match=r"constraint 'size' \(call 4 since the last check\): residual is NaN or infinite in row 1\.",
    ):
        fence.step()
    assert fence.t == 5.0  # the step did not happen


def test_what_happens_to_a_tensor_later_does_not_matter(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier()
    good, bad = torch.zeros(2), torch.tensor([0.0, torch.nan])
    fence(a=good, b=torch.zeros(2))
    good.fill_(torch.nan)  # an optimiser's step in place, a reused output buffer
    fence.step()
    fence(a=bad, b=torch.zeros(2))
    bad.zero_()
    with pytest.raises(ValueError, match=r"constraint 'a' .* in row 1"):
        fence.step()


def test_a_fault_does_not_reach_the_multipliers(elsewhere: list[str]) -> None:
    fence = rf.Lagrangian(1.0, same_rows=True)
    fence(a=torch.tensor([torch.nan, 1.0], requires_grad=True))
    with pytest.raises(ValueError, match="constraint 'a'"):
        fence.step()
    fence(a=torch.tensor([2.0, 1.0], requires_grad=True))
    fence.step()
    assert fence.multipliers["a"].tolist() == [2.0, 1.0]


def test_bounds_on_a_gpu_are_named_later(elsewhere: list[str]) -> None:
    fence = rf.Penalty()
    fence(size=rf.between(torch.zeros(3), torch.tensor([0.0, 2.0, 3.0]), 1.0))
    with pytest.raises(ValueError, match=r"constraint 'size' \(call 1 .*low > high.* in rows 1, 2"):
        fence.step()


def test_checks_are_made_after_some_calls_even_without_a_step(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier()
    for _ in range(CALLS_HELD - 1):
        fence(size=torch.tensor([torch.nan]))
    assert elsewhere == []
    with pytest.raises(ValueError, match="constraint 'size'"):
        fence(size=torch.tensor([0.0]))


def test_a_step_that_reported_starts_afresh(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier(t=2.0, mu=2.0)
    fence(size=torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="size"):
        fence.step()
    fence.step()
    assert fence.t == 4.0


def test_validate_checks_at_once(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier(validate=True)
    with pytest.raises(ValueError, match="constraint 'size': residual is NaN"):
        fence(size=torch.tensor([torch.nan]))


def test_validate_false_leaves_values_unlooked_at() -> None:
    fence = rf.Lagrangian(samples=3, validate=False)
    fence(size=torch.tensor([torch.nan]), index=torch.tensor([1]))
    fence.step()
    with pytest.raises(ValueError, match="index= is missing"):  # what costs nothing is still checked
        fence(size=torch.zeros(1))


def test_a_fence_with_waiting_checks_can_be_pickled(elsewhere: list[str]) -> None:
    fence = rf.LogBarrier()
    fence(size=rf.between(torch.zeros(3), torch.tensor([0.0, 2.0, 3.0]), 1.0))
    with pytest.raises(ValueError, match="low > high"):
        pickle.loads(pickle.dumps(fence)).step()


def test_many_bad_rows_are_counted_not_listed() -> None:
    with pytest.raises(ValueError, match=r"in rows 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. \(50 of 50 entries"):
        rf.LogBarrier()(size=torch.full((50,), torch.nan))
