"""Every method as the tests know it. A method added here is under all matrices: convexity, autograd, resume, ranks,
errors and GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import ringfence as rf
from convex import Options, Recipe, Solved, Way, descend, minimise_and_step

SAMPLES = 20
"""How many data points the tests have; no index is above."""


@dataclass(frozen=True)
class Entry:
    """One method in one of its ways.

    Attributes:
        make: builds it; takes the options that all methods take.
        phi: its term for one residual f and one multiplier λ, written out in scalars, of the method as ``make`` builds it.
        dual: whether it has explicit multipliers.
        by_rows: whether its calls say whose rows they are (``index=``).
        same_rows: whether every call must have the same rows.
        shared: whether all data points share a multiplier.
        recipe: how it solves the convex problems (``convex.PROBLEMS``), and how near it comes; every entry needs one.
    """

    make: Callable[..., rf.Method]
    phi: Callable[[float, float], float]
    dual: bool = False
    by_rows: bool = False
    same_rows: bool = False
    shared: bool = False
    recipe: Recipe | None = None

    def index(self, index: Tensor) -> Tensor | None:
        """What to pass as ``index=``: every method takes one, but those that were told that rows never change."""
        return None if self.same_rows else index

    def solve(self, problem: str) -> Solved:
        """Solve one of ``convex.PROBLEMS`` by the recipe."""
        assert self.recipe is not None
        return self.recipe.solve(problem, self.make, indexed=not self.same_rows)


def barrier_phi(f: float, _: float, t: float = 3.0) -> float:
    return -math.log(-f) / t if f <= -1 / t**2 else t * f - math.log(1 / t**2) / t + 1 / t


def augmented_phi(f: float, multiplier: float, rho: float = 0.7) -> float:
    return (max(0.0, multiplier + rho * f) ** 2 - multiplier**2) / (2 * rho)


def product(f: float, multiplier: float) -> float:
    return multiplier * f


def relu_product(f: float, multiplier: float) -> float:
    return multiplier * max(f, 0.0)


# How each method solves the convex problems. The tolerances are what its theory promises at the last t, strength or
# step, and a little more; the rates of the problems are those that plain gradient descent and dual ascent bear.

ITERATIONS = 300


def at_rate(share: float = 1.0, **options: Any) -> Options:
    """The problem's rate for dual ascent, or a share of it."""
    return lambda problem: {"dual_lr": share * problem.dual_lr, **options}


def by(make: Callable[..., torch.optim.Optimizer], share: float, **options: Any) -> Options:
    """A dual optimiser at the problem's rate for dual ascent, or a share of it."""
    return lambda problem: {"dual_optimiser": partial(make, lr=share * problem.dual_lr, **options)}


def always(**options: Any) -> Options:
    """The same for all problems."""
    return lambda _: options


def sharpening(options: Callable[[float], dict[str, Any]], room: float = 0.0) -> Recipe:
    """For what converges as t or a strength grows, from 1 by a factor at each step: ``options`` of that factor.

    A barrier is off by at most PN/t, a quadratic penalty by about λ²/4 strength. The curvature grows along, so that
    gradient descent must slow down, and there is only so far to go; L-BFGS takes it much farther.
    """
    last = 300.0

    def descent(iterations: int) -> Way:
        return Way(
            descend(iterations, slower=lambda done: last**-done),
            always(**options(last ** (1 / iterations))),
            tolerance=1.5e-2,
            duals=1e-1,
        )

    return Recipe(
        minimised=Way(minimise_and_step(6), always(**options(15.0)), tolerance=1e-5, duals=3e-3),
        iterated=descent(ITERATIONS),
        special={"mini-batches": descent(4 * ITERATIONS)},  # each data point is in every fourth batch
        room=room,
    )


