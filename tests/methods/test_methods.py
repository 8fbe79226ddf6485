"""What holds for every method: duals are the derivative, weights, reductions, masks, schedules, training loops."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from registry import METHODS, Entry

INDEX = torch.tensor([3, 17, 0, 9])
# what a method makes of a row does not depend on which rows share its call
ANY_ROWS = [name for name, entry in METHODS.items() if not entry.same_rows and name != "augmented, shared"]


@pytest.fixture(params=METHODS)
def entry(request: pytest.FixtureRequest) -> Entry:
    return METHODS[request.param]


def residuals(seed: int = 0) -> tuple[Tensor, Tensor, dict[str, rf.Residual]]:
    """Two named constraints on leaves: one two-sided and ragged, one plain."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    place = torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[True, True, False]] * 4)
    return size, place, {"size": rf.between(size, -0.5, 0.5, mask=mask), "place": rf.at_most(place, 0.2)}


def warmed(entry: Entry, steps: int = 2, **options: object) -> rf.Method:
    """Some steps in, so that multipliers are not all zero."""
    return warm(entry, entry.make(**options), steps)


def warm(entry: Entry, fence: rf.Method, steps: int = 2) -> rf.Method:
    for seed in range(1, steps + 1):
        fence(**residuals(seed)[2], index=entry.index(INDEX))
        fence.step()
    return fence


@pytest.mark.parametrize("reduction", ["sum", "mean", "batchmean"])
def test_duals_are_the_derivative_of_the_loss(entry: Entry, reduction: str) -> None:
    fence = warmed(entry, weights={"size": 0.3}, reduction=reduction)
    _, _, named = residuals()
    leaves = {name: residual.f.detach().requires_grad_() for name, residual in named.items()}
    again = {name: rf.Residual(leaves[name], named[name].two_sided, named[name].ragged) for name in named}
    duals = fence.duals(**named, index=entry.index(INDEX))
    gradients = torch.autograd.grad(fence(**again, index=entry.index(INDEX)), list(leaves.values()))
    for (name, dual), gradient in zip(duals.items(), gradients, strict=True):
        torch.testing.assert_close(dual, gradient, rtol=1e-14, atol=1e-14, msg=name)
        assert (dual >= 0).all()
    assert (duals["size"][:, 2] == 0).all()


def test_weights_and_reductions_multiply(entry: Entry) -> None:
    def loss(**options: object) -> float:
        return warmed(entry, **options)(**residuals()[2], index=entry.index(INDEX)).item()

    both, size = loss(), loss(weights={"place": 0.0})
    weighted = loss(weights={"size": 3.0, "place": 2.0})
    assert weighted == pytest.approx(3.0 * size + 2.0 * (both - size), rel=1e-9)
    entries = 4 * 2 * 2 + 4  # two of three columns, both sides; and the places
    assert loss(reduction="mean") == pytest.approx(both / entries, rel=1e-9)
    assert loss(reduction="batchmean") == pytest.approx(both / 4, rel=1e-9)


@pytest.mark.parametrize("name", ANY_ROWS)
def test_the_loss_is_a_sum_over_rows(name: str) -> None:
    """Splitting the rows of a batch splits the loss: nothing is averaged or counted twice."""
    fence = warmed(METHODS[name]).eval()
    _, _, named = residuals()
    whole = fence(**named, index=INDEX)
    assert whole.shape == ()
    parts = []
    for row in range(4):
        part = {key: rf.Residual(one.f[row : row + 1], one.two_sided, one.ragged) for key, one in named.items()}
        parts.append(fence(**part, index=INDEX[row : row + 1]))
    torch.testing.assert_close(whole, torch.stack(parts).sum())


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_its_formula(name: str) -> None:
    entry = METHODS[name]
    options = {"initial": 0.4} if entry.dual else {}
    values = [-2.0, -0.5, -0.05, 0.3]
    loss = entry.make(**options)(
        a=torch.tensor(values, dtype=torch.float64, requires_grad=True), index=entry.index(INDEX)
    )
    if name == "augmented, shared":  # about the mean of the four
        expected = 4 * entry.phi(sum(values) / 4, 0.4)
    else:
        expected = sum(entry.phi(f, 0.4) for f in values)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("count", [5, 20_000])
