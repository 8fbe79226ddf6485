"""A limit on what has no gradient: the example of a rate limit, and what ``rf.surrogate`` means to each verb."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ringfence as rf
from children import python

ROOT = Path(__file__).parent.parent


def example(*options: str) -> subprocess.CompletedProcess[str]:
    return python("-W", "error", "examples/rate_limit.py", *options, cwd=ROOT)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_limit_on_decisions_holds_and_that_on_the_surrogate_misses(seed: int) -> None:
    done = example("--seed", str(seed))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {
        found[1].strip(): [float(number) for number in found.groups()[1:]]
        for found in re.finditer(r"^(.{20})\s+([\d.]+)%\s+([\d.]+)%\s+([\d.]+)%\s+([\d.]+)$", done.stdout, re.M)
    }
    assert list(rows) == ["no limit", "on the surrogate", "on the decisions"]
    free, soft, strict = rows.values()  # missed, rate on training data, rate on held-out data, λ
    assert strict[1] == pytest.approx(5.0, abs=0.3)
    assert strict[2] == pytest.approx(5.0, abs=1.0)
    assert free[1] > 8.0  # so the limit was worth something
    assert soft[1] < 3.0  # the hinge is above the rate: too tight,
    assert soft[0] > 2.0 * strict[0]  # and cases are missed for it
    assert free[3] == 0.0
    assert strict[3] > 0.0


def test_help_and_a_bad_option() -> None:
    assert "--epochs" in example("--help").stdout
    done = example("--epochs", "0")
    assert done.returncode == 2
    assert "--epochs must be at least 1" in done.stderr


# The meaning of rf.surrogate

METHODS: dict[str, Callable[[], rf.Method]] = {
    "Lagrangian": lambda: rf.Lagrangian(dual_lr=0.5, initial=1.0),
    "ReLU Lagrangian": lambda: rf.ReLULagrangian(dual_lr=0.5, initial=1.0),
    "augmented Lagrangian": lambda: rf.AugmentedLagrangian(rho=2.0, dual_lr=0.5, initial=1.0),
}


def soft() -> Tensor:
    return torch.tensor(0.25, requires_grad=True)


@pytest.mark.parametrize("name", METHODS)
def test_the_multiplier_climbs_by_what_is_strict(name: str) -> None:
    for strict, climbed in [(1.0, 1.5), (0.0, 1.0)]:
        fence = METHODS[name]()
        fence(rate=rf.surrogate(soft(), torch.tensor(strict)))
        fence.step()
        assert fence.multipliers["rate"].item() == climbed


def test_the_multiplier_falls_where_the_strict_one_holds_though_the_soft_one_does_not() -> None:
    fence = rf.Lagrangian(dual_lr=0.5, initial=1.0)
    fence(rate=rf.surrogate(soft(), torch.tensor(-1.0)))
    fence.step()
    assert fence.multipliers["rate"].item() == 0.5


@pytest.mark.parametrize(
    "make", [*METHODS.values(), lambda: rf.Penalty(strength=2.0), lambda: rf.LogBarrier(t=3.0)]
)
def test_the_loss_and_its_gradient_are_those_of_what_is_soft(make: Callable[[], rf.Method]) -> None:
    alone, beside = soft(), soft()
    plain = make()(rate=alone)
    both = make()(rate=rf.surrogate(beside, torch.tensor(7.0)))
    plain.backward()
    both.backward()
    assert both.item() == plain.item()
    assert alone.grad is not None
    assert beside.grad is not None
    assert beside.grad.item() == alone.grad.item() != 0.0


def test_no_gradient_goes_through_what_is_strict() -> None:
    strict = torch.tensor(1.0, requires_grad=True)
    fence = rf.Lagrangian(initial=1.0)
    fence(rate=rf.surrogate(soft(), 2.0 * strict)).backward()
    assert strict.grad is None


def test_what_is_reported_is_strict() -> None:
    holds = rf.surrogate(torch.tensor([0.25, 0.5]), torch.tensor([-0.1, -0.2]))
    broken = rf.surrogate(torch.tensor([-0.25, -0.5]), torch.tensor([-0.1, 0.2]))
    assert holds.satisfied().tolist() == [True, True]
    assert broken.satisfied().tolist() == [True, False]
    assert broken.satisfied(tol=0.3).tolist() == [True, True]
    assert holds.violation.tolist() == [0.0, 0.0]
    assert broken.violation.tolist() == pytest.approx([0.0, 0.2])
    assert str(holds) == "Residual [2]: 2 of 2 constraints satisfied, closest to its bound by 0.1"
    assert str(broken) == "Residual [2]: 1 of 2 constraints satisfied, worst violation 0.2 at [1]"


@pytest.mark.parametrize(("soft", "strict", "share", "worst"), [(0.25, -0.1, 1.0, 0.0), (-0.25, 0.1, 0.0, 0.1)])
def test_monitor_and_certificate_go_by_what_is_strict(
    soft: float, strict: float, share: float, worst: float
) -> None:
    residual = rf.surrogate(torch.tensor(soft), torch.tensor(strict))
    monitor = rf.Monitor()
    monitor.update(rate=residual)
    assert monitor.compute()["satisfaction"].item() == share
    assert monitor.compute()["worst"].item() == pytest.approx(worst)
    certificate = rf.Lagrangian().certificate(0.0, rate=residual)
    assert certificate.feasible is (share == 1.0)
    assert certificate.worst == pytest.approx(worst)


def test_rows_equalities_and_two_sides_work_as_without() -> None:
    x = torch.tensor([0.0, 3.0])
    index = torch.tensor([4, 2])
    fence = rf.Lagrangian(dual_lr=1.0)
    fence(
        index=index,
        size=rf.surrogate(rf.between(x, 0.0, 9.0), rf.between(x, 1.0, 2.0)),
        sum=rf.surrogate(rf.equal(x, 9.0), rf.equal(x, 1.0)),
    )
    fence.step()
    assert fence.multipliers["size"][index].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert fence.multipliers["sum"][index].tolist() == [-1.0, 2.0]


@pytest.mark.parametrize(
    ("soft", "strict"),
    [
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(()), torch.zeros(1)),
        (rf.between(torch.zeros(2), 0.0, 1.0), torch.zeros(2, 2)),
        (rf.between(torch.zeros(2), 0.0, 1.0), rf.equal(torch.zeros(2), 1.0)),
        (rf.at_most(torch.zeros(2), 1.0), rf.equal(torch.zeros(2), 1.0)),
    ],
)
def test_unlike_residuals_are_refused(soft: rf.Residual | Tensor, strict: rf.Residual | Tensor) -> None:
    with pytest.raises(ValueError, match="must be the same kind of constraint and have the same shape"):
        rf.surrogate(soft, strict)


def test_what_is_no_residual_is_refused() -> None:
    with pytest.raises(TypeError, match="must be floating point"):
        rf.surrogate(torch.zeros(2), torch.zeros(2) > 0)
    with pytest.raises(TypeError, match="must be a tensor"):
        rf.surrogate(torch.zeros(()), 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="itself a surrogate"):
        rf.surrogate(torch.zeros(2), rf.surrogate(torch.zeros(2), torch.zeros(2)))


def test_a_strict_value_that_is_no_number_is_an_error() -> None:
    fence = rf.Lagrangian(dual_lr=0.5)
    for _ in range(2):  # the first call fixes names and looks at everything; later ones go by the loss
        with pytest.raises(ValueError, match="rate"):
            fence(rate=rf.surrogate(soft(), torch.tensor(float("nan"))))
        fence(rate=rf.surrogate(soft(), torch.tensor(0.1)))
    fence.step()
    assert fence.multipliers["rate"].item() == pytest.approx(0.05)


def test_soft_and_strict_must_leave_out_the_same() -> None:
    x = torch.zeros(2, requires_grad=True)
    one, other = (rf.at_most(x, 0.0, mask=torch.tensor(mask)) for mask in ([True, False], [False, True]))
    with pytest.raises(ValueError, match="must constrain the same entries: give both the same mask"):
        rf.surrogate(one, other)
    rf.surrogate(one, one)
