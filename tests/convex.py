"""Convex problems with a known optimum and known multipliers (from cvxpy), and three ways to solve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import cvxpy as cp
import torch
from torch import Tensor

import ringfence as rf


@dataclass(frozen=True)
class Problem:
    """min objective(x) subject to constraints(x), with cvxpy's optimum and multipliers."""

    dimension: int
    objective: Callable[[Tensor], Tensor]
    constraints: Callable[[Tensor], dict[str, rf.Residual]]
    optimum: float
    multipliers: dict[str, Tensor]  # shaped like the residuals
    strongly_convex: bool


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _solve(
    x: cp.Variable, goal: cp.Expression, limits: dict[str, list[cp.Constraint]]
) -> tuple[float, dict[str, Tensor]]:
    problem = cp.Problem(cp.Minimize(goal), [one for group in limits.values() for one in group])
    value = problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    duals = {}
    for name, group in limits.items():
        sides = [torch.as_tensor(one.dual_value, dtype=torch.float64) for one in group]
        duals[name] = sides[0] if len(sides) == 1 else torch.stack(sides, dim=-1)
    return float(value), duals


@cache
def linear_program() -> Problem:
    """A vertex of a bounded polytope: min cᵀx, Ax <= b, -3 <= x <= 3."""
    a, c = _random(0, 8, 4), _random(1, 4)
    b = torch.ones(8, dtype=torch.float64)
    x = cp.Variable(4)
    limits = {"rows": [a.numpy() @ x <= b.numpy()], "box": [x >= -3, x <= 3]}
    optimum, multipliers = _solve(x, c.numpy() @ x, limits)
    return Problem(
        4,
        lambda x: c @ x,
        lambda x: {"rows": rf.at_most(a @ x, b), "box": rf.between(x, -3.0, 3.0)},
        optimum,
        multipliers,
        strongly_convex=False,
    )


@cache
def quadratic_program() -> Problem:
    """A projection with a skewed metric: min ½ xᵀQx - cᵀx, Ax <= b."""
    a, root, c = _random(2, 10, 5), _random(3, 5, 5), 4.0 * _random(4, 5)
    q = root @ root.T / 5 + torch.eye(5, dtype=torch.float64)
    b = torch.ones(10, dtype=torch.float64)
    x = cp.Variable(5)
    limits = {"rows": [a.numpy() @ x <= b.numpy()]}
    optimum, multipliers = _solve(x, 0.5 * cp.quad_form(x, cp.psd_wrap(q.numpy())) - c.numpy() @ x, limits)
    return Problem(
        5,
        lambda x: 0.5 * x @ q @ x - c @ x,
        lambda x: {"rows": rf.at_most(a @ x, b)},
        optimum,
        multipliers,
        strongly_convex=True,
    )


@cache
def logistic_regression() -> Problem:
    """Logistic regression whose weights are limited, and whose mean score may not depend on a group."""
    features, noise = _random(5, 60, 4), _random(6, 60)
    labels = torch.sign(features @ torch.tensor([2.0, -1.0, 1.5, 0.5], dtype=torch.float64) + noise)
    group = torch.where(_random(7, 60) > 0, 1.0, -1.0).double()
    direction = (group[:, None] * (features + 0.5 * group[:, None])).mean(dim=0)
    x = cp.Variable(4)
    margins = cp.multiply(labels.numpy(), features.numpy() @ x)
    goal = cp.sum(cp.logistic(-margins)) / 60 + 0.05 * cp.sum_squares(x)
    score = direction.numpy() @ x
    limits = {"weights": [x <= 0.6], "fair": [score >= -0.1, score <= 0.1]}
    optimum, multipliers = _solve(x, goal, limits)
    return Problem(
        4,
        lambda x: torch.nn.functional.softplus(-labels * (features @ x)).mean() + 0.05 * x.square().sum(),
        lambda x: {"weights": rf.at_most(x, 0.6), "fair": rf.between(direction @ x, -0.1, 0.1)},
        optimum,
        multipliers,
        strongly_convex=True,
    )


PROBLEMS = {
    "linear program": linear_program,
    "quadratic program": quadratic_program,
    "logistic regression": logistic_regression,
}


def minimise(problem: Problem, fence: rf.Method, x: Tensor, iterations: int = 500) -> None:
    """Move x to the minimiser of objective + fence; the loss must be smooth."""
    fence.train(False)  # a line search's trial points are not what the dual step should see
    optimiser = torch.optim.LBFGS(
        [x], max_iter=iterations, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = problem.objective(x) + fence(**problem.constraints(x))
        loss.backward()
        return loss

    optimiser.step(closure)
    fence.train(True)


def solve_smooth(problem: Problem, fence: rf.Method, steps: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Minimise, step, repeat; the last point and the method's duals there."""
    x = torch.zeros(problem.dimension, dtype=torch.float64, requires_grad=True)
    for step in range(steps):
        minimise(problem, fence, x)
        duals = fence.duals(**problem.constraints(x))
        fence(**problem.constraints(x))  # seen: what the dual step goes by
        if step < steps - 1:
            fence.step()
    return x.detach(), duals


def solve_by_averaging(
    problem: Problem, fence: rf.Method, steps: int, lr: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Alternate one gradient and one dual step, and average: where the Lagrangian has no minimiser of its own."""
    x = torch.zeros(problem.dimension, dtype=torch.float64, requires_grad=True)
    points: list[Tensor] = []
    duals: list[dict[str, Tensor]] = []
    for step in range(steps):
        loss = problem.objective(x) + fence(**problem.constraints(x))
        (gradient,) = torch.autograd.grad(loss, x)
        x = (x - lr * gradient).detach().requires_grad_()
        if step >= steps // 2:
            points.append(x.detach())
            duals.append(fence.duals(**problem.constraints(x)))
        fence.step()
    mean = {name: torch.stack([one[name] for one in duals]).mean(dim=0) for name in duals[0]}
    return torch.stack(points).mean(dim=0), mean


def solve_with_kinks(problem: Problem, fence: rf.Method, steps: int, lr: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Subgradient descent with shrinking steps, averaged over its end: for losses with a kink at the boundary."""
    x = torch.zeros(problem.dimension, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=lr)
    points = []
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1.0 - step / steps) ** 2
        optimiser.zero_grad()
        loss = problem.objective(x) + fence(**problem.constraints(x))
        loss.backward()
        optimiser.step()
        if step >= 0.9 * steps:
            points.append(x.detach().clone())
    return torch.stack(points).mean(dim=0), {}