def test_many_residuals_and_few_are_computed_alike(name: str, count: int) -> None:
    """From some number on value and slope come from one pass; plain operations in float64 are the reference."""
    entry = METHODS[name]
    f = torch.randn(count, generator=torch.Generator().manual_seed(3))
    index = torch.arange(count) % 20
    options = {"initial": 0.4} if entry.dual else {}
    if name == "Lagrangian, samples declared":
        options["samples"] = 20
    x = f.clone().requires_grad_()
    loss = entry.make(**options)(a=x, index=entry.index(index))
    exact = f.double().requires_grad_()
    values = exact if name != "augmented, shared" else exact.mean().expand(count)
    reference = torch.stack([_phi(name, values, 0.4)]).sum()
    torch.testing.assert_close(loss.double(), reference, rtol=1e-5, atol=1e-3)
    (gradient,), (expected,) = torch.autograd.grad(loss, x), torch.autograd.grad(reference, exact)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-6)


def _phi(name: str, f: Tensor, multiplier: float) -> Tensor:
    """The registry's scalar formulas on a tensor, by torch's plain operations."""
    if name.startswith("barrier"):
        inside = torch.where(f <= -1 / 9, f, -1.0)
        return torch.where(f <= -1 / 9, -torch.log(-inside) / 3, 3 * f - math.log(1 / 9) / 3 + 1 / 3).sum()
    if "penalty" in name:
        return 2 * (f.clamp(min=0) ** (2 if "quadratic" in name else 1)).sum()
    if name.startswith("augmented"):
        return ((multiplier + 0.7 * f).clamp(min=0) ** 2 - multiplier**2).sum() / 1.4
    return multiplier * (f.clamp(min=0) if name.startswith("ReLU") else f).sum()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("count", [5, 20_000])
def test_gradients_of_gradients(name: str, count: int) -> None:
    """A Hessian-vector product, against a difference of gradients."""
    entry = METHODS[name]
    fence = entry.make(**({"initial": 0.4} if entry.dual else {})).eval()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, dtype=torch.float64, generator=generator).requires_grad_()
    direction = torch.randn(count, dtype=torch.float64, generator=generator)
    index = entry.index(torch.arange(count) % 20)

    def gradient(at: Tensor) -> Tensor:
        return torch.autograd.grad(fence(a=at.square() - 0.5, index=index), at, create_graph=True)[0]

    (product,) = torch.autograd.grad(gradient(x) @ direction, x)
    step = 1e-6
    ahead, behind = ((x + sign * step * direction).detach().requires_grad_() for sign in (1, -1))
    difference = (gradient(ahead) - gradient(behind)).detach() / (2 * step)
    smooth = (product - difference).abs() < 1e-3 * (1 + product.abs())  # a few entries lie on a kink
    assert smooth.double().mean() > 0.99


def test_a_step_goes_by_what_was_observed_in_place_of_what_the_calls_saw(entry: Entry) -> None:
    """The calls see residuals that hold, ``observe`` others; constant, so that λ > 0 just where those are violated."""
    observed = torch.tensor([2.0, -1.0, 0.5, -0.25])
    fence, plain = entry.make(), entry.make()
    for _ in range(2):  # a ReLU Lagrangian at intervals moves λ at every second step
        for one in (fence, plain):
            one(a=torch.full((4,), -1.0, requires_grad=True), index=entry.index(INDEX))
        fence.observe(a=observed, index=entry.index(INDEX))
        fence.step()
        plain.step()
    states = fence.state_dict(), plain.state_dict()
    if not entry.dual:  # nothing is kept of residuals: t and strength go by the number of steps
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
        return
    assert not plain.multipliers["a"].any()
    multipliers = fence.multipliers["a"]
    if entry.shared:
        assert multipliers.item() > 0  # the mean of the four is positive, and that of their violations
    else:
        rows = multipliers if entry.same_rows else multipliers[INDEX]
        assert (rows > 0).tolist() == [True, False, True, False]


