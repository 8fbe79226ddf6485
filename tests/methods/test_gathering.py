"""Multipliers that one kernel looks up and applies: here by plain operations in its place, since it needs a GPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.methods.multipliers import gathering

INDEX = torch.tensor([3, 8, 0, 1, 4])
MAKERS: dict[str, Callable[[], rf.methods.dual.DualMethod]] = {
    "Lagrangian": lambda: rf.Lagrangian(0.3, initial=0.5, samples=9),
    "Lagrangian, shared": lambda: rf.Lagrangian(0.3, initial=0.5, shared=True),
    "Lagrangian, the same rows": lambda: rf.Lagrangian(0.3, initial=0.5, same_rows=True),
    "ReLU": lambda: rf.ReLULagrangian(0.3, initial=0.5, samples=9),
    "ReLU, shared": lambda: rf.ReLULagrangian(0.3, initial=0.5, shared=True),
    "augmented": lambda: rf.AugmentedLagrangian(0.7, initial=0.5, samples=9),
    "augmented, the same rows": lambda: rf.AugmentedLagrangian(0.7, initial=0.5, same_rows=True),
}
MASK = torch.tensor([[True, False, True]] * 4 + [[False] * 3])
CONSTRAINTS: dict[str, Callable[[Tensor], rf.Residual]] = {
    "between": lambda x: rf.between(x, -0.5, 0.5),
    "at most": lambda x: rf.at_most(x, 0.1),
    "masked": lambda x: rf.between(x, -0.5, 0.5, mask=MASK),
    "equal": lambda x: rf.equal(x, 0.1, 0.05),
}


def multiplied(
    f: Tensor, table: Tensor, index: Tensor | None, rule: str, rho: float | Tensor, ragged: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``fused.launch.multiplied``."""
    flat = f.detach().reshape(-1)
    places = torch.arange(len(flat))
    if index is None:
        each = table.reshape(-1)[places % table.numel()]
    else:
        width = table[0].numel()
        each = table.reshape(len(table), -1)[index[places // width], places % width]
    there = flat != -torch.inf if ragged else torch.ones_like(flat, dtype=torch.bool)
    v = torch.where(there, flat, 0.0)
    if rule == "product":
        value, slope = each * v, each
    elif rule == "violation":
        value, slope = each * v.relu(), each * (v > 0)
    else:
        slope = (each + rho * v).relu()
        value = (slope**2 - each**2) / (2.0 * rho)
    found = torch.where(there, value, 0.0).sum(), torch.where(there, slope, 0.0), each
    return found[0], found[1].view_as(f), found[2].view_as(f)


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rules by which terms were gathered."""
    rules: list[str] = []

    def noticed(*words: Any) -> tuple[Tensor, Tensor, Tensor]:
        rules.append(words[3])
        return multiplied(*words)

    monkeypatch.setattr(gathering, "can_be_one", lambda f: f.dtype is torch.float32)
    monkeypatch.setattr(gathering, "multiplied", noticed)
    return rules


def three_steps(method: str, constraint: str, dtype: torch.dtype) -> list[Tensor]:
    """Losses, gradients, and gradients of these, while multipliers move."""
    fence, found = MAKERS[method](), []
    index = INDEX if fence.whose.by_sample else None
    start = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for step in range(3):
        x = ((step + 1) * start).to(dtype).requires_grad_()
        loss = fence(a=CONSTRAINTS[constraint](x), index=index)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        second = None
        if gradient.requires_grad:
            (second,) = torch.autograd.grad(gradient.square().sum(), x, allow_unused=True)
        found += [loss.detach(), gradient.detach(), torch.zeros_like(x) if second is None else second.detach()]
        fence.step()
    return found


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("method", MAKERS)
def test_a_gathered_term_is_the_plain_one(method: str, constraint: str, gathered: list[str]) -> None:
    in_one = three_steps(method, constraint, torch.float32)
    assert len(gathered) == (0 if constraint == "equal" else 3)
    for one, other in zip(in_one, three_steps(method, constraint, torch.float64), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


class Squared(rf.methods.dual.DualMethod):
    """Says what v is, and nothing of a kernel."""

    def _measure(self, residual: rf.Residual) -> Tensor:
        return residual.f.square()

    def _slope(self, name: str, residual: rf.Residual, index: Tensor | None) -> Tensor:
        return 2.0 * residual.f * self._stores[name].rows(residual.f, index)


@pytest.mark.usefixtures("gathered")
def test_a_method_that_measures_otherwise_is_not_gathered() -> None:
    for dtype in (torch.float32, torch.float64):
        assert float(Squared(initial=1.0, shared=True)(a=torch.tensor([3.0], dtype=dtype))) == 9.0


@pytest.mark.usefixtures("gathered")
@pytest.mark.parametrize("method", MAKERS)
def test_a_gathered_term_leaves_nothing_behind(method: str) -> None:
    """Without the garbage collector: memory of a GPU does not wait for it."""
    fence = MAKERS[method]()
    index = INDEX if fence.whose.by_sample else None
    gc.disable()
    try:
        x = torch.randn(5, 3, requires_grad=True)
        residual = rf.between(x, -0.5, 0.5)
        seen = weakref.ref(residual.f)
        loss = fence(a=residual, index=index)
        loss.backward()
        del residual, loss
        assert seen() is None
    finally:
        gc.enable()
