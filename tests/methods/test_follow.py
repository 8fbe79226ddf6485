"""What a CUDA graph records of a fence: ``term`` and ``replayed`` in place of calls; the same losses, the same λ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.methods import Method

ROWS, STEPS = 6, 4
HERE = torch.device("cpu")
MAKERS: dict[str, Callable[[], Method]] = {
    "barrier": lambda: rf.LogBarrier(2.0, 1.5),
    "barrier by name": lambda: rf.LogBarrier({"a": 2.0, "b": 3.0, "c": 4.0}, 1.5),
    "penalty": lambda: rf.Penalty(2.0, 1.5),
    "linear penalty": lambda: rf.Penalty(2.0, 1.5, power=1),
    "Lagrangian": lambda: rf.Lagrangian(0.3, initial=0.5, samples=ROWS),
    "Lagrangian, shared": lambda: rf.Lagrangian(0.3, initial=0.5, shared=True),
    "ReLU": lambda: rf.ReLULagrangian(0.3, initial=0.5, samples=ROWS),
    "ReLU, shared": lambda: rf.ReLULagrangian(0.3, initial=0.5, shared=True),
    "ReLU, at intervals": lambda: rf.ReLULagrangian(0.3, 2, 1, initial=0.5, shared=True),
    "augmented": lambda: rf.AugmentedLagrangian(0.5, 2.0, initial=0.5, samples=ROWS, weights={"b": 3.0}),
}


def residuals(x: Tensor, index: Tensor) -> dict[str, rf.Residual]:
    """One-sided, two-sided with rows that come and go, and an equality."""
    mask = ((index[:, None] + torch.arange(2, device=x.device)) % 3 > 0).expand_as(x)
    return {
        "a": rf.at_most(x[:, 0], 0.2),
        "b": rf.between(x, -0.5, 0.5, mask=mask),
        "c": rf.equal(x[:, 1], 0.1, 0.05),
    }


def batches() -> list[tuple[Tensor, Tensor]]:
    """Each data point once in most steps; some see a part of them."""
    random = torch.Generator().manual_seed(3)
    found = []
    for step in range(STEPS):
        order = torch.randperm(ROWS, generator=random)[: ROWS - step % 2]
        found += [(torch.randn(len(some), 2, generator=random), some) for some in order.split(3)]
    return found


def same_state(fence: Method, expected: dict[str, Tensor]) -> None:
    """Counts may be one a row, or one an entry."""
    found = fence.state_dict()
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        if isinstance(one, Tensor):
            torch.testing.assert_close(*torch.broadcast_tensors(found[name].cpu(), one), msg=name)


@pytest.mark.filterwarnings("ignore:.*shared=True.*several calls")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("method", MAKERS)
def test_terms_that_follow_are_calls(method: str, device: str) -> None:
    called, followed, there = MAKERS[method](), MAKERS[method](), torch.device(device)
    x, index = (one.to(there) for one in batches()[0])
    with torch.no_grad():
        followed(index=index, **residuals(x, index))
    assert followed.follow(there)
    for place, (x, index) in enumerate(batches()):
        gradients = []
        for fence in (called, followed):
            rows = index if fence is called else index.to(there)
            leaf = x.clone().to(rows.device).requires_grad_()
            found = residuals(leaf, rows)
            if fence is called:
                loss = fence(index=rows, **found)
            else:
                loss = fence.term(found, rows)
                fence.note(found, rows)
                fence.replayed()
            loss.backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(gradients[1].cpu(), gradients[0])
        if place % 2:
            called.step()
            followed.step()
    followed.follow(None)
    same_state(followed, called.state_dict())


@pytest.mark.parametrize("method", ["Lagrangian", "Lagrangian, shared", "augmented"])
def test_trying_out_leaves_no_trace(method: str) -> None:
    """A recording computes the term some times before it is replayed; what that wrote can be put back."""
    fence = MAKERS[method]()
    x, index = batches()[0]
    fence(index=index, **residuals(x.requires_grad_(), index))  # seen, and not stepped yet
    before = fence.state_dict()
    fence.follow(HERE)
    saved = [one.clone() for one in fence.followed()]
    for other, rows in batches()[1:3]:
        fence.term(residuals(other, rows), rows)
        fence.note(residuals(other, rows), rows)
    for one, value in zip(fence.followed(), saved, strict=True):
        one.copy_(value)
    fence.follow(None)
    same_state(fence, before)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("method", ["Lagrangian", "ReLU", "augmented"])
def test_a_data_point_in_several_rows_counts_with_their_mean(method: str, device: str) -> None:
    x, _ = batches()[0]
    rows = torch.tensor([[4, 0], [1, 0], [4, 0]], device=device)[:, 0]  # a column of something
    called, followed = MAKERS[method](), MAKERS[method]()
    called(index=rows.cpu(), **residuals(x.requires_grad_(), rows.cpu()))
    there = residuals(x.detach().to(device), rows)
    with torch.no_grad():
        followed(index=rows, **there)
    assert followed.follow(torch.device(device))
    followed.note(there, rows)
    followed.replayed()
    called.step()
    followed.step()
    for name, one in called.multipliers.items():
        torch.testing.assert_close(followed.multipliers[name].cpu(), one)


def test_a_shorter_interval_counts_from_the_call_before() -> None:
    """While it follows, as if it did not: what was seen before is not what the dual step goes by."""
    fences = [rf.ReLULagrangian(1.0, interval=10, shared=True) for _ in range(2)]
    high, low = (torch.full((2, 1), value) for value in (8.0, 0.0))
    for fence in fences:
        with torch.no_grad():
            fence(a=high)
    assert fences[1].follow(HERE)
    for step, x in enumerate((high, high, high, low)):
        for fence in fences:
            if step == 3:
                fence.interval = 4
            found = {"a": rf.at_most(x.clone().requires_grad_(), 0.0)}
            if fence is fences[1]:
                fence.term(found)
                fence.note(found)
                fence.replayed()
            else:
                fence(**found)
            fence.step()
    assert [float(fence.multipliers["a"]) for fence in fences] == [0.0, 0.0]


def test_tables_that_grow_cannot_be_followed() -> None:
    fence = rf.Lagrangian(0.3)
    x, index = batches()[0]
    fence(index=index, **residuals(x, index))
    assert not fence.follow(HERE)
    loss = fence(index=index, **residuals(x, index))  # as before
    assert torch.isfinite(loss)
    assert not rf.Lagrangian(0.3, samples=ROWS).follow(HERE), "nothing is known of it yet"
