"""Every method × convex problems whose optimum and multipliers are known: convergence, and what certificates say."""

from __future__ import annotations

import json
import runpy
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ringfence as rf
from convex import PROBLEMS, Fenced, Problem, Solved, minimise
from registry import METHODS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "core"
CELLS = [
    (method, problem)
    for method, entry in METHODS.items()
    for problem in PROBLEMS
    if entry.recipe is not None and entry.recipe.why_not(problem) is None
]


def problem_of(name: str) -> Problem:
    return PROBLEMS[name](0.0)


@cache
def solved(method: str, problem: str) -> Solved:
    return METHODS[method].solve(problem)


# The oracle


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_oracle_meets_the_conditions_of_optimality(problem: str, tolerance: float) -> None:
    """Feasible, λ >= 0 and 0 where there is room, and the Lagrangian is stationary: in a convex problem that is all."""
    case = PROBLEMS[problem](tolerance).with_means_as_numbers()
    x = case.solution.clone().requires_grad_()
    assert case.violation(x) <= 1e-9
    lagrangian = case.energy(x)
    for name, residual in case.limits(x).items():
        multiplier = case.multipliers[name]
        assert multiplier.shape == residual.f.shape
        assert (multiplier >= 0).all()
        assert (multiplier * residual.f).abs().max() <= 1e-9
        lagrangian = lagrangian + (multiplier * residual.f).sum()
    (gradient,) = torch.autograd.grad(lagrangian, x)
    assert gradient.norm() <= 1e-5


def test_the_oracle_knows_what_is_known_by_hand() -> None:
    toy = problem_of("two variables")
    assert toy.optimum == pytest.approx(2 / 3)
    mean = problem_of("limit on a mean")
    assert (mean.optimum, mean.multipliers["mean"].tolist()) == (2.0, [2.0, 2.0])
    die = problem_of("loaded die").solution
    by_jaynes = [0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749]  # in print since 1962
    torch.testing.assert_close(die, torch.tensor(by_jaynes, dtype=torch.float64), rtol=0.0, atol=5e-6)


# The matrix


def test_every_method_has_a_recipe() -> None:
    without = [name for name, entry in METHODS.items() if entry.recipe is None]
    assert not without, f"give {without} a recipe in tests/registry.py"


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_cannot_solve_has_a_reason(method: str) -> None:
    recipe = METHODS[method].recipe
    assert recipe is not None
    assert set(recipe.cannot) | set(recipe.special) <= set(PROBLEMS)
    for problem in PROBLEMS:
        why = recipe.why_not(problem)
        assert why is None or len(why.split()) > 3
    solves = sum(recipe.why_not(problem) is None for problem in PROBLEMS)
    assert solves >= 5


@pytest.mark.parametrize(("method", "problem"), CELLS)
def test_reaches_the_optimum_and_its_multipliers(method: str, problem: str) -> None:
    recipe = METHODS[method].recipe
    assert recipe is not None
    case, way, answer = recipe.problem(problem), recipe.way(problem), solved(method, problem)
    near = way.tolerance * (1 + abs(case.optimum))
    assert answer.objective <= near
    assert answer.violation <= near
    if isinstance(way.duals, float):
        assert answer.duals is not None
        assert answer.duals <= way.duals * (1 + case.largest_multiplier)


@pytest.mark.parametrize(("method", "problem"), [cell for cell in CELLS if cell[0].startswith("ReLU")])
def test_relu_lagrangians_end_above_the_multipliers(method: str, problem: str) -> None:
    """Their multipliers never fall: they end at or above the true ones, where the linear penalty is exact."""
    recipe = METHODS[method].recipe
    assert recipe is not None
    case, fence = recipe.problem(problem), solved(method, problem).fence
    assert isinstance(fence, rf.ReLULagrangian)
    for name, residual in case.limits(case.solution).items():
        expected = case.multipliers[name]
        expected = expected.amax(dim=-1) if residual.equality else expected
        assert (fence.multipliers[name] >= expected - 0.01 * (1 + case.largest_multiplier)).all(), name


def test_one_signed_multiplier_bears_a_rate_at_which_two_diverge() -> None:
    """An equality as two limits, with a multiplier each that knows nothing of the other, is what `rf.equal` spares."""
    recipe = METHODS["Lagrangian"].recipe
    assert recipe is not None
    equality = problem_of("one equality")
    assert (equality.lr, equality.dual_lr) == (0.1, 1.5)
    assert solved("Lagrangian", "one equality").objective < 1e-4

    def two_sides(x: Tensor, rows: Tensor) -> dict[str, rf.Residual]:
        return {"below": rf.at_most(x[0], 1.0), "above": rf.at_least(x[0], 1.0)}

    two = Problem(
        equality.objective, two_sides, equality.solution, {}, equality.start, equality.lr, equality.dual_lr
    )
    x, _ = recipe.iterated.solve(Fenced(two, rf.Lagrangian(dual_lr=1.5), indexed=True))
    assert two.violation(x) > 0.1


# Certificates