def kinked(options: Options) -> Recipe:
    """For losses with a kink at the solution: subgradient descent with shrinking steps, averaged over its end."""
    why = "the loss has a kink at the solution, and duals() is only one of the slopes it has there"

    def descent(iterations: int) -> Way:
        solve = descend(iterations, slower=lambda done: (1.0 - done) ** 2, average=0.1)
        return Way(solve, options, tolerance=1e-2, duals=why)

    usual, longer = descent(ITERATIONS), descent(2 * ITERATIONS)
    # no curvature brings a linear objective back from beyond its limits: only λ does, once it is large enough;
    # and of the mini-batches each data point is in every fourth
    return Recipe(minimised=usual, iterated=usual, special={"linear program": longer, "mini-batches": longer})


def of_same_rows(recipe: Recipe) -> Recipe:
    """For methods that were told that rows never change."""
    return replace(recipe, cannot={"mini-batches": "shuffled batches do not have the same rows in every call"})


def of_the_mean(recipe: Recipe) -> Recipe:
    """For methods that limit the mean of the rows."""
    return replace(recipe, limits_mean=True)


# Between the two sides of an equality a barrier needs room: without, it is a linear penalty of slope t.
BARRIER = sharpening(lambda factor: {"t": 1.0, "mu": factor}, room=0.05)
BARRIER_WITH_A_FUNCTION = sharpening(lambda factor: {"t": lambda step: factor**step}, room=0.05)
QUADRATIC_PENALTY = sharpening(lambda factor: {"strength": 1.0, "mu": factor})
LINEAR_PENALTY = kinked(lambda problem: {"strength": 2.0 * problem.largest_multiplier})  # exact above the largest
RELU_LAGRANGIAN = kinked(at_rate(0.25))
RELU_LAGRANGIAN_SHARED = kinked(  # its λ climbs with the mean of the violations, so much smaller than each
    lambda problem: {
        "growth": 0,
        "dual_lr": {name: 0.2 * problem.dual_lr * number for name, number in problem.numbers.items()},
    }
)
LAGRANGIAN = Recipe(
    minimised=Way(minimise_and_step(35), at_rate(), tolerance=1e-5, duals=1e-4),
    iterated=Way(descend(400), at_rate(), tolerance=1e-4, duals=1e-4),
    # linear in x, the Lagrangian has no minimiser and the iterates circle around the saddle point: averages converge
    special={
        "linear program": Way(
            descend(700, slower=lambda _: 0.25, average=0.5), at_rate(0.5), tolerance=2e-2, duals=2e-2
        )
    },
)
LAGRANGIAN_BY_NUPI = Recipe(
    minimised=Way(minimise_and_step(35), by(rf.NuPI, 0.7, kp=0.2), tolerance=1e-3, duals=1e-2),
    iterated=Way(descend(200), by(rf.NuPI, 1.0, kp=2.0), tolerance=1e-5, duals=1e-5),
    # the proportional part takes the circling out: no averages are needed
    special={"linear program": Way(descend(400), by(rf.NuPI, 1.0, kp=3.0), tolerance=1e-3, duals=1e-2)},
)
ADAM = always(dual_optimiser=partial(torch.optim.Adam, lr=0.02))
LAGRANGIAN_BY_ADAM = Recipe(
    minimised=Way(minimise_and_step(60), by(torch.optim.Adam, 1.0, betas=(0.5, 0.99)), tolerance=5e-3, duals=5e-3),
    iterated=Way(descend(ITERATIONS), ADAM, tolerance=1e-2, duals=3e-2),
    # its steps are about as long as the rate, whatever the residual: it takes many to get to λ
    special={"mini-batches": Way(descend(700), ADAM, tolerance=1e-2, duals=3e-2)},
    cannot={
        "linear program": "what converges are averages of plain ascent, whose steps are in proportion to the residual; Adam's are not"
    },
)
AUGMENTED = Recipe(
    minimised=Way(
        minimise_and_step(20), always(rho=1.0, mu=4.0, max_rho=50.0, enough=0.25), tolerance=1e-6, duals=1e-5
    ),
    iterated=Way(descend(200), at_rate(rho=1.0, mu=1.0), tolerance=1e-5, duals=1e-5),
)
AUGMENTED_AT_ONE_RHO = replace(
    AUGMENTED, minimised=replace(AUGMENTED.minimised, options=always(rho=10.0, dual_lr=None))
)

