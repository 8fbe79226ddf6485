"""ψ_t and λ against mpmath in exact arithmetic, against autograd, and at every awkward point."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ringfence as rf
from ringfence.barrier import log_barrier_both

HALF = (torch.float16, torch.bfloat16)
ALL_DTYPES = (torch.float64, torch.float32, *HALF)
T_RANGE = st.floats(math.log(1e-3), math.log(1e8)).map(math.exp)


def exact(z: float, t: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The paper's two lines, in 60 digits: value and derivative."""
    with mpmath.workdps(60):
        z, t = mpmath.mpf(z), mpmath.mpf(t)
        if z <= -1 / t**2:
            return -mpmath.log(-z) / t, -1 / (t * z)
        return t * z - mpmath.log(1 / t**2) / t + 1 / t, t


def computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype


def numbers(dtype: torch.dtype) -> st.SearchStrategy[float]:
    """Every finite number of the dtype, small and large ones as likely as any."""
    limit = torch.finfo(dtype).max
    exponents = st.integers(math.floor(math.log2(torch.finfo(dtype).tiny)) - 8, math.floor(math.log2(limit)) - 1)
    magnitude = st.builds(lambda e, m: math.ldexp(m, e), exponents, st.floats(1.0, 2.0, exclude_max=True))
    signed = st.builds(lambda m, negative: -m if negative else m, magnitude, st.booleans())
    return st.one_of(signed, st.floats(-10, 10), st.sampled_from([0.0, -0.0, limit, -limit]))


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_value_and_gradient_match_exact_arithmetic(dtype: torch.dtype, data: st.DataObject) -> None:
    t = data.draw(T_RANGE, label="t")
    z = torch.tensor(data.draw(numbers(dtype), label="z"), dtype=dtype, requires_grad=True)
    value = rf.log_barrier(z, t)
    wide = z.detach().to(computed_in(dtype)).requires_grad_()
    (gradient,) = torch.autograd.grad(rf.log_barrier(wide, t), wide)
    dual = rf.log_barrier_dual(z, t)
    true_value, true_slope = exact(z.item(), t)

    assert value.dtype == dual.dtype == computed_in(dtype)
    eps = torch.finfo(computed_in(dtype)).eps
    top = torch.finfo(computed_in(dtype)).max
    if abs(true_value) < 0.999 * top:
        # the value may cancel to nearly 0 (at z = -1): measure against the terms it is a sum of
        size = abs(true_value) + abs(2 * mpmath.log(t) / t) + 1 / t
        assert abs(value.item() - true_value) <= 8 * eps * size
    assert gradient.item() == dual.item()
    smallest = torch.finfo(computed_in(dtype)).smallest_normal * eps
    assert abs(dual.item() - true_slope) <= 2 * eps * true_slope + smallest


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("t", [1e-3, 1.0, 5.0, 1e4, 1e8])
def test_awkward_points_are_finite(dtype: torch.dtype, t: float) -> None:
    info = torch.finfo(dtype)
    denormal = info.smallest_normal * info.eps
    points = [0.0, -0.0, denormal, -denormal, -info.smallest_normal, -info.max, 1.0, -1.0, -(t**-2), info.max]
    z = torch.tensor([p for p in points if abs(p) <= info.max], dtype=dtype)
    wide = z.to(computed_in(dtype)).requires_grad_()
    representable = torch.tensor([abs(exact(p, t)[0]) <= torch.finfo(wide.dtype).max for p in wide.tolist()])
    value = rf.log_barrier(wide, t)
    (gradient,) = torch.autograd.grad(value.sum(), wide)
    assert torch.isfinite(value[representable]).all()
    assert torch.isfinite(gradient).all()
    assert (gradient >= 0).all()
    assert torch.equal(value, rf.log_barrier(z, t))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_gradients_come_back_in_half(dtype: torch.dtype) -> None:
    z = torch.tensor([-3.0, -0.01, 0.0, 2.0], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(rf.log_barrier(z, 5.0).sum(), z)
    assert gradient.dtype == dtype
    assert torch.equal(gradient, rf.log_barrier_dual(z, 5.0).to(dtype))


def test_nan_stays_nan() -> None:
    nan = torch.tensor(math.nan)
    for function in (rf.log_barrier, rf.log_barrier_dual):
        assert function(nan, 5.0).isnan()


def test_half_precision_sum_does_not_overflow() -> None:
    z = torch.full((1000,), 60000.0, dtype=torch.float16)
    assert rf.log_barrier(z, 5.0).sum().item() == pytest.approx(1000 * float(exact(60000.0, 5.0)[0]), rel=1e-5)


@given(t=T_RANGE)
@settings(max_examples=100, deadline=None)
def test_once_but_not_twice_differentiable_at_the_junction(t: float) -> None:
    """ψ is C¹: slope t from both sides; ψ'' jumps from t³ to 0. The paper calls it twice differentiable."""
    junction = -1.0 / t**2
    z = torch.tensor(
        [junction * (1 + 1e-9), junction * (1 - 1e-9)], dtype=torch.float64, requires_grad=True
    )  # just inside, just beyond
    value = rf.log_barrier(z, t)
    (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), z)
    # they are 2e-9/t² apart at slope t, beside terms as large as log(t)/t
    assert value[0].item() == pytest.approx(value[1].item(), abs=1e-8 / t + 1e-12 * abs(math.log(t)) / t)
    torch.testing.assert_close(slope.detach(), torch.full_like(slope, t), rtol=1e-8, atol=0.0)
    assert curvature[0].item() == pytest.approx(t**3, rel=1e-7)
    assert curvature[1].item() == 0.0


