"""Every method × convex problems with known optimum and multipliers; cvxpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ringfence as rf
from convex import PROBLEMS, Problem, minimise, solve_by_averaging, solve_smooth, solve_with_kinks

Answer = tuple[Tensor, dict[str, Tensor]]


def lagrangian(problem: Problem) -> Answer:
    if problem.strongly_convex:
        rate = 0.3 if problem.dimension == 5 else 0.05  # below 2 × convexity / ‖A‖², or dual ascent diverges
        return solve_smooth(problem, rf.Lagrangian(dual_lr=rate), steps=300)
    # the Lagrangian of a linear program is linear in x: it has no minimiser, only the averages converge
    return solve_by_averaging(problem, rf.Lagrangian(dual_lr=0.05), steps=6000, lr=0.05)


# method -> (how it is solved, tolerance on objective and feasibility, tolerance on the multipliers or None)
RECIPES: dict[str, tuple[Callable[[Problem], Answer], float, float | None]] = {
    "log-barrier extension": (lambda p: solve_smooth(p, rf.LogBarrier(t=1.0, mu=4.0), 12), 1e-5, 1e-3),
    "quadratic penalty": (lambda p: solve_smooth(p, rf.Penalty(1.0, mu=4.0), 12), 1e-5, 1e-3),
    "augmented Lagrangian": (lambda p: solve_smooth(p, rf.AugmentedLagrangian(rho=10.0), 30), 1e-6, 1e-5),
    "Lagrangian": (lagrangian, 2e-2, 2e-2),
    # kinks: the loss has a range of slopes at the solution, so its duals() there are not the multipliers
    "linear penalty": (lambda p: solve_with_kinks(p, rf.Penalty(6.0, power=1), 4000, 0.03), 1e-2, None),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", RECIPES)
def test_reaches_the_optimum_and_its_multipliers(method: str, problem: str) -> None:
    case = PROBLEMS[problem]()
    solve, tolerance, dual_tolerance = RECIPES[method]
    x, duals = solve(case)
    assert case.objective(x).item() == pytest.approx(case.optimum, abs=tolerance * (1 + abs(case.optimum)))
    worst = max(residual.violation.max().item() for residual in case.constraints(x).values())
    assert worst <= tolerance
    if dual_tolerance is not None:
        for name, expected in case.multipliers.items():
            scale = 1 + expected.max().item()
            torch.testing.assert_close(duals[name], expected, rtol=0.0, atol=dual_tolerance * scale, msg=name)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_relu_lagrangian_reaches_the_optimum_from_above_the_multipliers(problem: str) -> None:
    """Its multipliers never fall: they end at or above the true ones, where the linear penalty is exact."""
    case = PROBLEMS[problem]()
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=10, growth=0)
    x, _ = solve_with_kinks(case, fence, 4000, 0.03)
    assert case.objective(x).item() == pytest.approx(case.optimum, abs=1e-3 * (1 + abs(case.optimum)))
    assert max(residual.violation.max().item() for residual in case.constraints(x).values()) <= 1e-3
    for name, expected in case.multipliers.items():
        largest = expected.reshape(-1, *fence.multipliers[name].shape).amax(dim=0)
        assert (fence.multipliers[name] >= largest - 1e-3).all(), name


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_distance_le_gap_le_bound_at_every_t(problem: str, weight: float) -> None:
    """The paper's Proposition 1: E - E* <= -Σ λ f <= PN/t, and E - gap is a lower bound even when infeasible."""
    case = PROBLEMS[problem]()
    weights = dict.fromkeys(case.multipliers, weight)
    x = torch.zeros(case.dimension, dtype=torch.float64, requires_grad=True)
    # λ never exceeds w·t: below the true multipliers a linear objective runs away, the others end infeasible
    start = 1.0 / weight if problem == "linear program" else 0.05
    fence = rf.LogBarrier(t=start, mu=3.0, weights=weights)
    feasible = []
    for _ in range(12):
        minimise(case, fence, x)
        certificate = fence.certificate(case.objective(x), parameters=[x], **case.constraints(x))
        slack = 1e-7 * (1 + abs(case.optimum)) + 10 * certificate.stationarity
        assert certificate.gap <= certificate.bound * (1 + 1e-12)
        assert certificate.bound == pytest.approx(weight * certificate.count / fence.t)
        assert certificate.lower_bound <= case.optimum + slack
        if certificate.feasible:
            assert -slack <= certificate.objective - case.optimum <= certificate.gap + slack
        feasible.append(certificate.feasible)
        fence.step()
    assert feasible[-1]
    assert feasible[0] == (problem == "linear program")  # so both kinds were looked at


@pytest.mark.parametrize("problem", ["quadratic program", "logistic regression"])
def test_lagrangians_certify_too(problem: str) -> None:
    case = PROBLEMS[problem]()
    x = torch.zeros(case.dimension, dtype=torch.float64, requires_grad=True)
    for fence in (rf.Lagrangian(dual_lr=0.05), rf.AugmentedLagrangian(rho=10.0)):
        for _ in range(20):
            minimise(case, fence, x)
            certificate = fence.certificate(case.objective(x), parameters=[x], **case.constraints(x))
            assert certificate.bound is None
            # at the Lagrangian's minimiser E - gap is the dual function, a lower bound of the optimum
            assert certificate.lower_bound <= case.optimum + 1e-7 + 10 * certificate.stationarity
            fence(**case.constraints(x))
            fence.step()
        if isinstance(fence, rf.AugmentedLagrangian):
            assert certificate.lower_bound == pytest.approx(case.optimum, abs=1e-5)
