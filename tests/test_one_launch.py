"""One launch instead of dozens, on a real GPU: residuals and barriers against the same on a CPU, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.fused import launch

GPU = pytest.mark.gpu
INF = math.inf


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bounds() -> dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], rf.Residual]]:
    """Constraints on a value [5, 3], their tensors brought to it by ``there``."""
    low, high = numbers(5, 3, seed=1) - 1.0, numbers(5, 1, seed=2) + 2.0
    free = torch.where(numbers(5, 3, seed=3) > 0, high, INF)
    unit, mask = numbers(5, 3, seed=4).abs() + 0.5, numbers(5, 3, seed=5) > -0.5
    return {
        "between numbers": lambda there, v: rf.between(v, -1.0, 0.5),
        "between tensors": lambda there, v: rf.between(v, there(low), there(high), scale=there(unit)),
        "masked": lambda there, v: rf.between(
            v, there(low), there(free), mask=there(mask), scale=there(torch.where(mask, unit, 0.0))
        ),
        "at most": lambda there, v: rf.at_most(v, there(free), scale=3.0),
        "at least": lambda there, v: rf.at_least(v, there(low), mask=there(mask)),
        "equal": lambda there, v: rf.equal(v, there(low), 0.1),
    }


METHODS = {
    "barrier": lambda: rf.LogBarrier(5.0, weights={"a": 2.0}),
    "barrier, sharp": lambda: rf.LogBarrier(300.0),
    "penalty": lambda: rf.Penalty(3.0),
    "linear penalty": lambda: rf.Penalty(3.0, power=1),
    "lagrangian": lambda: rf.Lagrangian(initial=0.5, samples=9),
    "lagrangian, shared": lambda: rf.Lagrangian(initial=0.5, shared=True),
    "lagrangian, the same rows": lambda: rf.Lagrangian(initial=0.5, same_rows=True),
    "relu": lambda: rf.ReLULagrangian(initial=0.5, samples=9),
    "relu, shared": lambda: rf.ReLULagrangian(initial=0.5, shared=True),
    "augmented": lambda: rf.AugmentedLagrangian(0.7, initial=0.5, samples=9),
    "augmented, the same rows": lambda: rf.AugmentedLagrangian(0.7, initial=0.5, same_rows=True),
}


@GPU
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", bounds())
@pytest.mark.filterwarnings("ignore:constraint 'a' is an equality")
def test_loss_gradient_and_duals_are_those_of_a_cpu(method: str, constraint: str) -> None:
    found = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):

        def there(one: Tensor, device: str = device, dtype: torch.dtype = dtype) -> Tensor:
            return one.to(device) if one.dtype == torch.bool else one.to(device, dtype)

        value = there(numbers(5, 3)).requires_grad_()
        fence, rows = METHODS[method](), torch.tensor([[8, 0], [3, 0], [0, 0], [5, 0], [1, 0]], device=device)[:, 0]
        index = rows if getattr(getattr(fence, "whose", None), "by_sample", False) else None
        fence(a=bounds()[constraint](there, value), index=index)
        fence.step()  # so that each multiplier is another one
        residual = bounds()[constraint](there, value)
        loss = fence(a=residual, index=index)
        (gradient,) = torch.autograd.grad(loss, value, create_graph=True)
        assert gradient.requires_grad or method not in ("barrier", "augmented")
        (plain,) = torch.autograd.grad(fence(a=bounds()[constraint](there, value), index=index), value)
        second = torch.zeros_like(value)
        if gradient.requires_grad:
            (curved,) = torch.autograd.grad(gradient.square().sum(), value, allow_unused=True)
            second = second if curved is None else curved
        found.append([residual.f, loss, gradient, plain, second, fence.duals(a=residual, index=index)["a"]])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.detach().cpu().double(), other.detach(), rtol=2e-5, atol=1e-5)


@GPU
@pytest.mark.parametrize("t", [0.01, 1.0, 1e4])
def test_the_barrier_of_every_kind_of_number(t: float) -> None:
    z = torch.tensor([-INF, -1e30, -1.0, -1.0 / t**2, -1e-30, 0.0, 1e-3, 1e5, *numbers(3000).tolist()])
    for sharpness in (t, torch.tensor(t, device="cuda")):
        total, slope = launch.barrier(z.cuda(), sharpness)
        there = z > -INF
        each = rf.log_barrier(z[there].double(), t)
        assert float(total) == pytest.approx(float(each.sum()), abs=1e-5 * float(each.abs().sum()))
        torch.testing.assert_close(slope.cpu()[there], rf.log_barrier_dual(z[there], t), rtol=1e-6, atol=0.0)
        assert not slope.cpu()[~there].any()
    assert bool(launch.barrier(torch.tensor([1.0, math.nan], device="cuda"), t)[0].isnan())


@GPU
@pytest.mark.parametrize("rows", [1, 64, 65, 512, 513, 1500])
@pytest.mark.parametrize("method", ["barrier", "penalty", "lagrangian", "lagrangian, shared", "augmented"])
def test_any_number_of_residuals(method: str, rows: int) -> None:
    """Few are one warp's, and many are gone over in blocks: 2 to 3000 of them, on both sides of where that changes."""
    makers = {
        **{name: METHODS[name] for name in ("barrier", "penalty", "lagrangian, shared")},
        "lagrangian": lambda: rf.Lagrangian(initial=0.5, samples=rows),
        "augmented": lambda: rf.AugmentedLagrangian(0.7, initial=0.5, samples=rows),
    }
    found = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        value = numbers(rows, seed=rows).to(device, dtype).requires_grad_()
        fence, index = makers[method](), torch.arange(rows, device=device).flip(0)
        fence(a=rf.between(value, -1.0, 0.5, scale=2.0), index=index)
        fence.step()
        loss = fence(a=rf.between(value, -1.0, 0.5, scale=2.0), index=index)
        found.append([loss / rows, *torch.autograd.grad(loss, value)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.detach().cpu().double(), other.detach(), rtol=2e-5, atol=1e-5)


@GPU
def test_a_fence_takes_few_launches() -> None:
    value, low = torch.randn(8, 2, device="cuda", requires_grad=True), torch.zeros(8, 2, device="cuda")
    fence = rf.LogBarrier(5.0, validate=False)
    fence(a=rf.between(value, low, low + 1.0)).backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as seen:
        fence(a=rf.between(value, low, low + 1.0)).backward()
        torch.cuda.synchronize()
    kernels = [one for one in seen.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) < 12


def test_on_a_cpu_they_are_not_used() -> None:
    assert not launch.can_be_one(torch.randn(3))
