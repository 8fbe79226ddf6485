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
from convex import Problem, Recipe, Way, descend, minimise_and_step

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
        recipe: how it solves the convex problems, and how near it comes.
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


def barrier_phi(f: float, _: float, t: float = 3.0) -> float:
    return -math.log(-f) / t if f <= -1 / t**2 else t * f - math.log(1 / t**2) / t + 1 / t


def augmented_phi(f: float, multiplier: float, rho: float = 0.7) -> float:
    return (max(0.0, multiplier + rho * f) ** 2 - multiplier**2) / (2 * rho)


def product(f: float, multiplier: float) -> float:
    return multiplier * f


def relu_product(f: float, multiplier: float) -> float:
    return multiplier * max(f, 0.0)


ITERATIONS = 600
SHARPEST = 300.0


def each(name: str, rate: float = 1.0) -> Callable[[Problem], dict[str, Any]]:
    return lambda problem: {name: rate * problem.dual_lr}


def by(make: Callable[..., torch.optim.Optimizer], rate: float, **options: Any) -> Callable[[Problem], dict[str, Any]]:
    return lambda problem: {"dual_optimiser": partial(make, lr=rate * problem.dual_lr, **options)}


SHRINKING = descend(ITERATIONS, slower=lambda done: SHARPEST**-done)
BARRIER = Recipe(
    Way(minimise_and_step(8), lambda _: {"t": 1.0, "mu": 7.0}, tolerance=1e-5, duals=1e-3),
    Way(SHRINKING, lambda _: {"t": 1.0, "mu": SHARPEST ** (1 / ITERATIONS)}, tolerance=1e-2, duals=5e-2),
    room=0.02,
)
BARRIER_WITH_A_FUNCTION = Recipe(
    Way(minimise_and_step(8), lambda _: {"t": lambda step: 7.0**step}, tolerance=1e-5, duals=1e-3),
    Way(SHRINKING, lambda _: {"t": lambda step: SHARPEST ** (step / ITERATIONS)}, tolerance=1e-2, duals=5e-2),
    room=0.02,
)
QUADRATIC = Recipe(
    Way(minimise_and_step(8), lambda _: {"strength": 1.0, "mu": 7.0}, tolerance=1e-5, duals=1e-3),
    Way(SHRINKING, lambda _: {"strength": 1.0, "mu": SHARPEST ** (1 / ITERATIONS)}, tolerance=1e-2, duals=5e-2),
)
KINK = "at the solution the loss has a kink, and duals() is one of its slopes there"


def kinked(options: Callable[[Problem], dict[str, Any]]) -> Recipe:
    """Subgradient descent with shrinking steps, averaged over its end."""
    way = Way(descend(ITERATIONS, slower=lambda done: (1.0 - done) ** 2, average=0.1), options, 1e-2, KINK)
    return Recipe(way, way)


def largest(problem: Problem) -> float:
    return max(one.max().item() for one in problem.multipliers.values())

LINEAR = kinked(lambda problem: {"strength": 2.0 * largest(problem)})
RELU = kinked(each("dual_lr", 0.1))
RELU_SHARED = kinked(each("dual_lr", 2.0))

LAGRANGIAN = Recipe(
    Way(minimise_and_step(80), each("dual_lr"), 1e-3, 1e-2),
    Way(descend(ITERATIONS), each("dual_lr"), 1e-6, 1e-6),
    special={"linear program": Way(descend(1500, average=0.5), each("dual_lr"), 2e-2, 2e-2)},
)
SHARED = replace(LAGRANGIAN, limits_mean=True)
SAME = replace(LAGRANGIAN, cannot={"mini-batches": "shuffled rows are not the same rows in every call"})

