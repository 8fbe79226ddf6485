"""Every method as the tests know it. A method added here is under all matrices: convexity, autograd, resume, ranks,
errors and GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import ringfence as rf

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
    """

    make: Callable[..., rf.Method]
    phi: Callable[[float, float], float]
    dual: bool = False
    by_rows: bool = False
    same_rows: bool = False
    shared: bool = False

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
