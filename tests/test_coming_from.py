"""docs/coming-from.md: every pair of snippets runs, and ends at the same answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cooper
import pytest
import torch
from humancompatible.train.dual_optim import ALM
from torch import Tensor

import ringfence as rf

PAGE = (Path(__file__).parent.parent / "docs" / "coming-from.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Claim:
    """What the page says of a pair.

    Attributes:
        optimum: the right answer, in the snippets' order: x, then λ.
        apart: how far the two may be from each other.
        off: how far each may be from the optimum.
    """

    optimum: tuple[Any, ...]
    apart: float = 1e-4
    off: float = 1e-4


BUDGET = ([1.0, 0.0], 2.0)
CLAIMS = {
    "Lagrangian": Claim(BUDGET),
    "Augmented Lagrangian whose ρ grows": Claim(BUDGET),
    "A multiplier for each data point": Claim(([0.0, 0.5, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0, 2.0, 3.0])),
    "Strict violation": Claim((-0.4,), off=0.01),
    "nuPI": Claim(BUDGET),
    "λ as a network": Claim(([1.0] * 8, torch.nn.functional.softplus(2.0 * torch.linspace(-1.0, 1.0, 8)))),
    "Equality": Claim(([2.5, 1.5], -1.0)),
    "ALM without penalty": Claim(BUDGET),
    "ALM with penalty": Claim(BUDGET),
    "nuPI as a dual optimizer": Claim(BUDGET),
    "Penalty-barrier, PBM": Claim(BUDGET, apart=0.01, off=0.01),
}
LOOP = "The barrier as a loop over scalars"  # at a finite t: no optimum to compare with


def pairs() -> dict[str, list[str]]:
    """The snippets of each section that has any, by heading."""
    sections = (section.partition("\n") for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:])
    return {heading: BLOCK.findall(re.split(r"^## ", text, flags=re.MULTILINE)[0]) for heading, _, text in sections}


def run(heading: str, iterations: int | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """Their answer and ours; with ``iterations``, after so many only."""
    first = BLOCK.search(PAGE)
    assert first is not None
    space: dict[str, Any] = {"__name__": "page"}
    for snippet in (first[1], *pairs()[heading]):
        if iterations is not None:
            snippet = re.sub(r"range\(\d+\)", f"range({iterations})", snippet)
        exec(snippet, space)
    theirs, ours = ([part.flatten() for part in space[name]] for name in ("theirs", "ours"))
    return theirs, ours


def far(one: Tensor, other: Any) -> float:
    return (one - torch.as_tensor(other)).abs().max().item()


def test_every_snippet_belongs_to_a_pair_and_every_pair_is_tested() -> None:
    found = pairs()
    assert {heading: len(snippets) for heading, snippets in found.items()} == dict.fromkeys([*CLAIMS, LOOP], 2)
    assert len(BLOCK.findall(PAGE)) == 1 + 2 * len(found)


@pytest.mark.parametrize("heading", CLAIMS)
def test_both_end_at_the_optimum(heading: str) -> None:
    claim = CLAIMS[heading]
    theirs, ours = run(heading)
    assert len(theirs) == len(ours) == len(claim.optimum)
    for their, our, best in zip(theirs, ours, claim.optimum, strict=True):
        assert far(their, our) <= claim.apart
        assert far(their, best) <= claim.off
        assert far(our, best) <= claim.off


def test_the_authors_loop_and_the_barrier_are_the_same_function() -> None:
    (their_x, their_t), (x, t) = run(LOOP)
    assert far(their_x, x) < 1e-6
    assert far(their_t, t) < 1e-5
    targets = torch.linspace(0.0, 2.0, 20)
    optimum = (targets - 1.0).relu().square().sum()
    assert bool((x < 1.0).all())
    assert 0.0 < (x - targets).square().sum() - optimum < 20 / (t / 1.1)  # PN/t, at the t of the last epoch


@pytest.mark.parametrize(
    "heading", ["Lagrangian", "A multiplier for each data point", "Strict violation", "Equality", LOOP]
)
@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_paths_are_the_same_step_by_step(heading: str, iterations: int) -> None:
    for their, our in zip(*run(heading, iterations), strict=True):
        assert far(their, our) < 1e-6


def wanted(x: Tensor) -> Tensor:
    return (x - torch.tensor([2.0, 1.0])).square().sum()


def descend(x: Tensor, loss: Tensor, rate: float = 0.1) -> None:
    (gradient,) = torch.autograd.grad(loss, x)
    with torch.no_grad():
        x -= rate * gradient


def test_observe_before_the_step_is_coopers_alternating_optimizer() -> None:
    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.budget = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def compute_cmp_state(self, x: Tensor) -> cooper.CMPState:
            state = cooper.ConstraintState(violation=x.sum() - 1.0)
            return cooper.CMPState(loss=wanted(x), observed_constraints={self.budget: state})

    theirs, ours = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    problem, fence = Problem(), rf.Lagrangian(dual_lr=0.1)
    optimizer = cooper.optim.AlternatingPrimalDualOptimizer(
        problem,
        torch.optim.SGD([theirs], lr=0.1),
        torch.optim.SGD(problem.dual_parameters(), lr=0.1, maximize=True),
    )
    for _ in range(20):
        optimizer.roll(compute_cmp_state_kwargs={"x": theirs})
        descend(ours, wanted(ours) + fence(budget=rf.at_most(ours.sum(), 1.0)))
        fence.observe(budget=rf.at_most(ours.sum(), 1.0))
        fence.step()
        assert far(theirs, ours) < 1e-6
        assert far(problem.budget.multiplier(), fence.multipliers["budget"]) < 1e-6


def test_a_step_before_the_call_is_forward_update() -> None:
    theirs, ours = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    dual, fence = ALM(m=1, lr=0.1, is_ineq=True), rf.Lagrangian(dual_lr=0.1)
    for _ in range(20):
        descend(theirs, dual.forward_update(wanted(theirs), theirs.sum() - 1.0))
        f = rf.at_most(ours.sum(), 1.0)
        fence.observe(budget=f)
        fence.step()
        descend(ours, wanted(ours) + fence(budget=f))
        assert far(theirs, ours) < 1e-6
        assert far(dual.duals, fence.multipliers["budget"]) < 1e-6


def test_a_penalty_coefficient_is_twice_our_strength() -> None:
    f = torch.tensor([-1.0, 0.5, 2.0])
    coefficient = cooper.penalty_coefficients.DensePenaltyCoefficient(init=torch.tensor(3.0))
    formulation = cooper.formulations.QuadraticPenalty(cooper.ConstraintType.INEQUALITY)
    theirs = formulation.compute_contribution_to_primal_lagrangian(cooper.ConstraintState(violation=f), coefficient)
    assert far(theirs.lagrangian_contribution, rf.Penalty(strength=1.5)(c=f)) < 1e-6


def test_names_on_the_page_are_there() -> None:
    for name in set(re.findall(r"\brf\.(\w+)", PAGE)):
        assert hasattr(rf, name), name