ADAM = Recipe(
    Way(minimise_and_step(80), by(torch.optim.Adam, 1.0), 1e-2, 1e-1),
    Way(descend(ITERATIONS), by(torch.optim.Adam, 0.1), 1e-2, 1e-1),
    cannot={"linear program": "no"},
)
NUPI = Recipe(
    Way(minimise_and_step(80), by(rf.NuPI, 0.5, kp=0.5), 1e-3, 1e-2),
    Way(descend(ITERATIONS), by(rf.NuPI, 1.0, kp=2.0), 1e-6, 1e-6),
    special={"linear program": Way(descend(1500), by(rf.NuPI, 1.0, kp=4.0), 1e-6, 1e-6)},
)
AUGMENTED = Recipe(
    Way(minimise_and_step(20), lambda _: {"rho": 1.0, "mu": 4.0, "enough": 0.25}, 1e-6, 1e-5),
    Way(descend(ITERATIONS), lambda problem: {"rho": 1.0, "dual_lr": problem.dual_lr, "mu": 1.0}, 1e-6, 1e-6),
)
AUGMENTED_SAME = Recipe(
    Way(minimise_and_step(20), lambda _: {"rho": 10.0, "dual_lr": None}, 1e-6, 1e-5),
    AUGMENTED.iterated, cannot={"mini-batches": "shuffled rows are not the same rows in every call"}
)
AUGMENTED_SHARED = Recipe(
    AUGMENTED_SAME.minimised, AUGMENTED.iterated, limits_mean=True,
)
METHODS: dict[str, Entry] = {
    "barrier": Entry(partial(rf.LogBarrier, t=3.0, mu=1.5), barrier_phi),
    "barrier with a function": Entry(partial(rf.LogBarrier, t=lambda step: 3.0 + step), barrier_phi),
    "quadratic penalty": Entry(partial(rf.Penalty, strength=2.0, mu=1.5), lambda f, _: 2 * max(f, 0.0) ** 2),
    "linear penalty": Entry(partial(rf.Penalty, strength=2.0, power=1), lambda f, _: 2 * max(f, 0.0)),
    "Lagrangian": Entry(partial(rf.Lagrangian, dual_lr=0.5), product, dual=True, by_rows=True),
    "Lagrangian, samples declared": Entry(
        partial(rf.Lagrangian, dual_lr=0.5, samples=SAMPLES), product, dual=True, by_rows=True
    ),
    "Lagrangian, same rows": Entry(
        partial(rf.Lagrangian, dual_lr=0.5, same_rows=True), product, dual=True, same_rows=True
    ),
    "Lagrangian, shared": Entry(partial(rf.Lagrangian, dual_lr=0.5, shared=True), product, dual=True, shared=True),
    "Lagrangian by Adam": Entry(
        partial(rf.Lagrangian, dual_optimiser=partial(torch.optim.Adam, lr=0.3)), product, dual=True, by_rows=True
    ),
    "Lagrangian by nuPI": Entry(
        partial(rf.Lagrangian, dual_optimiser=partial(rf.NuPI, lr=0.3, kp=2.0, nu=0.5)),
        product,
        dual=True,
        by_rows=True,
    ),
    "ReLU Lagrangian": Entry(partial(rf.ReLULagrangian, dual_lr=0.5), relu_product, dual=True, by_rows=True),
    "ReLU Lagrangian, shared, at intervals": Entry(
        partial(rf.ReLULagrangian, dual_lr=0.5, interval=2, growth=1, shared=True),
        relu_product,
        dual=True,
        shared=True,
    ),
    "augmented": Entry(partial(rf.AugmentedLagrangian, rho=0.7, mu=1.5), augmented_phi, dual=True, by_rows=True),
    "augmented, same rows": Entry(
        partial(rf.AugmentedLagrangian, rho=0.7, dual_lr=0.3, same_rows=True), augmented_phi, dual=True, same_rows=True
    ),
    "augmented, shared": Entry(
        partial(rf.AugmentedLagrangian, rho=0.7, shared=True), augmented_phi, dual=True, shared=True
    ),
}

RECIPES = dict(zip(METHODS, [BARRIER, BARRIER_WITH_A_FUNCTION, QUADRATIC, LINEAR, LAGRANGIAN, LAGRANGIAN, SAME, SHARED, ADAM, NUPI, RELU, RELU_SHARED, AUGMENTED, AUGMENTED_SAME, AUGMENTED_SHARED], strict=True))
METHODS = {name: replace(entry, recipe=RECIPES[name]) for name, entry in METHODS.items()}
