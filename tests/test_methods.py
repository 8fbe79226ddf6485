"""What holds for every method: duals are the derivative, weights, reductions, masks, schedules, training loops."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf

# one call site for all methods, index and all
pytestmark = pytest.mark.filterwarnings("ignore:index= is ignored with one multiplier per entry:UserWarning")

METHODS: dict[str, Callable[..., rf.Method]] = {
    "barrier": lambda **o: rf.LogBarrier(t=3.0, mu=1.5, **o),
    "quadratic penalty": lambda **o: rf.Penalty(strength=2.0, mu=1.5, **o),
    "linear penalty": lambda **o: rf.Penalty(strength=2.0, power=1, **o),
    "Lagrangian": lambda **o: rf.Lagrangian(dual_lr=0.5, **o),
    "Lagrangian per sample": lambda **o: rf.Lagrangian(dual_lr=0.5, samples=20, **o),
    "Lagrangian shared": lambda **o: rf.Lagrangian(dual_lr=0.5, shared=True, **o),
    "ReLU Lagrangian": lambda **o: rf.ReLULagrangian(dual_lr=0.5, interval=1, **o),
    "ReLU Lagrangian per sample": lambda **o: rf.ReLULagrangian(dual_lr=0.5, interval=None, samples=20, **o),
    "augmented": lambda **o: rf.AugmentedLagrangian(rho=0.7, mu=1.5, **o),
    "augmented per sample": lambda **o: rf.AugmentedLagrangian(rho=0.7, samples=20, **o),
    "augmented shared": lambda **o: rf.AugmentedLagrangian(rho=0.7, shared=True, **o),
}
# Methods whose state does not depend on which rows share a call: all but those with a multiplier per entry.
ANY_ROWS = [name for name in METHODS if name not in ("Lagrangian", "augmented")]
INDEX = torch.tensor([3, 17, 0, 9])


@pytest.fixture(params=METHODS)
def make(request: pytest.FixtureRequest) -> Callable[..., rf.Method]:
    return METHODS[request.param]


def residuals(seed: int = 0) -> tuple[Tensor, Tensor, dict[str, rf.Residual]]:
    """Two named constraints on leaves: one two-sided and ragged, one plain."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    place = torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[True, True, False]] * 4)
    return size, place, {"size": rf.between(size, -0.5, 0.5, mask=mask), "place": rf.at_most(place, 0.2)}


def warmed(fence: rf.Method, steps: int = 2) -> rf.Method:
    """Some steps in, so that multipliers are not all zero."""
    for seed in range(1, steps + 1):
        fence(**residuals(seed)[2], index=INDEX)
        fence.step()
    return fence


@pytest.mark.parametrize("reduction", ["sum", "mean", "batchmean"])
def test_duals_are_the_derivative_of_the_loss(make: Callable[..., rf.Method], reduction: str) -> None:
    fence = warmed(make(weights={"size": 0.3}, reduction=reduction))
    _, _, named = residuals()
    leaves = {name: residual.f.detach().requires_grad_() for name, residual in named.items()}
    again = {name: rf.Residual(leaves[name], named[name].two_sided, named[name].ragged) for name in named}
    duals = fence.duals(**named, index=INDEX)  # before the call, which may take a dual step
    gradients = torch.autograd.grad(fence(**again, index=INDEX), list(leaves.values()))
    for (name, dual), gradient in zip(duals.items(), gradients, strict=True):
        torch.testing.assert_close(dual, gradient, rtol=1e-14, atol=1e-14, msg=name)
        assert (dual >= 0).all()
    assert (duals["size"][:, 2] == 0).all()


def test_weights_and_reductions_multiply(make: Callable[..., rf.Method]) -> None:
    def loss(**options: object) -> float:
        return warmed(make(**options))(**residuals()[2], index=INDEX).item()

    both, size = loss(), loss(weights={"place": 0.0})
    weighted = loss(weights={"size": 3.0, "place": 2.0})
    assert weighted == pytest.approx(3.0 * size + 2.0 * (both - size), rel=1e-9)
    entries = 4 * 2 * 2 + 4  # two of three columns, both sides; and the places
    assert loss(reduction="mean") == pytest.approx(both / entries, rel=1e-9)
    assert loss(reduction="batchmean") == pytest.approx(both / 4, rel=1e-9)


