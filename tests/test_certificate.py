"""The certificate's arithmetic by hand, its text, and that parts add up to the whole."""

from __future__ import annotations

import pytest
import torch

import ringfence as rf


def test_gap_bound_and_worst_by_hand() -> None:
    f = torch.tensor([-2.0, -0.01, 0.5], dtype=torch.float64)
    certificate = rf.LogBarrier(t=5.0).certificate(7.0, a=f)
    duals = [1 / (5 * 2.0), 5.0, 5.0]  # the junction is at -0.04
    gap = -sum(dual * value for dual, value in zip(duals, f.tolist(), strict=True))
    assert certificate.gap == pytest.approx(gap)
    assert certificate.bound == pytest.approx(3 / 5)
    assert certificate.count == 3
    assert (certificate.feasible, certificate.worst, certificate.worst_name) == (False, 0.5, "a")
    assert certificate.lower_bound is None
    assert certificate.suboptimality is None


def test_masked_constraints_do_not_count() -> None:
    f = rf.at_most(torch.tensor([-2.0, 3.0]), 0.0, mask=torch.tensor([True, False]))
    certificate = rf.LogBarrier(t=5.0).certificate(1.0, a=f, b=torch.tensor([-1.0]))
    assert (certificate.count, certificate.feasible, certificate.worst_name) == (2, True, None)
    assert certificate.gap == pytest.approx(2 / 5)
    assert certificate.bound == pytest.approx(2 / 5)


def test_tolerance_decides_what_is_feasible() -> None:
    fence, f = rf.Lagrangian(initial=1.0, shared=True), torch.tensor([1e-6])
    assert not fence.certificate(0.0, a=f).feasible
    assert fence.certificate(0.0, a=f, tolerance=1e-5).feasible


def test_the_gradient_norm_is_that_of_the_whole_loss() -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    fence = rf.Penalty(strength=0.5)
    certificate = fence.certificate(x.square().sum(), a=rf.at_most(x, 0.0), parameters=[x])
    assert certificate.stationarity == pytest.approx(((2 * 3 + 3) ** 2 + (2 * 4 + 4) ** 2) ** 0.5)
    (gradient,) = torch.autograd.grad(x.square().sum(), x)  # the caller's graph is still whole
    assert gradient.tolist() == [6.0, 8.0]


def test_a_gradient_norm_needs_a_graph() -> None:
    with pytest.raises(ValueError, match="carry their graph: do not detach"):
        rf.LogBarrier().certificate(1.0, a=torch.zeros(2), parameters=[torch.zeros(2, requires_grad=True)])


@pytest.mark.parametrize(
    "fence", [rf.LogBarrier(t=3.0), rf.Penalty(), rf.Lagrangian(initial=1.0, shared=True)], ids=str
)
def test_certificates_of_parts_add_up(fence: rf.Method) -> None:
    value = torch.randn(10, 3, dtype=torch.float64)
    whole = fence.certificate(10.0, size=rf.between(value, -1.0, 1.0))
    parts = sum(fence.certificate(1.0, size=rf.between(row[None], -1.0, 1.0)) for row in value)
    assert isinstance(parts, rf.Certificate)
    assert parts.gap == pytest.approx(whole.gap)
    assert parts.bound == (None if whole.bound is None else pytest.approx(whole.bound))
    for field in ("objective", "feasible", "worst", "worst_name", "count"):
        assert getattr(parts, field) == getattr(whole, field)


def test_means_of_parts_do_not_add_up_and_say_so() -> None:
    one = rf.LogBarrier(reduction="mean").certificate(1.0, a=torch.zeros(2))
    with pytest.raises(ValueError, match="add up for reduction='sum' alone"):
        one + one


def test_frozen_parameters_are_left_out_of_the_gradient_norm() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    model[0].requires_grad_(False)
    output = model(torch.ones(3, 1))
    assert rf.Penalty().certificate(output.sum(), a=output, parameters=model.parameters()).stationarity > 0


def test_the_promise_includes_the_gradient_norm() -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    certificate = rf.Penalty(strength=0.5).certificate(
        x.square().sum(), a=rf.at_most(x, 10.0), parameters=[x], radius=2.0
    )
    assert certificate.stationarity == pytest.approx(10.0)
    assert certificate.suboptimality == pytest.approx(certificate.gap + 10.0 * 2.0)
    assert certificate.lower_bound == pytest.approx(25.0 - certificate.suboptimality)


def test_says_what_is_and_is_not_promised() -> None:
    f = torch.tensor([-1.0, -2.0])
    alone = str(rf.LogBarrier(t=10.0).certificate(2.0, a=f))
    assert "feasible: all 2 constraints hold" in alone
    assert "The gap is no bound here: it is one at the method's exact minimiser alone" in alone
    assert "no gradient norm was asked for" in alone
    assert "above the optimum" not in alone
    x = torch.tensor([-1.0, -2.0], requires_grad=True)
    normed = str(rf.LogBarrier(t=10.0).certificate(x.square().sum(), a=x, parameters=[x]))
    assert "no bound here" in normed
    assert "the gradient norm is 4.3" in normed
    whole = str(rf.LogBarrier(t=10.0).certificate(x.sum() * 0.0 + 2.0, a=x, parameters=[x], radius=3.0))
    assert "Promised if the problem is convex: this objective is at most" in whole
    assert "no feasible point within the radius has an objective below" in whole
    assert "Not promised: anything about the optimum of a non-convex problem" in whole
    y = torch.tensor([0.25], requires_grad=True)
    infeasible = str(rf.LogBarrier(t=10.0).certificate(2.0, size=y, parameters=[y], radius=1.0))
    assert "NOT feasible: 'size' is violated by up to 0.25" in infeasible
    assert "above the optimum" not in infeasible
    assert "limit" not in str(rf.Lagrangian(shared=True).certificate(2.0, a=torch.tensor([-1.0])))


def test_parameters_that_say_nothing_are_refused() -> None:
    """A gradient norm of 0 from nothing would be printed as a promise."""
    model, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    output = model(torch.ones(3, 1))
    used_up = model.parameters()
    list(used_up)
    for parameters in (used_up, other.parameters(), [one.detach() for one in model.parameters()]):
        with pytest.raises(ValueError, match="holds nothing that objective or residuals depend on"):
            rf.Penalty().certificate(output.sum(), a=output, parameters=parameters, radius=1.0)


def test_a_surrogate_certifies_nothing_about_what_it_stands_for() -> None:
    """min -x with x <= 10 by a stand-in x <= 0: the optimum is -10."""
    x = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    limit = rf.surrogate(rf.at_most(x, 0.0), rf.at_most(x, 10.0))
    certificate = rf.LogBarrier(t=10.0).certificate(-x, a=limit, parameters=[x], radius=20.0)
    assert certificate.feasible
    assert certificate.suboptimality is None
    assert certificate.lower_bound is None
    assert "about a surrogate" in str(certificate)
    assert "Promised" not in str(certificate)