def test_plain_tensors_are_residuals(entry: Entry) -> None:
    f = torch.tensor([-1.0, 0.5, 2.0, 0.0], requires_grad=True)
    plain, wrapped = (entry.make()(a=a, index=entry.index(INDEX)) for a in (f, rf.at_most(f, 0.0)))
    torch.testing.assert_close(plain, wrapped)


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


def test_half_precision_residuals_give_a_float32_loss(entry: Entry) -> None:
    f = torch.tensor([-300.0, 500.0, 60000.0, 0.0], dtype=torch.float16, requires_grad=True)
    fence = entry.make()
    fence(a=f, index=entry.index(INDEX))
    fence.step()
    loss = fence(a=f, index=entry.index(INDEX))
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


def test_strength_grows_like_t() -> None:
    penalty = rf.Penalty(strength=1.0, mu=10.0, max_strength=50.0)
    for _ in range(2):
        penalty.step()
    assert penalty.strength == 50.0


def test_rho_grows_only_while_the_violation_does_not_fall() -> None:
    """With ``enough``, it must fall to that share; what is satisfied, or nearly so, never makes it grow."""

    def trace(*violations: float, **options: float) -> list[float]:
        fence = rf.AugmentedLagrangian(rho=1.0, mu=2.0, max_rho=5.0, **options)
        rho = []
        for violation in violations:
            fence(a=torch.tensor(violation, requires_grad=True) * 1.0)
            fence.step()
            rho.append(fence.rho)
        return rho

    assert trace(1.0, 0.5, 0.49, 0.1, 0.2, 0.2, -1.0, -1.0) == [1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert trace(1.0, 0.9, 0.4, 0.1, 0.2, 0.3, enough=0.5) == [1.0, 2.0, 2.0, 2.0, 4.0, 5.0]
    assert trace(1e-5, 1e-5, 2e-5, 3e-5) == [1.0] * 4
    assert trace(1e-5, 1e-5, 2e-5, tolerance=0.0) == [1.0, 2.0, 4.0]


def test_rho_settles_when_stepped_once_an_iteration() -> None:
    """A violation that falls slowly falls: ρ must not run away from it."""
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=0.1)
    fence = rf.AugmentedLagrangian(rho=1.0, mu=1.01, dual_lr=0.1)
    for _ in range(400):
        goal = (x - torch.tensor([2.0, 1.0])).square().sum()
        loss = goal + fence(c=rf.at_most(x.sum(), 1.0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        fence.step()
    torch.testing.assert_close(x.detach(), torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0.0, atol=1e-4)
    assert fence.multipliers["c"].item() == pytest.approx(2.0, abs=1e-3)
    assert fence.rho < 3.0


def test_rho_grows_for_the_constraint_that_is_stuck_alone() -> None:
    fence = rf.AugmentedLagrangian(rho={"stuck": 1.0, "falling": 1.0}, mu=2.0)
    for number in range(4):
        stuck, falling = torch.tensor(1.0, requires_grad=True) * 1.0, torch.tensor(0.5**number)
        fence(stuck=stuck, falling=falling)
        fence.step()
    assert fence.rho == {"stuck": 8.0, "falling": 1.0}
    assert fence.summary()["rho/stuck"] == 8.0


# Settings by constraint name


@pytest.mark.parametrize(
    ("by_name", "alone"),
    [
        (lambda v: rf.LogBarrier(t=v, mu=1.5), (2.0, 7.0)),
        (lambda v: rf.Penalty(strength=v, mu=1.5), (2.0, 7.0)),
        (lambda v: rf.Lagrangian(dual_lr=v, same_rows=True), (0.2, 0.7)),
        (lambda v: rf.Lagrangian(initial=v, same_rows=True), (0.2, 0.7)),
        (lambda v: rf.Lagrangian(1.0, max_multiplier=v, same_rows=True), (0.2, 0.7)),
        (lambda v: rf.ReLULagrangian(dual_lr=v, same_rows=True), (0.2, 0.7)),
        (lambda v: rf.AugmentedLagrangian(rho=v, same_rows=True), (0.2, 0.7)),
        (lambda v: rf.AugmentedLagrangian(1.0, dual_lr=v, same_rows=True), (0.2, 0.7)),
    ],
    ids=["t", "strength", "dual_lr", "initial", "max", "relu dual_lr", "rho", "augmented dual_lr"],
)
def test_a_setting_by_name_is_two_methods_in_one(by_name, alone: tuple[float, float]) -> None:
    _, _, named = residuals()
    both, first, second = by_name({"size": alone[0], "place": alone[1]}), by_name(alone[0]), by_name(alone[1])
    for _ in range(3):
        total = both(**named)
        parts = first(size=named["size"]) + second(place=named["place"])
        torch.testing.assert_close(total, parts)
        for fence in (both, first, second):
            fence.step()
    twin = by_name({"size": alone[0], "place": alone[1]})
    twin.load_state_dict(both.state_dict())
    torch.testing.assert_close(twin(**named), both(**named))
    assert "size: " in str(both) or "max" in str(by_name) or both.summary()


def test_t_may_be_a_tensor_of_one_number() -> None:
    assert rf.LogBarrier(t=torch.tensor(4.0), mu=torch.tensor(1.5)).t == 4.0


# Training loops


def regression() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(3, 1), torch.randn(20, 3), torch.randn(20, 1)


@pytest.mark.parametrize("name", ANY_ROWS)
def test_gradient_accumulation_equals_one_batch(name: str) -> None:
    model, x, _ = regression()
    fence = METHODS[name].make()
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


def test_works_with_a_grad_scaler_and_several_optimisers(entry: Entry) -> None:
    model, x, y = regression()
    other = nn.Linear(1, 1)
    optimisers = [torch.optim.SGD(model.parameters(), lr=1e-3), torch.optim.Adam(other.parameters(), lr=1e-3)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    fence = entry.make()
    before = [p.clone() for p in (*model.parameters(), *other.parameters())]
    for _ in range(3):
        for optimiser in optimisers:
            optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = other(model(x))[:, 0]
            loss = (output.float() - y[:, 0]).square().mean() + fence(
                a=rf.at_most(output, 0.0), index=entry.index(torch.arange(20))
            )
        scaler.scale(loss).backward()
        for optimiser in optimisers:
            scaler.step(optimiser)
        scaler.update()
        fence.step()
    assert all(
        not torch.equal(a, b) for a, b in zip(before, (*model.parameters(), *other.parameters()), strict=True)
    )


def test_works_with_a_compiled_model(entry: Entry) -> None:
    model, x, _ = regression()
    compiled = torch.compile(model, backend="aot_eager")
    plain, fence = entry.make(), entry.make()
    index = entry.index(torch.arange(20))
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


def test_methods_copy_and_print(entry: Entry) -> None:
    fence = warmed(entry)
    twin = copy.deepcopy(fence)
    before = twin.summary()
    warm(entry, fence)
    assert twin.summary() == before
    assert str(twin).startswith(type(fence).__name__)
    assert all(math.isfinite(value) for value in before.values())


# torch.func and mixed precision


def test_vmap_works_or_is_refused_by_name_before_anything_changes(entry: Entry) -> None:
    """One problem a row of x, a thousand at once: a loss for each where there is no state, else one message."""
    fence = entry.make()
    x = torch.randn(6, 4, dtype=torch.float64)
    if entry.dual:
        before = fence.state_dict()
        with pytest.raises(ValueError, match=rf"{type(fence).__name__} cannot be called inside torch.vmap"):
            torch.vmap(lambda row: fence(a=row, index=entry.index(INDEX)))(x)
        with pytest.raises(ValueError, match="cannot be called inside torch.vmap"):
            torch.vmap(torch.func.grad(lambda row: fence(a=rf.at_most(row, 0.0), index=entry.index(INDEX))))(x)
        assert fence.state_dict().keys() == before.keys()
        return
    for low in (-0.5, torch.full((4,), -0.5)):
        losses = torch.vmap(lambda row, low=low: fence(a=rf.between(row, low, 1.0)))(x)
        torch.testing.assert_close(losses, torch.stack([fence(a=rf.between(row, low, 1.0)) for row in x]))
    slopes = torch.vmap(torch.func.grad(lambda row: fence(a=row)))(x)
    torch.testing.assert_close(slopes, fence.duals(a=x)["a"])


def test_torch_func_grad_leaves_a_usable_state(entry: Entry) -> None:
    fence, plain = entry.make(), entry.make()
    x = torch.randn(4, requires_grad=True)
    index = entry.index(INDEX)
    for _ in range(2):
        slope = torch.func.grad(lambda z: fence(a=rf.at_most(z, 0.1), index=index))(x.detach())
        (expected,) = torch.autograd.grad(plain(a=rf.at_most(x, 0.1), index=index), x)
        torch.testing.assert_close(slope, expected)
        fence.step()
        plain.step()
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(fence.state_dict()[key], value)


@pytest.mark.parametrize("autocast", [False, True])
def test_an_overflow_of_float16_is_left_to_the_grad_scaler(entry: Entry, autocast: bool) -> None:
    """A step too large for float16: the scaler leaves it out, and so do the multipliers; then all goes on."""
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    fence = entry.make(**({"initial": 0.2} if entry.dual else {}))
    index = entry.index(INDEX)

    def step(scale: float) -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            output = (weight.half() * scale).float() if autocast else weight.half() * scale
            loss = fence(a=rf.at_most(output, 0.5), b=output, index=index)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()

    step(1.0)
    fence.step()
    before, state = (
        weight.detach().clone(),
        {k: v.clone() for k, v in dict(getattr(fence, "multipliers", {})).items()},
    )
    step(60000.0)  # 2 × 60000 is infinite in float16
    assert torch.equal(weight, before)
    if entry.dual:
        with pytest.warns(UserWarning, match="every call overflowed float16"):
            fence.step()
    else:
        fence.step()
    for name, value in state.items():
        assert torch.equal(fence.multipliers[name], value)
    step(1.0)
    assert not torch.equal(weight, before)
    fence.step()


def test_without_float16_what_is_not_a_number_is_an_error(entry: Entry) -> None:
    with pytest.raises(ValueError, match="constraint 'a': residual is NaN or infinite in row 1"):
        entry.make()(a=torch.tensor([1.0, math.inf, 0.0, 0.0]).bfloat16(), index=entry.index(INDEX))


# Barriers that lose their edge


def test_a_barrier_warns_once_when_float32_cannot_tell_it_from_a_line() -> None:
    fence = rf.LogBarrier(t=1000.0, mu=2.0)
    fence(a=torch.zeros(2))
    fence.step()
    with pytest.warns(UserWarning, match=r"t reached 4000 at step 2, and 1/t² is below the rounding"):
        fence.step()
    fence.step()  # once
    wide = rf.LogBarrier(t=1000.0, mu=2.0)
    wide(a=torch.zeros(2, dtype=torch.float64))
    for _ in range(10):
        wide.step()


def test_a_barrier_on_an_equality_without_tolerance_says_so_once() -> None:
    fence = rf.LogBarrier()
    x = torch.zeros(2, requires_grad=True)
    with pytest.warns(UserWarning, match="constraint 'a' is an equality with tolerance 0.*no room"):
        fence(a=rf.equal(x, 1.0))
    fence(a=rf.equal(x, 1.0))
    rf.LogBarrier()(a=rf.equal(x, 1.0, 0.1))
    rf.LogBarrier()(a=rf.equal(x, 1.0, torch.tensor([0.1, 0.0]), mask=torch.tensor([True, False])))
    torch.vmap(lambda tol: rf.LogBarrier()(a=rf.equal(x, 1.0, tol)))(torch.tensor([0.0, 0.1]))
    with pytest.warns(UserWarning, match="tolerance 0"):
        rf.LogBarrier()(a=rf.between(x, 1.0, 1.0))
    rf.LogBarrier()(a=rf.between(x, torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])))  # one row that is exact
    with pytest.warns(UserWarning, match="tolerance 0"):
        rf.LogBarrier()(a=rf.equal(x, 1.0, torch.tensor([0.1, 0.0])))