@pytest.mark.parametrize("name", ANY_ROWS)
def test_the_loss_is_a_sum_over_rows(name: str) -> None:
    """Splitting the rows of a batch splits the loss: nothing is averaged or counted twice."""
    fence = warmed(METHODS[name]()).eval()
    _, _, named = residuals()
    whole = fence(**named, index=INDEX)
    assert whole.shape == ()
    parts = []
    for row in range(4):
        part = {key: rf.Residual(one.f[row : row + 1], one.two_sided, one.ragged) for key, one in named.items()}
        parts.append(fence(**part, index=INDEX[row : row + 1]))
    torch.testing.assert_close(whole, torch.stack(parts).sum())


def scalar_phi(name: str, f: float, multiplier: float) -> float:
    """Each method's term for one residual, written out: t = 3, γ = 2, ρ = 0.7, λ = 0.4."""
    if name == "barrier":
        return -math.log(-f) / 3 if f <= -1 / 9 else 3 * f - math.log(1 / 9) / 3 + 1 / 3
    if name == "quadratic penalty":
        return 2 * max(f, 0) ** 2
    if name == "linear penalty":
        return 2 * max(f, 0)
    if name.startswith("Lagrangian"):
        return multiplier * f
    if name.startswith("ReLU"):
        return multiplier * max(f, 0)
    return (max(0, multiplier + 0.7 * f) ** 2 - multiplier**2) / (2 * 0.7)


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_its_formula(name: str) -> None:
    options = {} if name in ("barrier", "quadratic penalty", "linear penalty") else {"initial": 0.4}
    values = [-2.0, -0.5, -0.05, 0.3]
    loss = METHODS[name](**options)(a=torch.tensor(values, dtype=torch.float64, requires_grad=True), index=INDEX)
    assert loss.item() == pytest.approx(sum(scalar_phi(name, f, 0.4) for f in values), rel=1e-12)


def test_observe_is_there_for_every_method(make: Callable[..., rf.Method]) -> None:
    fence = make()
    fence.observe(a=torch.ones(4), index=INDEX)
    fence.step()


def test_plain_tensors_are_residuals(make: Callable[..., rf.Method]) -> None:
    f = torch.tensor([-1.0, 0.5, 2.0, 0.0], requires_grad=True)
    torch.testing.assert_close(make()(a=f, index=INDEX), make()(a=rf.at_most(f, 0.0), index=INDEX))


def test_dataset_level_scalars_work() -> None:
    for fence in (
        rf.LogBarrier(),
        rf.Penalty(),
        rf.Lagrangian(1.0),
        rf.ReLULagrangian(1.0),
        rf.AugmentedLagrangian(),
    ):
        rate = torch.tensor(0.4, requires_grad=True)
        fence(rate=rf.at_most(rate, 0.3)).backward()
        fence.step()
        assert fence.duals(rate=rf.at_most(rate, 0.3))["rate"].shape == ()


def test_half_precision_residuals_give_a_float32_loss(make: Callable[..., rf.Method]) -> None:
    f = torch.tensor([-300.0, 500.0, 60000.0, 0.0], dtype=torch.float16, requires_grad=True)
    fence = make()
    fence(a=f, index=INDEX)
    fence.step()
    loss = fence(a=f, index=INDEX)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)


# Schedules


def test_t_grows_by_mu_up_to_its_limit() -> None:
    fence = rf.LogBarrier(t=2.0, mu=3.0, max_t=30.0)
    seen = []
    for _ in range(5):
        seen.append(fence.t)
        fence.step()
    assert seen == [2.0, 6.0, 18.0, 30.0, 30.0]


def test_t_may_be_a_function_of_the_step() -> None:
    fence = rf.LogBarrier(t=lambda step: 1.0 + step**2, max_t=12.0)
    seen = []
    for _ in range(5):
        seen.append(fence.t)
        fence.step()
    assert seen == [1.0, 2.0, 5.0, 10.0, 12.0]


