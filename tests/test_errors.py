"""Bad input gets one clear message: what is wrong, where, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import ringfence as rf
from registry import METHODS, Entry

X = torch.zeros(4, requires_grad=True)
NAN, INF = math.nan, math.inf


def value(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, requires_grad=True)


CONSTRUCTION: list[tuple[Callable[[], object], str]] = [
    (lambda: rf.LogBarrier(t=0.0), r"t must be positive and finite, got t=0\.0"),
    (lambda: rf.LogBarrier(t=-2.0), r"t must be positive and finite, got t=-2\.0"),
    (lambda: rf.LogBarrier(t=NAN), "t must be positive and finite, got t=nan"),
    (lambda: rf.LogBarrier(mu=0.9), r"mu must be at least 1 .*got mu=0\.9"),
    (lambda: rf.LogBarrier(t=5.0, max_t=2.0), "t=5 is above max_t=2"),
    (lambda: rf.LogBarrier(t=lambda step: 1.0, mu=1.1), r"t is a function.*leave out mu \(got mu=1\.1\)"),
    (lambda: rf.LogBarrier(t=lambda step: -1.0), r"t\(0\) must be positive and finite"),
    (lambda: rf.LogBarrier(t="5"), "t must be a number, got str"),
    (lambda: rf.log_barrier(X, torch.tensor(NAN)), "t must be positive and finite, got a tensor from nan"),
    (lambda: rf.log_barrier(X, 0.0), r"t must be positive and finite, got t=0\.0"),
    (lambda: rf.log_barrier(X, torch.tensor([1.0, 1.0, -3.0, 1.0])), "t must be positive and finite, got a tensor from -3 to 1"),
    (lambda: rf.log_barrier(torch.zeros(3, dtype=torch.int64), 5.0), r"floating-point tensor, got torch.int64.*z\.float\(\)"),
    (lambda: rf.log_barrier(0.5, 5.0), "z must be a tensor, got float"),
    (lambda: rf.Penalty(power=3), r"power must be 1 \(linear\) or 2 \(quadratic\), got 3"),
    (lambda: rf.Penalty(strength=-1.0), "strength must be positive and finite"),
    (lambda: rf.Lagrangian(dual_lr=-0.1), r"dual_lr must be finite and not negative, got -0\.1"),
    (lambda: rf.ReLULagrangian(dual_lr=-0.1), "dual_lr must be finite and not negative"),
    (lambda: rf.ReLULagrangian(interval=0), "interval must be a whole number of steps, at least 1, got 0"),
    (lambda: rf.ReLULagrangian(interval=2.5), r"interval must be a whole number of steps, at least 1, got 2\.5"),
    (lambda: rf.LogBarrier(t={}), "t is an empty mapping: name at least one constraint"),
    (lambda: rf.LogBarrier(t={"a": 1.0, "b": -1.0}), r"t of 'b' must be positive and finite, got t of 'b'=-1\.0"),
    (lambda: rf.LogBarrier(t={"a": 1.0})(a=X, b=X), "t lacks 'b': the constraints are 'a', 'b'; give each of them a value, or one value for all"),
    (lambda: rf.Penalty(strength={"c": 1.0})(a=X), "strength lacks 'a' and names 'c': the constraints are 'a'"),
    (lambda: rf.Lagrangian(dual_lr={"c": 1.0}, same_rows=True)(a=X), "dual_lr lacks 'a' and names 'c'"),
    (lambda: rf.Lagrangian(initial={"c": 1.0}, same_rows=True)(a=X), "initial lacks 'a' and names 'c'"),
    (lambda: rf.AugmentedLagrangian(rho={"c": 1.0}, same_rows=True)(a=X), "rho lacks 'a' and names 'c'"),
    (lambda: rf.Lagrangian(dual_lr=1.0, dual_optimiser=torch.optim.SGD), "dual_lr and dual_optimiser exclude each other"),
    (lambda: rf.Lagrangian(dual_optimiser=3), "dual_optimiser must make an optimiser from parameters.*got int"),
    (lambda: rf.Lagrangian(max_multiplier=0.0), "max_multiplier must be positive and finite"),
    (lambda: rf.AugmentedLagrangian(enough=-1.0), "enough must be finite and not negative"),
    (lambda: rf.NuPI([X.detach().clone().requires_grad_()], lr=-1.0), "lr must be finite and not negative"),
    (lambda: rf.NuPI([X.detach().clone().requires_grad_()], lr=1.0, nu=1.0), "nu must be at least 0 and below 1"),
    (lambda: rf.LogBarrier().certificate(0.0, a=X, radius=1.0), "radius= needs parameters="),
    (lambda: rf.LogBarrier().certificate(0.0, a=X, tolerance=-1.0), r"tolerance must be finite and not negative, got -1\.0"),
    (lambda: rf.LogBarrier(reduction="batchmean")(a=torch.zeros(2), b=torch.zeros(4)), r"needs constraints with as many rows each, got \{'a': 2, 'b': 4\}"),
    (lambda: rf.AugmentedLagrangian(rho=0.0), "rho must be positive and finite"),
    (lambda: rf.Lagrangian(initial=-1.0), "initial must be finite and not negative"),
    (lambda: rf.Lagrangian(samples=0), "samples must be a positive number of data points, got 0"),
    (lambda: rf.Lagrangian(samples=5, same_rows=True), "same_rows=True and samples=5 exclude each other"),
    (lambda: rf.LogBarrier(reduction="avg"), "reduction must be one of sum, mean, batchmean, got 'avg'"),
    (lambda: rf.LogBarrier(weights={"size": -1.0}), r"weight of 'size' must be finite and not negative, got -1\.0"),
    (lambda: rf.LogBarrier(weights={"size": "much"}), "weight of 'size' must be a number, got str"),
    (lambda: rf.LogBarrier(shapes={"index": ()}), "'index' cannot name a constraint"),
    (lambda: rf.LogBarrier(samples=10), "LogBarrier takes no argument 'samples'"),
    (lambda: rf.LogBarrier()(X), r"a constraint needs a name: fence\(size="),
    (lambda: rf.Lagrangian()(X), r"a constraint needs a name: fence\(size="),
    (lambda: rf.Monitor().update(X), r"a constraint needs a name: update\(size="),
    (lambda: rf.LogBarrier().certificate(X, a=X), r"objective must be one number, got a tensor of shape \[4\]"),
]  # fmt: skip

RESIDUALS: list[tuple[Callable[[], object], str]] = [
    (lambda: rf.between(X, 2.0, 1.0), r"between: low > high.*\(low=2, high=1\)"),
    (lambda: rf.between(X, 0.0, torch.tensor([1.0, -1.0, 1.0, -5.0])), r"between: low > high.* in rows 1, 3 \(2 of 4 entries; first at \[1\]: low=0, high=-1\)"),
    (lambda: rf.between(torch.zeros(3, 2), torch.tensor([0.0, 9.0]), 1.0), r"low > high.* in rows 0, 1, 2 \(3 of 6 entries; first at \[0, 1\]: low=9, high=1\)"),
    (lambda: rf.between(torch.zeros(3, 2), torch.tensor([[0.0], [0.0], [9.0]]), 1.0), r"low > high.* in row 2 \(2 of 6 entries; first at \[2, 0\]"),
    (lambda: rf.between(X, torch.tensor([NAN, 0.0, 0.0, 0.0]), 1.0), "a bound that is NaN.* in row 0"),
    (lambda: rf.between(X, INF, INF), "infinite on the wrong side"),
    (lambda: rf.at_most(X, -INF), r"at_most: high is NaN or -inf \(high=-inf\)\. Use inf for no bound"),
    (lambda: rf.at_least(X, NAN), r"at_least: low is NaN or inf \(low=nan\)"),
    (lambda: rf.at_most(X, NAN), r"at_most: high is NaN or -inf \(high=nan\)"),
    (lambda: rf.between(X, NAN, 1.0), r"between: low > high, or a bound that is NaN.*low=nan"),
    (lambda: rf.equal(X, 1.0, -0.5), r"equal:.*a tolerance that is negative.*tolerance=-0\.5"),
    (lambda: rf.equal(X, torch.tensor([0.0, INF, 0.0, 0.0])), "a target that is not finite.* in row 1"),
    (lambda: rf.between(X, torch.zeros(3), 1.0), r"low of shape \[3\] does not broadcast to value of shape \[4\].*low\[:, None\]"),
    (lambda: rf.at_most(X, torch.zeros(4, 1)), r"high of shape \[4, 1\] does not broadcast to value of shape \[4\]; it has more dimensions.*squeeze"),
    (lambda: rf.at_most(X, 0.0, mask=torch.ones(5, dtype=torch.bool)), r"mask of shape \[5\] does not broadcast to value of shape \[4\]"),
    (lambda: rf.at_most(X, 0.0, mask=torch.ones(4)), "mask must be a bool tensor, got torch.float32"),
    (lambda: rf.at_most(X, 0.0, scale=0.0), "scale must be positive and finite"),
    (lambda: rf.at_most(X, 0.0, scale=torch.tensor([1.0, 0.0, 1.0, 1.0])), r"scale <= 0 or NaN in row 1.*scale=0\)"),
    (lambda: rf.at_most(torch.zeros(4, dtype=torch.int32), 0.0), "value must be floating point, got torch.int32.*no gradient"),
    (lambda: rf.at_most([1.0], 0.0), "value must be a tensor, got list"),
    (lambda: rf.at_most(torch.zeros(4, dtype=torch.complex64), 0.0), r"value must be floating point, got torch.complex64: a complex number has no order; constrain its .real"),
    (lambda: rf.at_most(torch.zeros(4).to_sparse(), 0.0), r"value must be a dense tensor, got torch.sparse_coo: convert it with \.to_dense\(\)"),
    (lambda: rf.LogBarrier()(a=torch.zeros(4).to_sparse()), "constraint 'a' must be a dense tensor, got torch.sparse_coo"),
    (lambda: rf.surrogate(X, X[:2]), r"surrogate: soft and strict must be the same kind .* got one-sided \[4\] and one-sided \[2\]"),
    (lambda: rf.surrogate(rf.between(X, 0.0, 1.0), rf.equal(X, 0.0)), r"got two-sided \[4, 2\] and an equality \[4, 2\]"),
    (lambda: rf.surrogate(X, rf.surrogate(X, X)), "strict is itself a surrogate"),
    (lambda: rf.at_most(X, "3"), "high must be a number or a tensor, got str"),
]  # fmt: skip

INDEX = torch.arange(4)


@pytest.fixture(params=METHODS)
def entry(request: pytest.FixtureRequest) -> Entry:
    return METHODS[request.param]


@pytest.mark.parametrize(("call", "message"), [*CONSTRUCTION, *RESIDUALS])
def test_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("first", [True, False])
def test_residuals_that_are_not_numbers_name_constraint_and_rows(entry: Entry, bad: float, first: bool) -> None:
    """At the first call and later, when for some methods the loss tells; and λ is as it was."""
    fence, index = entry.make(), entry.index(INDEX[:3])
    if not first:
        fence(place=value(0.0, 0.0, 0.0), size=value(1.0, 1.0, 1.0), index=index)
        fence.step()
    before = {name: one.clone() for name, one in getattr(fence, "multipliers", {}).items()}
    message = (
        r"constraint 'size': (residual|value) is NaN or infinite in rows 1, 2 \(2 of 3 entries; first at \[1\]"
    )
    nowhere = torch.tensor([INF, INF, INF])
    broken = value(0.0, bad, bad)
    for constraint in (broken, rf.at_most(broken, 1.0), rf.at_most(broken, nowhere)):
        with pytest.raises(ValueError, match=message):
            fence(place=value(0.0, 0.0, 0.0), size=constraint, index=index)
    assert all(torch.equal(fence.multipliers[name], one) for name, one in before.items())
    assert bool(before) == (entry.dual and not first)


def test_calls(entry: Entry) -> None:
    make, index = entry.make, entry.index(INDEX)
    name = make().__class__.__name__
    with pytest.raises(ValueError, match=rf"{name} was called without any constraint.*fence\(size="):
        make()()
    with pytest.raises(TypeError, match=r"constraint 'size' must be floating point, got torch\.int64"):
        make()(size=torch.ones(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="constraint 'size' must be a tensor or what rf.between.*got float"):
        make()(size=1.0)
    fence = make()
    fence(size=X, place=X, index=index)
    with pytest.raises(
        ValueError, match="names changed: they were 'place', 'size', now 'plaice' is new and 'place' is missing"
    ):
        fence(size=X, plaice=X, index=index)
    with pytest.raises(ValueError, match="'place' is missing.*use mask= for data points without one"):
        fence.duals(size=X, index=index)
    with pytest.raises(ValueError, match="'tolerance' cannot name a constraint"):
        make()(tolerance=X, index=index)
    with pytest.raises(ValueError, match="weights name 'sise', but the constraints are 'size'"):
        make(weights={"sise": 1.0})(size=X, index=index)
    with pytest.raises(ValueError, match=r"'size' has rows of shape \[2\], declared were \[3\]"):
        make(shapes={"size": (3,)})(size=torch.zeros(4, 2, requires_grad=True), index=index)


@pytest.mark.parametrize("make", [rf.Lagrangian, rf.ReLULagrangian, rf.AugmentedLagrangian])
@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "index= is missing: with a row of multipliers for each of 10 samples"),
        (torch.tensor([0, 1, 10, -1]), r"index: sample out of range in rows 2, 3 .*index=10.*numbered from 0 to 9"),
        (torch.tensor([0, 1, 2]), r"index has 3 entries, but constraint 'size' has shape \[4\]"),
        (torch.tensor([0.0, 1.0, 2.0, 3.0]), "index must be a 1-D int64 tensor, got torch.float32"),
        (torch.zeros(4, 1, dtype=torch.int64), r"1-D int64 tensor, got torch.int64 of shape \[4, 1\]"),
        ([0, 1, 2, 3], "1-D int64 tensor, got list"),
    ],
)
def test_sample_index(make: Callable[..., rf.Method], index: object, message: str) -> None:
    fence = make(samples=10)
    with pytest.raises((ValueError, TypeError), match=message):
        fence(size=X, index=index)
    assert not fence.state_dict().keys() & {"sums.size", "multipliers.size"}  # nothing half-done


@pytest.mark.parametrize("make", [rf.Lagrangian, rf.AugmentedLagrangian])
def test_shapes_that_change(make: Callable[..., rf.Method]) -> None:
    fence = make(same_rows=True)
    fence(size=torch.zeros(4, 2, requires_grad=True))
    with pytest.raises(
        ValueError,
        match=r"'size' changed its shape: \[3, 2\] does not fit multipliers of shape \[4, 2\].*give index=",
    ):
        fence(size=torch.zeros(3, 2, requires_grad=True))
    per_sample = make(samples=10)
    per_sample(size=torch.zeros(4, 2, requires_grad=True), index=torch.arange(4))
    with pytest.raises(ValueError, match=r"'size' changed its shape: \[4, 3\].*\[10, 2\].*pad ragged ones.*mask="):
        per_sample(size=torch.zeros(4, 3, requires_grad=True), index=torch.arange(4))
    shared = make(shared=True)
    shared(size=rf.at_most(X, 0.0))
    for other in (rf.between(X, 0.0, 1.0), rf.equal(X, 0.0)):
        with pytest.raises(ValueError, match="changed its kind: .*either one-sided or two-sided, or an equality"):
            shared(size=other)


def test_a_residual_that_overflows_is_caught_and_a_bound_beyond_the_dtype_is_none() -> None:
    with pytest.raises(ValueError, match="constraint 'a': residual is NaN or infinite"):
        rf.LogBarrier()(a=rf.at_most(value(3e38), 0.0, scale=1e-3))
    with pytest.raises(ValueError, match="constraint 'a': residual overflows in row 0.*larger scale="):
        rf.LogBarrier()(a=rf.at_most(value(3e38, 0.0), torch.tensor([0.0, INF]), scale=1e-3))
    assert not rf.at_most(value(0.0), 1e39).present.any()
    assert torch.isfinite(rf.LogBarrier()(a=rf.between(value(0.0), -1.0, 1e39)))


def test_a_call_that_failed_fixes_nothing() -> None:
    fence = rf.Lagrangian(same_rows=True)
    with pytest.raises(ValueError, match="NaN"):
        fence(sise=value(NAN))
    fence(size=value(0.0))
    assert set(fence.multipliers) == {"size"}


def test_an_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'ringfence' has no attribute 'LogBarier'"):
        rf.LogBarier  # noqa: B018