def test_gradcheck_and_gradgradcheck() -> None:
    # clear of the junction at -1/t², where the second derivative does not exist
    z = torch.tensor([-5.0, -1.0, -0.3, -0.05, 0.0, 0.7, 4.0], dtype=torch.float64, requires_grad=True)
    for t in (0.7, 2.0, 5.0):
        assert torch.autograd.gradcheck(lambda z, t=t: rf.log_barrier(z, t), z)
        assert torch.autograd.gradgradcheck(lambda z, t=t: rf.log_barrier(z, t), z)
        assert torch.autograd.gradcheck(lambda z, t=t: rf.log_barrier_dual(z, t), z)


def test_t_may_be_a_tensor_and_learned() -> None:
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([[0.5], [1.5], [3.0], [10.0]], dtype=torch.float64, requires_grad=True)
    rows = torch.stack([rf.log_barrier(row, sharpness.item()) for row, sharpness in zip(z, t, strict=True)])
    torch.testing.assert_close(rf.log_barrier(z, t), rows, rtol=1e-14, atol=1e-14)
    assert torch.autograd.gradcheck(rf.log_barrier, (z, t))


def test_vmap_over_both_arguments() -> None:
    z, t = torch.randn(6, 5), torch.rand(6) + 0.5
    expected = torch.stack([rf.log_barrier(row, s.item()) for row, s in zip(z, t, strict=True)])
    torch.testing.assert_close(torch.func.vmap(rf.log_barrier)(z, t), expected)
    torch.testing.assert_close(torch.func.vmap(lambda row: rf.log_barrier(row, 5.0))(z), rf.log_barrier(z, 5.0))
    slopes = torch.func.vmap(torch.func.grad(lambda one: rf.log_barrier(one, 5.0)))(z.reshape(-1))
    torch.testing.assert_close(slopes, rf.log_barrier_dual(z.reshape(-1), 5.0))


def test_compiled_matches_eager() -> None:
    def both(z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return rf.log_barrier(z, t), rf.log_barrier_dual(z, 5.0)

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    z = torch.tensor([-2.0, -0.04, -0.01, 0.0, 1.0], requires_grad=True)
    t = torch.tensor(5.0)
    for one, other in zip(compiled(z, t), both(z, t), strict=True):
        torch.testing.assert_close(one, other)
    (gradient,) = torch.autograd.grad(compiled(z, t)[0].sum(), z)
    torch.testing.assert_close(gradient, rf.log_barrier_dual(z.detach(), 5.0))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_changes_nothing(dtype: torch.dtype) -> None:
    z = torch.tensor([-100.0, -0.04, 0.0, 1000.0], requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        value = rf.log_barrier(z, 50.0)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, rf.log_barrier(z, 50.0), rtol=0.0, atol=0.0)


@given(z=st.floats(-1e30, 1e30), t=T_RANGE)
@settings(max_examples=200, deadline=None)
def test_the_standard_barrier_is_infinite_outside_and_equal_inside(z: float, t: float) -> None:
    point = torch.tensor(z, dtype=torch.float64)
    standard = rf.standard_log_barrier(point, t).item()
    if z >= 0:
        assert standard == math.inf
    elif z <= -1.0 / t**2:
        assert standard == rf.log_barrier(point, t).item()
    else:  # beyond the junction the extension is the tangent, so it lies below
        assert standard >= rf.log_barrier(point, t).item() - 1e-12 * (1 + abs(standard))


def authors_formula(z: float, t: float) -> float:
    """The authors' published scalar code, re-derived: a branch on each number."""
    if z <= -1 / t**2:
        return -math.log(-z) / t
    return t * z + -math.log(1 / (t**2)) / t + 1 / t


@given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 6),
    classes=st.integers(1, 3),
    t=st.floats(0.1, 100.0),
)
@settings(max_examples=60, deadline=None)
def test_a_fence_on_random_bounds_equals_the_authors_loop(seed: int, batch: int, classes: int, t: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = 100 * torch.rand(batch, classes, generator=generator, dtype=torch.float64)
    low = 100 * torch.rand(batch, classes, generator=generator, dtype=torch.float64)
    high = low + 20 * torch.rand(batch, classes, generator=generator, dtype=torch.float64)
    expected = 0.0
    for n in range(batch):
        for k in range(classes):
            expected += authors_formula((low[n, k] - value[n, k]).item(), t)
            expected += authors_formula((value[n, k] - high[n, k]).item(), t)
    loss = rf.LogBarrier(t=t)(size=rf.between(value, low, high))
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_sum_and_slope_in_one_pass_are_those_of_the_two_functions(dtype: torch.dtype, data: st.DataObject) -> None:
    """Slopes bit for bit; the sum against its terms, since only its order may differ."""
    t = data.draw(T_RANGE, label="t")
    z = torch.tensor(data.draw(st.lists(numbers(dtype), min_size=1, max_size=20), label="z"), dtype=dtype)
    before = z.clone()
    total, slope = log_barrier_both(z, t)
    terms = rf.log_barrier(z, t)
    assert torch.equal(z, before)
    assert torch.equal(slope, rf.log_barrier_dual(z, t))
    if torch.isfinite(terms.sum()) and torch.isfinite(total):
        scale = terms.abs().sum() + len(z) * (abs(2 * math.log(t)) + 1) / t
        assert abs(total - terms.sum()) <= 32 * torch.finfo(dtype).eps * scale
