"""Convex problems with a known solution and known multipliers, two ways to solve them, and how near an answer is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import ringfence as rf

if TYPE_CHECKING:
    import cvxpy as cp  # otherwise imported by the oracle alone: every test imports the registry, and that this


@dataclass(frozen=True)
class Problem:
    """min objective(x, rows) subject to constraints(x, rows), and what an independent oracle says of it.

    Attributes:
        objective: E over the data points ``rows``; problems without data points are one data point, row 0.
        constraints: their residuals by name.
        solution: x*.
        multipliers: λ* by name, shaped like the residuals of all rows.
        start: where every solver starts.
        samples: how many data points there are.
        batch: how many of them a call sees.
        minimised: whether dual steps come when the loss is minimised (by L-BFGS); else at each iteration of
            gradient descent.
        lr: a rate for gradient descent on the Lagrangian, below 1 / its curvature.
        dual_lr: a rate for dual ascent, below 2 × convexity / (the constraints' slopes)².
        means: the names of which only the mean over the rows is limited.
        several: whether some name has several rows or entries, each with a limit of its own that is active.
    """

    objective: Callable[[Tensor, Tensor], Tensor]
    constraints: Callable[[Tensor, Tensor], dict[str, rf.Residual]]
    solution: Tensor
    multipliers: dict[str, Tensor]
    start: Tensor
    lr: float
    dual_lr: float
    samples: int = 1
    batch: int = 1
    minimised: bool = True
    means: frozenset[str] = frozenset()
    several: bool = False

    @property
    def rows(self) -> Tensor:
        """All data points."""
        return torch.arange(self.samples)

    @property
    def optimum(self) -> float:
        """E*."""
        return self.energy(self.solution).item()

    @property
    def largest_multiplier(self) -> float:
        """The largest λ*."""
        return max(one.max().item() for one in self.multipliers.values())

    @property
    def numbers(self) -> dict[str, int]:
        """How many limits a call has under each name; two sides are one."""
        residuals = self.constraints(self.start, self.rows[: self.batch])
        return {name: one.f.numel() // (2 if one.two_sided else 1) for name, one in residuals.items()}

    def energy(self, x: Tensor) -> Tensor:
        """E over all data points."""
        return self.objective(x, self.rows)

    def limits(self, x: Tensor) -> dict[str, rf.Residual]:
        """The residuals of all data points."""
        return self.constraints(x, self.rows)

    def violation(self, x: Tensor) -> float:
        """The worst, of what is limited: each residual, or its mean."""
        residuals = self.limits(x)
        return max(
            torch.relu(one.f.mean() if name in self.means else one.f).max().item()
            for name, one in residuals.items()
        )

    def with_means_as_numbers(self) -> Problem:
        """The same problem for a method that limits every row: it is given the mean, a residual without rows."""
        if not self.means:
            return self

        def constraints(x: Tensor, rows: Tensor) -> dict[str, rf.Residual]:
            given = self.constraints(x, rows)
            return {
                name: rf.at_most(one.f.mean(), 0.0) if name in self.means else one for name, one in given.items()
            }

        multipliers = {
            name: one.sum() if name in self.means else one  # λ·Σf = (λN)·mean(f)
            for name, one in self.multipliers.items()
        }
        return replace(self, constraints=constraints, multipliers=multipliers, means=frozenset())


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _oracle(
    x: cp.Variable, goal: cp.Expression, limits: dict[str, list[cp.Constraint]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """x* and λ* by cvxpy, with one row in front; a limit is a list of one side, or of (low, high)."""
    import cvxpy as cp

    problem = cp.Problem(cp.Minimize(goal), [one for group in limits.values() for one in group])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    duals = {}
    for name, group in limits.items():
        sides = [torch.as_tensor(one.dual_value, dtype=torch.float64).reshape(one.shape) for one in group]
        side = sides[0] if len(sides) == 1 else torch.stack(sides, dim=-1)
        duals[name] = side[None] if sides[0].ndim else side
    return torch.as_tensor(x.value, dtype=torch.float64), duals


def _sides(signed: Tensor) -> Tensor:
    """(low, high) of an equality's signed multiplier."""
    return torch.stack((-signed, signed), dim=-1).clamp(min=0.0)


@cache
def linear_program(_: float = 0.0) -> Problem:
    """A vertex of a bounded polytope: min cᵀx, Ax <= 1, -3 <= x <= 3."""
    import cvxpy as cp

    a, c = _random(0, 8, 4), _random(1, 4)
    x = cp.Variable(4)
    limits = {"rows": [a.numpy() @ x <= 1.0], "box": [x >= -3, x <= 3]}
    return Problem(
        lambda x, _: c @ x,
        lambda x, _: {"rows": rf.at_most((a @ x)[None], 1.0), "box": rf.between(x[None], -3.0, 3.0)},
        *_oracle(x, c.numpy() @ x, limits),
        start=torch.zeros_like(c),
        lr=0.2,
        dual_lr=0.1,
        several=True,
    )


@cache
def quadratic_program(_: float = 0.0) -> Problem:
    """A projection with a skewed metric: min ½ xᵀQx - cᵀx, Ax <= ½."""
    import cvxpy as cp

    a, root, c = torch.nn.functional.normalize(_random(34, 10, 5)), _random(3, 5, 5), 2.0 * _random(4, 5)
    q = root @ root.T / 5 + torch.eye(5, dtype=torch.float64)
    x = cp.Variable(5)
    limits = {"rows": [a.numpy() @ x <= 0.5]}
    return Problem(
        lambda x, _: 0.5 * x @ q @ x - c @ x,
        lambda x, _: {"rows": rf.at_most((a @ x)[None], 0.5)},
        *_oracle(x, 0.5 * cp.quad_form(x, cp.psd_wrap(q.numpy())) - c.numpy() @ x, limits),
        start=torch.zeros_like(c),
        lr=0.2,
        dual_lr=0.6,
        several=True,
    )


@cache
def fair_logistic_regression(_: float = 0.0) -> Problem:
    """Logistic regression whose weights are limited, and whose mean score may not depend on a group."""
    import cvxpy as cp

    features, labels = _classes()
    group = torch.where(_random(7, 60) > 0, 1.0, -1.0).double()
    direction = (group[:, None] * (features + 0.5 * group[:, None])).mean(dim=0)
    x = cp.Variable(4)
    goal = cp.sum(cp.logistic(-cp.multiply(labels.numpy(), features.numpy() @ x))) / 60 + 0.05 * cp.sum_squares(x)
    score = direction.numpy() @ x
    return Problem(
        lambda x, _: torch.nn.functional.softplus(-labels * (features @ x)).mean() + 0.05 * x.square().sum(),
        lambda x, _: {"weights": rf.at_most(x[None], 0.6), "fair": rf.between(direction @ x, -0.1, 0.1)},
        *_oracle(x, goal, {"weights": [x <= 0.6], "fair": [score >= -0.1, score <= 0.1]}),
        start=torch.zeros(4, dtype=torch.float64),
        lr=1.0,
        dual_lr=0.15,
        several=True,
    )


def _classes(noise: float = 1.0) -> tuple[Tensor, Tensor]:
    features, wobble = _random(5, 60, 4), noise * _random(6, 60)
    return features, torch.sign(features @ _vector(2.0, -1.0, 1.5, 0.5) + wobble)


@cache
def one_equality(tolerance: float = 0.0) -> Problem:
    """min x² subject to x = 1, at the rates at which two one-sided multipliers diverge (findings, D1)."""
    return Problem(
        lambda x, _: x.square().sum(),
        lambda x, _: {"one": rf.equal(x[0], 1.0, tolerance)},
        _vector(1.0 - tolerance),
        {"one": _sides(torch.tensor(-2.0 * (1.0 - tolerance), dtype=torch.float64))},
        start=_vector(0.0),
        lr=0.1,
        dual_lr=1.5,
        minimised=False,
    )


@cache
def minimum_norm(tolerance: float = 0.0) -> Problem:
    """cooper's: the shortest solution of an underdetermined system, min |x|² subject to Ax = b."""
    import cvxpy as cp

    a, b = torch.linalg.qr(_random(8, 6, 3)).Q.T + 0.1 * _random(13, 3, 6), _vector(1.0, -0.8, 0.4)
    x = cp.Variable(6)
    if tolerance:
        limits = {"system": [a.numpy() @ x >= b.numpy() - tolerance, a.numpy() @ x <= b.numpy() + tolerance]}
        solution, multipliers = _oracle(x, cp.sum_squares(x), limits)
    else:
        inverse = torch.linalg.inv(a @ a.T)
        solution, multipliers = a.T @ inverse @ b, {"system": _sides(-2.0 * inverse @ b)[None]}
    return Problem(
        lambda x, _: x.square().sum(),
        lambda x, _: {"system": rf.equal((a @ x - b)[None], 0.0, tolerance)},
        solution,
        multipliers,
        start=torch.zeros(6, dtype=torch.float64),
        lr=0.1,
        dual_lr=0.5,
        minimised=False,
        several=True,
    )


@cache
def minimum_norm_within(_: float = 0.0) -> Problem:
    """The same with a tolerance for every method: |Ax - b| <= 0.1."""
    return minimum_norm(0.1)


@cache
def two_variables(_: float = 0.0) -> Problem:
    """cooper's toy: min x² + 2y² subject to x + y >= 1 (active) and x² + y <= 1 (not)."""
    return Problem(
        lambda x, _: x[0].square() + 2.0 * x[1].square(),
        lambda x, _: {"sum": rf.at_least(x[0] + x[1], 1.0), "arch": rf.at_most(x[0].square() + x[1], 1.0)},
        _vector(2 / 3, 1 / 3),
        {"sum": torch.tensor(4 / 3, dtype=torch.float64), "arch": torch.tensor(0.0, dtype=torch.float64)},
        start=_vector(-1.0, 1.5),
        lr=0.1,
        dual_lr=0.5,
        minimised=False,
    )


@cache
def loaded_die(tolerance: float = 0.0) -> Problem:
    """cooper's: the die of largest entropy among those with a mean roll of 4.5."""
    faces = torch.arange(1.0, 7.0, dtype=torch.float64)
    solution, multipliers = _die_within(faces - 4.5, tolerance) if tolerance else _die(faces - 4.5)
    return Problem(
        lambda p, _: _negative_entropy(p).sum(),
        lambda p, _: {
            "total": rf.equal(p.sum(), 1.0, tolerance),
            "mean": rf.equal(((faces - 4.5) * p).sum(), 0.0, tolerance),
            "chances": rf.at_least(p[None], 0.0),
        },
        solution,
        multipliers,
        start=torch.full((6,), 1 / 6, dtype=torch.float64),
        lr=0.02,
        dual_lr=0.3,
    )


def _die(roll: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """In closed form but for one number: chances ∝ exp(tilt · roll), with the tilt that makes the mean roll 0."""
    tilt = torch.zeros((), dtype=torch.float64)
    for _ in range(20):  # Newton's; the derivative of the mean is the variance
        p = torch.softmax(tilt * roll, dim=0)
        tilt = tilt - (p @ roll) / (p @ roll.square() - (p @ roll).square())
    total = torch.logsumexp(tilt * roll, dim=0) - 1.0
    multipliers = {"total": _sides(total), "mean": _sides(-tilt), "chances": torch.zeros(1, 6, dtype=torch.float64)}
    return torch.softmax(tilt * roll, dim=0), multipliers


def _die_within(roll: Tensor, tolerance: float) -> tuple[Tensor, dict[str, Tensor]]:
    import cvxpy as cp

    x = cp.Variable(6)
    total, mean = cp.sum(x), roll.numpy() @ x
    limits = {
        "total": [total >= 1 - tolerance, total <= 1 + tolerance],
        "mean": [mean >= -tolerance, mean <= tolerance],
        "chances": [x >= 0],
    }
    return _oracle(x, -cp.sum(cp.entr(x)), limits)


def _negative_entropy(p: Tensor, lowest: float = 0.02) -> Tensor:
    """p log p, continued below ``lowest`` by its expansion to second order, so that solvers may step outside."""
    inside = p.clamp(min=lowest)
    below = (p - lowest).clamp(max=0.0)
    return inside * inside.log() + (math.log(lowest) + 1.0) * below + below.square() / (2.0 * lowest)


@cache
def short_logistic_regression(_: float = 0.0) -> Problem:
    """cooper's: logistic regression on generated data, with weights of at most unit length."""
    import cvxpy as cp

    features, labels = _classes(noise=2.0)
    x = cp.Variable(4)
    goal = cp.sum(cp.logistic(-cp.multiply(labels.numpy(), features.numpy() @ x))) / 60
    return Problem(
        lambda x, _: torch.nn.functional.softplus(-labels * (features @ x)).mean(),
        lambda x, _: {"length": rf.at_most(x.square().sum(), 1.0)},
        *_oracle(x, goal, {"length": [cp.sum_squares(x) <= 1]}),
        start=torch.zeros(4, dtype=torch.float64),
        lr=1.0,
        dual_lr=0.02,
    )


@cache
def limit_on_a_mean(_: float = 0.0) -> Problem:
    """min |x - (3, -1)|² subject to mean(x) <= 0: limiting each row would be another problem (findings, D2)."""
    return Problem(
        lambda x, _: (x - _vector(3.0, -1.0)).square().sum(),
        lambda x, _: {"mean": rf.at_most(x, 0.0)},
        _vector(2.0, -2.0),
        {"mean": _vector(2.0, 2.0)},
        start=_vector(0.0, 0.0),
        lr=0.2,
        dual_lr=1.5,
        samples=2,
        batch=2,
        means=frozenset({"mean"}),
    )


@cache
def mini_batches(_: float = 0.0) -> Problem:
    """A linear model with a target and a limit for each of 20 data points, seen in shuffled batches of 5.

    min ½ Σ (aₙᵀx - yₙ)² subject to aₙᵀx <= bₙ. As in a network there are more parameters than data points, so that
    each data point can be at its own optimum min(yₙ, bₙ): then mini-batches do not keep the end from being exact.
    """
    a = torch.linalg.qr(_random(9, 24, 20)).Q.T + 0.05 * _random(10, 20, 24)
    y, b = _random(11, 20), 0.5 * _random(12, 20)
    return Problem(
        lambda x, rows: 0.5 * (a[rows] @ x - y[rows]).square().sum(),
        lambda x, rows: {"limit": rf.at_most(a[rows] @ x - b[rows], 0.0)},
        torch.linalg.lstsq(a, torch.minimum(y, b)).solution,
        {"limit": torch.relu(y - b)},
        start=torch.zeros(24, dtype=torch.float64),
        lr=0.4,
        dual_lr=0.35,
        samples=20,
        batch=5,
        minimised=False,
        several=True,
    )


PROBLEMS: dict[str, Callable[[float], Problem]] = {
    "linear program": linear_program,
    "quadratic program": quadratic_program,
    "fair logistic regression": fair_logistic_regression,
    "limit on a mean": limit_on_a_mean,
    "two variables": two_variables,
    "loaded die": loaded_die,
    "short logistic regression": short_logistic_regression,
    "one equality": one_equality,
    "minimum norm": minimum_norm,
    "minimum norm, within 0.1": minimum_norm_within,
    "mini-batches": mini_batches,
}
"""By name, as functions of the tolerance that equalities are given (which those without equalities ignore)."""


@dataclass
class Fenced:
    """A problem with a method on it.

    Attributes:
        problem: to be solved.
        fence: the method.
        indexed: whether calls say which data points they see.
    """

    problem: Problem
    fence: rf.Method
    indexed: bool

    def loss(self, x: Tensor, rows: Tensor) -> Tensor:
        """E and the method's term, over the data points ``rows``."""
        return self.problem.objective(x, rows) + self.fence(**self.given(x, rows))

    def duals(self, x: Tensor) -> dict[str, Tensor]:
        """The method's λ for all data points."""
        return self.fence.duals(**self.given(x, self.problem.rows))

    def given(self, x: Tensor, rows: Tensor) -> dict[str, Any]:
        """What the method's verbs are given."""
        return self.problem.constraints(x, rows) | ({"index": rows} if self.indexed else {})

    def batches(self, shuffle: torch.Generator) -> tuple[Tensor, ...]:
        """The data points in random order, by the batch."""
        samples, batch = self.problem.samples, self.problem.batch
        return (self.problem.rows,) if batch == samples else torch.randperm(samples, generator=shuffle).split(batch)


Answer = tuple[Tensor, dict[str, Tensor]]
"""Where a solver ended: the point, and the method's ``duals()`` there."""

Solver = Callable[[Fenced], Answer]
Options = Callable[[Problem], Mapping[str, Any]]


def minimise(fenced: Fenced, x: Tensor) -> None:
    """Move x to the minimiser of objective + fence; the loss must be smooth."""
    fenced.fence.train(False)  # a line search's trial points are not what the dual step should see
    optimiser = torch.optim.LBFGS(
        [x], max_iter=100, tolerance_grad=1e-8, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = fenced.loss(x, fenced.problem.rows)
        loss.backward()
        return loss

    optimiser.step(closure)
    fenced.fence.train(True)


def minimise_and_step(steps: int) -> Solver:
    """Minimise, step, repeat."""

    def solve(fenced: Fenced) -> Answer:
        x = fenced.problem.start.clone().requires_grad_()
        for step in range(steps):
            minimise(fenced, x)
            if step < steps - 1:
                fenced.loss(x, fenced.problem.rows)  # seen: what the dual step goes by
                fenced.fence.step()
        return x.detach(), fenced.duals(x)

    return solve


def descend(iterations: int, slower: Callable[[float], float] = lambda done: 1.0, average: float = 0.0) -> Solver:
    """A gradient step and ``fence.step()`` at each iteration.

    Args:
        iterations: how many, in whole epochs; one for each batch.
        slower: the share of the problem's rate to go at, from the share of the epochs done.
        average: over which last share of the epochs to average the answer; 0 is the last point alone.
    """

    def solve(fenced: Fenced) -> Answer:
        problem, shuffle = fenced.problem, torch.Generator().manual_seed(0)
        epochs = iterations * problem.batch // problem.samples
        x = problem.start.clone().requires_grad_()
        points: list[Tensor] = []
        duals: list[dict[str, Tensor]] = []
        for epoch in range(epochs):
            for rows in fenced.batches(shuffle):
                (gradient,) = torch.autograd.grad(fenced.loss(x, rows), x)
                x = (x - problem.lr * slower(epoch / epochs) * gradient).detach().requires_grad_()
                fenced.fence.step()
            if epoch >= (1.0 - average) * epochs or epoch == epochs - 1:
                points.append(x.detach())
                duals.append(fenced.duals(x))
        mean = {name: torch.stack([one[name] for one in duals]).mean(dim=0) for name in duals[0]}
        return torch.stack(points).mean(dim=0), mean

    return solve


@dataclass(frozen=True)
class Way:
    """One way for a method to go through a problem, and how near it comes by its theory.

    Attributes:
        solve: the solver.
        options: from the problem to the method's options, in place of those that the registry builds it with.
        tolerance: on E and on the violation, in units of 1 + |E*|.
        duals: the same for ``duals()``, in units of 1 + the largest λ*; or why they are not the multipliers.
    """

    solve: Solver
    options: Options
    tolerance: float
    duals: float | str


@dataclass(frozen=True)
class Solved:
    """Where a method ended on a problem, and how far from what the oracle says.

    Attributes:
        fence: the method.
        x: the point.
        objective: |E - E*|.
        violation: the worst max(f, 0).
        duals: the largest |λ - λ*|; None where ``duals()`` are not the multipliers.
    """

    fence: rf.Method
    x: Tensor
    objective: float
    violation: float
    duals: float | None


@dataclass(frozen=True)
class Recipe:
    """How a method solves the convex problems.

    Attributes:
        minimised: where dual steps come once the loss is minimised.
        iterated: where they come at each iteration.
        special: by problem, what differs.
        cannot: by problem, why its theory says that it does not get there.
        limits_mean: whether it is the mean over the rows that it limits.
        room: the tolerance that it is given for an equality.
    """

    minimised: Way
    iterated: Way
    special: Mapping[str, Way] = field(default_factory=dict)
    cannot: Mapping[str, str] = field(default_factory=dict)
    limits_mean: bool = False
    room: float = 0.0

    def problem(self, name: str) -> Problem:
        """The problem as this method is given it."""
        problem = PROBLEMS[name](self.room)
        return problem if self.limits_mean else problem.with_means_as_numbers()

    def gives_room(self, name: str) -> bool:
        """Whether the problem has exact equalities, and the method is given a tolerance for them."""
        return PROBLEMS[name](self.room).optimum != PROBLEMS[name](0.0).optimum

    def why_not(self, name: str) -> str | None:
        """Why the method does not solve the problem, in words; None if it does."""
        if self.limits_mean and self.problem(name).several:
            return "shared multipliers limit the mean of the rows, not each: that is another problem"
        return self.cannot.get(name)

    def way(self, name: str) -> Way:
        """How it is solved."""
        usual = self.minimised if self.problem(name).minimised else self.iterated
        return self.special.get(name, usual)

    def solve(self, name: str, make: Callable[..., rf.Method], indexed: bool) -> Solved:
        """Go through the problem; ``make`` builds the method, ``indexed`` is whether its calls say whose rows."""
        problem, way = self.problem(name), self.way(name)
        fence = make(**way.options(problem))
        x, duals = way.solve(Fenced(problem, fence, indexed))
        off = [(duals[one] - expected).abs().max().item() for one, expected in problem.multipliers.items()]
        return Solved(
            fence,
            x,
            objective=abs(problem.energy(x).item() - problem.optimum),
            violation=problem.violation(x),
            duals=None if isinstance(way.duals, str) else max(off),
        )