@pytest.mark.parametrize("problem", ["linear program", "quadratic program", "fair logistic regression"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_distance_le_gap_le_bound_at_every_t(problem: str, weight: float) -> None:
    """The paper's Proposition 1: at a minimiser E - E* <= -Σ λ f <= PN/t; E - gap is a lower bound, feasible or not."""
    case = problem_of(problem)
    weights = dict.fromkeys(case.multipliers, weight)
    x = case.start.clone().requires_grad_()
    # λ never exceeds w·t: below the true multipliers a linear objective runs away, the others end infeasible
    start = 1.0 / weight if problem == "linear program" else 0.05
    fence = rf.LogBarrier(t=start, mu=3.0, weights=weights)
    feasible = []
    for _ in range(12):
        minimise(Fenced(case, fence, indexed=False), x)
        radius = (x - case.solution).norm().item()
        certificate = fence.certificate(case.energy(x), parameters=[x], radius=radius, **case.limits(x))
        slack = 1e-7 * (1 + abs(case.optimum)) + 10 * certificate.stationarity
        assert certificate.gap <= certificate.bound * (1 + 1e-12)
        assert certificate.bound == pytest.approx(weight * certificate.count / fence.t)
        assert certificate.objective - certificate.gap <= case.optimum + slack
        assert certificate.lower_bound <= case.optimum + 1e-9
        if certificate.feasible:
            assert -slack <= certificate.objective - case.optimum <= certificate.gap + slack
        feasible.append(certificate.feasible)
        fence.step()
    assert feasible[-1]
    assert feasible[0] == (problem == "linear program")  # so both kinds were looked at


@pytest.mark.parametrize("problem", ["quadratic program", "fair logistic regression"])
def test_lagrangians_certify_too(problem: str) -> None:
    case = problem_of(problem)
    x = case.start.clone().requires_grad_()
    for fence in (rf.Lagrangian(dual_lr=case.dual_lr), rf.AugmentedLagrangian(rho=10.0)):
        fenced = Fenced(case, fence, indexed=True)
        for _ in range(20):
            minimise(fenced, x)
            radius = (x - case.solution).norm().item()
            certificate = fence.certificate(
                case.energy(x), parameters=[x], radius=radius, **fenced.given(x, case.rows)
            )
            assert certificate.bound is None
            # at the Lagrangian's minimiser E - gap is the dual function, a lower bound of the optimum
            assert certificate.lower_bound <= case.optimum + 1e-9
            fenced.loss(x, case.rows)
            fence.step()
        if isinstance(fence, rf.AugmentedLagrangian):
            assert certificate.lower_bound == pytest.approx(case.optimum, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_with_a_radius_a_certificate_holds_at_any_point(method: str) -> None:
    """gap + gradient norm × radius bounds E - E*, and E less that is below E*; the gap alone does neither."""
    random = torch.Generator().manual_seed(0)
    feasible = gap_was_wrong = 0
    for problem in ("quadratic program", "fair logistic regression", "two variables", "minimum norm, within 0.1"):
        case, entry = problem_of(problem), METHODS[method]
        fenced = Fenced(case, entry.make(), indexed=not entry.same_rows)
        for number in range(50):
            far = 10 ** (3 * torch.rand((), generator=random, dtype=torch.float64) - 2.5)
            off = far * torch.randn(case.solution.shape, generator=random, dtype=torch.float64)
            off = case.start - case.solution if number == 0 else off
            x = (case.solution + off).requires_grad_()
            fenced.loss(x, case.rows)
            if number % 5 == 0:  # so that λ, t and the strength are many
                fenced.fence.step()
            radius = off.norm().item() * (1 + torch.rand((), generator=random).item())
            certificate = fenced.fence.certificate(
                case.energy(x), parameters=[x], radius=radius, **fenced.given(x, case.rows)
            )
            rounding = 1e-9 * (1 + abs(case.optimum) + abs(certificate.gap))
            assert certificate.lower_bound <= case.optimum + rounding
            if certificate.feasible:
                feasible += 1
                above = certificate.objective - case.optimum
                assert above <= certificate.suboptimality + rounding
                gap_was_wrong += above > certificate.gap + rounding
    assert feasible >= 10
    assert gap_was_wrong >= 1


def test_without_parameters_or_radius_there_is_no_bound() -> None:
    case = problem_of("quadratic program")
    x = case.start.clone().requires_grad_()
    fence = rf.LogBarrier()
    for given in ({}, {"parameters": [x]}):
        certificate = fence.certificate(case.energy(x), **given, **case.limits(x))
        assert certificate.lower_bound is None
        assert certificate.suboptimality is None
        assert "no bound here" in str(certificate)
    bounded = fence.certificate(case.energy(x), parameters=[x], radius=10.0, **case.limits(x))
    assert bounded.suboptimality == bounded.gap + 10.0 * bounded.stationarity
    assert "no bound here" not in str(bounded)


# What is published


def test_the_published_table_is_of_this_matrix() -> None:
    result = json.loads((RESULTS / "convergence.json").read_text())
    assert list(result["distances"]) == list(METHODS)
    assert all(list(row) == list(PROBLEMS) for row in result["distances"].values())
    written = runpy.run_path(str(ROOT / "benchmarks" / "convergence.py"))["as_markdown"](result)
    assert (RESULTS / "convergence.md").read_text() == written
    assert written in (ROOT / "docs" / "convergence.md").read_text()