def test_strength_and_rho_grow_alike() -> None:
    penalty, augmented = (
        rf.Penalty(strength=1.0, mu=10.0, max_strength=50.0),
        rf.AugmentedLagrangian(rho=1.0, mu=2.0),
    )
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        penalty.step()
        augmented(a=x)
        augmented.step()
    assert (penalty.strength, augmented.rho) == (50.0, 4.0)


# Training loops


def regression() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(20, 3), torch.randn(20, 1)


@pytest.mark.parametrize("name", ANY_ROWS)
def test_gradient_accumulation_equals_one_batch(name: str) -> None:
    model, x, _ = regression()
    fence = METHODS[name]()
    index = torch.arange(20)
    fence(a=rf.at_most(model(x)[:, 0], 0.0), index=index)
    fence.step()
    fence.eval()
    fence(a=rf.at_most(model(x)[:, 0], 0.0), index=index).backward()
    whole = model.weight.grad.clone()
    model.zero_grad()
    for rows in index.split(5):
        fence(a=rf.at_most(model(x[rows])[:, 0], 0.0), index=rows).backward()
    torch.testing.assert_close(model.weight.grad, whole)


def test_works_with_a_grad_scaler_and_several_optimisers(make: Callable[..., rf.Method]) -> None:
    model, x, y = regression()
    other = nn.Linear(1, 1)
    optimisers = [torch.optim.SGD(model.parameters(), lr=1e-3), torch.optim.Adam(other.parameters(), lr=1e-3)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    fence = make()
    before = [p.clone() for p in (*model.parameters(), *other.parameters())]
    for _ in range(3):
        for optimiser in optimisers:
            optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = other(model(x))[:, 0]
            loss = (output.float() - y[:, 0]).square().mean() + fence(
                a=rf.at_most(output, 0.0), index=torch.arange(20)
            )
        scaler.scale(loss).backward()
        for optimiser in optimisers:
            scaler.step(optimiser)
        scaler.update()
        fence.step()
    assert all(
        not torch.equal(a, b) for a, b in zip(before, (*model.parameters(), *other.parameters()), strict=True)
    )


def test_works_with_a_compiled_model_and_a_compiled_fence(make: Callable[..., rf.Method]) -> None:
    model, x, _ = regression()
    compiled = torch.compile(model, backend="aot_eager")
    plain, fence = make(), make()
    index = torch.arange(20)
    for _ in range(2):
        torch.testing.assert_close(
            fence(a=rf.at_most(compiled(x)[:, 0], 0.0), index=index),
            plain(a=rf.at_most(model(x)[:, 0], 0.0), index=index),
        )
        fence.step()
        plain.step()


def test_the_whole_barrier_loss_compiles_without_a_graph_break() -> None:
    fence = rf.LogBarrier(t=3.0)
    value, low, high = torch.randn(8, 2), torch.full((8, 2), -1.0), torch.full((8, 2), 1.0)

    def loss(value: Tensor) -> Tensor:
        return fence(size=rf.between(value, low, high), place=rf.at_most(value, 0.3))

    expected = loss(value)
    torch.testing.assert_close(torch.compile(loss, backend="aot_eager", fullgraph=True)(value), expected)


def test_half_moves_the_model_but_not_the_state() -> None:
    fence = rf.LogBarrier(t=1e6)
    per_sample = rf.Lagrangian(dual_lr=1e5, samples=4)
    per_sample(a=torch.full((2,), 3.0, requires_grad=True), index=torch.tensor([0, 1]))
    per_sample.step()
    module = nn.ModuleList([fence, per_sample]).half()
    assert module[0].t == 1e6
    assert per_sample.multipliers["a"].dtype == torch.float32
    assert per_sample.multipliers["a"].tolist() == [3e5, 3e5, 0.0, 0.0]
    assert module.double()[1].multipliers["a"].dtype == torch.float32


def test_methods_copy_and_print() -> None:
    for make in METHODS.values():
        fence = warmed(make())
        twin = copy.deepcopy(fence)
        before = twin.summary()
        warmed(fence)
        assert twin.summary() == before
        assert str(twin).startswith(type(fence).__name__)
        assert all(math.isfinite(value) for value in before.values())