METHODS: dict[str, Entry] = {
    "barrier": Entry(partial(rf.LogBarrier, t=3.0, mu=1.5), barrier_phi, recipe=BARRIER),
    "barrier with a function": Entry(
        partial(rf.LogBarrier, t=lambda step: 3.0 + step), barrier_phi, recipe=BARRIER_WITH_A_FUNCTION
    ),
    "quadratic penalty": Entry(
        partial(rf.Penalty, strength=2.0, mu=1.5), lambda f, _: 2 * max(f, 0.0) ** 2, recipe=QUADRATIC_PENALTY
    ),
    "linear penalty": Entry(
        partial(rf.Penalty, strength=2.0, power=1), lambda f, _: 2 * max(f, 0.0), recipe=LINEAR_PENALTY
    ),
    "Lagrangian": Entry(partial(rf.Lagrangian, dual_lr=0.5), product, dual=True, by_rows=True, recipe=LAGRANGIAN),
    "Lagrangian, samples declared": Entry(
        partial(rf.Lagrangian, dual_lr=0.5, samples=SAMPLES), product, dual=True, by_rows=True, recipe=LAGRANGIAN
    ),
    "Lagrangian, same rows": Entry(
        partial(rf.Lagrangian, dual_lr=0.5, same_rows=True),
        product,
        dual=True,
        same_rows=True,
        recipe=of_same_rows(LAGRANGIAN),
    ),
    "Lagrangian, shared": Entry(
        partial(rf.Lagrangian, dual_lr=0.5, shared=True),
        product,
        dual=True,
        shared=True,
        recipe=of_the_mean(LAGRANGIAN),
    ),
    "Lagrangian by Adam": Entry(
        partial(rf.Lagrangian, dual_optimiser=partial(torch.optim.Adam, lr=0.3)),
        product,
        dual=True,
        by_rows=True,
        recipe=LAGRANGIAN_BY_ADAM,
    ),
    "Lagrangian by nuPI": Entry(
        partial(rf.Lagrangian, dual_optimiser=partial(rf.NuPI, lr=0.3, kp=2.0, nu=0.5)),
        product,
        dual=True,
        by_rows=True,
        recipe=LAGRANGIAN_BY_NUPI,
    ),
    "ReLU Lagrangian": Entry(
        partial(rf.ReLULagrangian, dual_lr=0.5), relu_product, dual=True, by_rows=True, recipe=RELU_LAGRANGIAN
    ),
    "ReLU Lagrangian, shared, at intervals": Entry(
        partial(rf.ReLULagrangian, dual_lr=0.5, interval=2, growth=1, shared=True),
        relu_product,
        dual=True,
        shared=True,
        recipe=RELU_LAGRANGIAN_SHARED,
    ),
    "augmented": Entry(
        partial(rf.AugmentedLagrangian, rho=0.7, mu=1.5), augmented_phi, dual=True, by_rows=True, recipe=AUGMENTED
    ),
    "augmented, same rows": Entry(
        partial(rf.AugmentedLagrangian, rho=0.7, dual_lr=0.3, same_rows=True),
        augmented_phi,
        dual=True,
        same_rows=True,
        recipe=of_same_rows(AUGMENTED_AT_ONE_RHO),
    ),
    "augmented, shared": Entry(
        partial(rf.AugmentedLagrangian, rho=0.7, shared=True),
        augmented_phi,
        dual=True,
        shared=True,
        recipe=of_the_mean(AUGMENTED_AT_ONE_RHO),
    ),
}
