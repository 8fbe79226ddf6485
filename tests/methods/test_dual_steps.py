"""Multipliers after some epochs against a plain-Python dual ascent, for every layout, and what counts as seen."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import ringfence as rf

SAMPLES = 7


def epoch_data(epoch: int) -> Tensor:
    """f for every sample: [SAMPLES, 2, low/high]."""
    return torch.randn(SAMPLES, 2, 2, generator=torch.Generator().manual_seed(epoch))


def as_two_sided(f: Tensor, mask: Tensor | None = None) -> rf.Residual:
    f = f.clone().requires_grad_()
    return rf.Residual(
        f if mask is None else torch.where(mask, f, -torch.inf), two_sided=True, ragged=mask is not None
    )


def batches(epoch: int) -> list[Tensor]:
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(100 + epoch))
    return list(order.split(3))  # 3, 3 and 1 rows


@pytest.mark.parametrize("samples", [None, SAMPLES])
@pytest.mark.parametrize("method", ["Lagrangian", "ReLULagrangian", "AugmentedLagrangian"])
def test_per_sample_multipliers_follow_scalar_dual_ascent(method: str, samples: int | None) -> None:
    fence = {
        "Lagrangian": rf.Lagrangian(dual_lr=0.5, samples=samples, initial=0.2),
        "ReLULagrangian": rf.ReLULagrangian(dual_lr=0.5, samples=samples, initial=0.2),
        "AugmentedLagrangian": rf.AugmentedLagrangian(rho=0.5, samples=samples, initial=0.2),
    }[method]
    expected = [[[0.2] * 2 for _ in range(2)] for _ in range(SAMPLES)]
    for epoch in range(4):
        data = epoch_data(epoch)
        for rows in batches(epoch):
            fence(size=as_two_sided(data[rows]), index=rows)
        fence.step()
        for n in range(SAMPLES):
            for k in range(2):
                for side in range(2):
                    f = data[n, k, side].item()
                    climb = max(f, 0.0) if method == "ReLULagrangian" else f
                    expected[n][k][side] = max(0.0, expected[n][k][side] + 0.5 * climb)
    torch.testing.assert_close(fence.multipliers["size"], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_shared_multipliers_follow_the_mean_residual_per_side() -> None:
    fence = rf.Lagrangian(dual_lr=0.5, shared=True, initial=0.2)
    expected = [0.2, 0.2]
    for epoch in range(4):
        data = epoch_data(epoch)
        for rows in batches(epoch):
            fence(size=as_two_sided(data[rows]), index=rows)
        fence.step()
        for side in range(2):
            values = [data[n, k, side].item() for n in range(SAMPLES) for k in range(2)]
            expected[side] = max(0.0, expected[side] + 0.5 * sum(values) / len(values))
    torch.testing.assert_close(fence.multipliers["size"], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_masked_entries_keep_their_multiplier_and_do_not_dilute_a_shared_one() -> None:
    data = torch.full((3, 1, 2), 4.0)
    mask = torch.tensor([[[True]], [[False]], [[False]]])
    per_sample, shared = rf.Lagrangian(1.0, samples=3, initial=0.5), rf.Lagrangian(1.0, shared=True)
    for fence in (per_sample, shared):
        fence(size=as_two_sided(data, mask), index=torch.arange(3))
        fence.step()
    assert per_sample.multipliers["size"].flatten().tolist() == [4.5, 4.5, 0.5, 0.5, 0.5, 0.5]
    assert shared.multipliers["size"].tolist() == [4.0, 4.0]


def test_samples_not_seen_keep_their_multiplier() -> None:
    fence = rf.Lagrangian(1.0, samples=4, initial=1.0)
    fence(a=torch.tensor([-5.0, 2.0], requires_grad=True), index=torch.tensor([2, 0]))
    fence.step()
    assert fence.multipliers["a"].tolist() == [3.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("batch", [1, 3000])
def test_of_a_data_point_seen_in_several_calls_the_latest_counts(batch: int) -> None:
    """An inner loop, an epoch and a half: what it was at an older point is history."""
    fence = rf.Lagrangian(1.0)
    index = torch.arange(batch)
    for f in (1.0, 4.0, 2.0):
        fence(a=torch.full((batch,), f, requires_grad=True), index=index)
    fence.step()
    assert fence.multipliers["a"].tolist() == [2.0] * batch


@pytest.mark.parametrize("copies", [1, 2000])
def test_a_data_point_repeated_in_a_batch_counts_with_its_mean(copies: int) -> None:
    """A sampler with replacement; few rows and many take different ways."""
    fence = rf.Lagrangian(1.0, initial=0.5)
    f = torch.tensor([1.0, 4.0, 2.0, 10.0] * copies, requires_grad=True)
    fence(a=f, index=torch.tensor([7, 7, 2, 7] * copies))
    fence.step()
    assert fence.multipliers["a"][[7, 2]].tolist() == [5.5, 2.5]
    assert fence.multipliers["a"].sum().item() == 8.0 + 6 * 0.5


def test_the_table_grows_as_indices_appear() -> None:
    fence = rf.Lagrangian(1.0, initial=0.25)
    for highest in (3, 2, 40, 1000):
        fence(a=torch.ones(1, 2, requires_grad=True), index=torch.tensor([highest]))
        fence.step()
        assert fence.multipliers["a"][highest].tolist() == [1.25, 1.25]
    assert fence.multipliers["a"].shape == (1001, 2)
    assert fence.multipliers["a"].sum().item() == pytest.approx(2 * (1001 * 0.25 + 4))
    summary = fence.summary()  # of the four that had a dual step
    assert (summary["mean_multiplier/a"], summary["max_multiplier/a"]) == (1.25, 1.25)


def test_growing_between_call_and_step_loses_nothing() -> None:
    fence = rf.Lagrangian(1.0)
    for index in (torch.tensor([0]), torch.tensor([500]), torch.tensor([90, 1])):
        fence(a=torch.ones(len(index), requires_grad=True), index=index)
    fence.step()
    assert fence.multipliers["a"].nonzero()[:, 0].tolist() == [0, 1, 90, 500]


@pytest.mark.parametrize("make", [rf.Lagrangian, rf.ReLULagrangian, rf.AugmentedLagrangian])
def test_without_an_index_rows_are_refused_with_the_ways_out(make) -> None:
    """D3: multipliers by position would belong to nobody once batches are shuffled, and enforce nothing."""
    fence = make()
    x = torch.ones(3, requires_grad=True)
    for call in (fence, fence.duals, fence.observe):
        with pytest.raises(
            ValueError, match=r"cannot tell whose the rows of 'a' are.*index=.*shared=True.*same_rows=True"
        ):
            call(a=x)
    assert not fence.multipliers
    for options in ({"shared": True}, {"same_rows": True}):
        make(**options)(a=x)
    with pytest.raises(ValueError, match=r"same_rows=True says .* index= that they differ"):
        make(same_rows=True)(a=x, index=torch.arange(3))
    with pytest.raises(ValueError, match="shared=True and same_rows=True exclude each other"):
        make(same_rows=True, shared=True)
    with pytest.raises(ValueError, match="same_rows=True and samples=4 exclude each other"):
        make(samples=4, same_rows=True)


def test_a_residual_without_rows_needs_no_index_beside_those_that_have_them() -> None:
    """A rate over the whole batch, and limits on each data point, in one fence."""
    fence = rf.Lagrangian(1.0)
    for rate in (0.5, 0.1):
        fence(
            rate=rf.at_most(torch.tensor(rate, requires_grad=True), 0.2),
            a=torch.ones(2),
            index=torch.tensor([4, 1]),
        )
    fence.step()
    assert fence.multipliers["rate"].item() == pytest.approx(0.1)  # the mean of 0.3 and -0.1
    assert fence.multipliers["a"].tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]


def test_with_the_same_rows_the_latest_call_counts() -> None:
    """So the trial points of a line search leave no trace: D9."""
    fence, x = rf.Lagrangian(1.0, same_rows=True), torch.tensor([3.0, -1.0], requires_grad=True)
    optimiser = torch.optim.LBFGS([x], max_iter=20, line_search_fn="strong_wolfe")
    calls = []

    def closure() -> Tensor:
        optimiser.zero_grad()
        f = x.square() - 1.0
        calls.append(f.detach().clone())
        loss = (x - 2.0).square().sum() + fence(a=f)
        loss.backward()
        return loss

    optimiser.step(closure)
    fence.step()
    assert len(calls) > 2
    assert torch.equal(fence.multipliers["a"], calls[-1].clamp(min=0.0))


@pytest.mark.parametrize("given", [lambda x: x, lambda x: x[:2], lambda x: x.view(2, 2), lambda x: 1.0 * x])
def test_what_an_optimiser_moves_after_the_call_counts_as_it_was_in_the_call(
    given: Callable[[Tensor], Tensor],
) -> None:
    """A parameter, a view of it, something computed from it: changed in place, by .data or otherwise."""
    for change in (lambda x: x.sub_(2.0), lambda x: setattr(x, "data", x.data - 2.0), lambda x: x.data.sub_(2.0)):
        fence, x = rf.Lagrangian(1.0, same_rows=True), torch.full((4,), 3.0, requires_grad=True)
        fence(a=given(x))
        with torch.no_grad():
            change(x)
        fence.step()
        assert (fence.multipliers["a"] == 3.0).all()


def test_millions_of_residuals_changed_in_place_before_the_step_are_an_error_not_a_wrong_step() -> None:
    """So many are not copied."""
    fence = rf.Lagrangian(1.0, same_rows=True)
    f = torch.ones(2**22, requires_grad=True) * 2.0
    fence(a=f)
    with torch.no_grad():
        f.mul_(10.0)
    message = r"constraint 'a': the tensor given to the last call was changed in place.*clone"
    with pytest.raises(ValueError, match=message):
        fence.step()
    f = torch.ones(2**22, requires_grad=True) * 2.0
    fence(a=f)
    twin = copy.deepcopy(fence)
    fence.to("cpu")
    f.detach().mul_(10.0)
    for one in (fence, twin):
        one.step()
        assert (one.multipliers["a"] == 2.0).all()


def test_only_training_calls_with_gradients_are_seen() -> None:
    fence = rf.Lagrangian(1.0, same_rows=True)
    f = torch.tensor([2.0], requires_grad=True)
    fence(a=f)
    fence.eval()
    fence(a=10 * f)
    fence.train()
    with torch.no_grad():
        fence(a=10 * f)
    fence.duals(a=10 * f)
    fence.certificate(0.0, a=10 * f)
    fence.step()
    assert fence.multipliers["a"].tolist() == [2.0]


def test_observe_replaces_what_the_calls_saw() -> None:
    """The paper's variant: a separate pass over the data with the epoch's final parameters."""
    for fence in (rf.Lagrangian(1.0, samples=3), rf.ReLULagrangian(1.0, interval=1000, samples=3)):
        data = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        fence(a=data, index=torch.arange(3))
        with torch.no_grad():
            for row in torch.arange(3).split(1):
                fence.observe(a=10 * data[row], index=row)
        fence(a=data, index=torch.arange(3))  # a call in between does not mix in
        fence.step()
        assert fence.multipliers["a"].tolist() == [10.0, 20.0, 30.0]
        fence(a=data, index=torch.arange(3))  # and afterwards calls count again
        if isinstance(fence, rf.Lagrangian):
            fence.step()
            assert fence.multipliers["a"].tolist() == [11.0, 22.0, 33.0]


@pytest.mark.parametrize("options", [{"samples": 2}, {"shared": True}, {"same_rows": True}, {}])
def test_state_made_in_inference_mode_serves_training(options: dict) -> None:
    fence = rf.Lagrangian(1.0, initial=1.0, **options)
    index = None if "same_rows" in options else torch.arange(2)
    with torch.inference_mode():  # a validation before the first training step, and the paper's pass
        fence(a=torch.ones(2), index=index)
        fence.observe(a=torch.ones(2), index=index)
    fence.observe(a=torch.ones(2), index=index)
    fence.step()
    f = torch.ones(2, requires_grad=True)
    fence(a=f, index=index).backward()
    assert f.grad.tolist() == [2.0, 2.0]


def test_a_step_without_anything_seen_warns() -> None:
    with pytest.warns(UserWarning, match=r"saw no residual since the last step.*observe"):
        rf.Lagrangian(1.0).step()


# Nandwani et al.'s schedule


def test_relu_lagrangian_updates_at_growing_intervals_from_one_mini_batch() -> None:
    """Stepped once an iteration, as its authors do it."""
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=3, growth=2, warmup=4, shared=True)
    expected, seen = 0.0, []
    due = [4 + 3, 4 + 3 + 5, 4 + 3 + 5 + 7]  # after the warm-up: 3 steps, then 5, then 7
    for step in range(1, 25):
        f = torch.tensor([0.1 * step, -1.0], requires_grad=True)
        loss = fence(a=f)
        assert loss.item() == pytest.approx(expected * 0.1 * step, rel=1e-5)  # by the multiplier before the update
        if step in due:
            expected += 0.1 * step / 2  # the mean over this call's two entries, of which one is violated
            seen.append(step)
        fence.step()
        assert fence.multipliers["a"].item() == pytest.approx(expected, rel=1e-5)
    assert seen == due


def test_relu_lagrangian_once_an_epoch_with_warm_up() -> None:
    fence = rf.ReLULagrangian(dual_lr=1.0, warmup=2, initial=0.5, shared=True)
    seen = []
    for _ in range(4):
        fence(a=torch.tensor([1.0, -7.0], requires_grad=True))
        fence.step()
        seen.append(fence.multipliers["a"].item())
    assert seen == [0.5, 0.5, 1.0, 1.5]


def test_methods_say_whose_their_multipliers_are() -> None:
    assert "each data point" in str(rf.ReLULagrangian())
    assert "each of 5 samples" in str(rf.ReLULagrangian(samples=5))
    assert "per entry" in str(rf.ReLULagrangian(same_rows=True))
    assert "shared" in str(rf.ReLULagrangian(shared=True))


def test_a_shared_multiplier_on_both_sides_would_cancel() -> None:
    """Why a two-sided constraint gets one a side: with a single λ the loss would not depend on the value."""
    value = torch.tensor([9.0], requires_grad=True)
    fence = rf.Lagrangian(1.0, shared=True)
    fence(a=rf.between(value, 0.0, 5.0))
    fence.step()
    (gradient,) = torch.autograd.grad(fence(a=rf.between(value, 0.0, 5.0)), value)
    assert gradient.item() > 0


def test_the_dual_step_does_not_disturb_a_graph_in_flight() -> None:
    fence = rf.Lagrangian(1.0, initial=1.0, same_rows=True)
    f = torch.tensor([2.0], requires_grad=True)
    loss = fence(a=f)
    held = fence.multipliers["a"]
    fence.step()
    loss.backward()
    assert f.grad.tolist() == [1.0]
    assert fence.multipliers["a"].tolist() == [3.0]
    assert fence.multipliers["a"] is not held
    fence(a=f).backward()
    held = fence.multipliers["a"]
    fence.step()  # nobody holds the old ones now: no memory for new ones
    assert fence.multipliers["a"] is held


def test_the_summary_leaves_out_padding() -> None:
    """Rows of two and one strips, padded to three: what is absent keeps the first λ for ever, and means nothing."""
    fence = rf.Lagrangian(dual_lr=1.0, initial=5.0, samples=4)
    assert fence.summary() == {}
    mask = torch.tensor([[True, True, False], [True, False, False]])
    sums = torch.tensor([[4.0, 1.0, 0.0], [3.0, 0.0, 0.0]], requires_grad=True)
    fence(strips=rf.at_least(sums, 2.0, mask=mask), index=torch.tensor([3, 1]))
    assert fence.summary() == {"mean_multiplier/strips": 5.0, "max_multiplier/strips": 5.0}
    fence.step()
    after = {"mean_multiplier/strips": (3.0 + 6.0 + 4.0) / 3.0, "max_multiplier/strips": 6.0}
    assert fence.summary() == pytest.approx(after)
    twin = rf.Lagrangian(dual_lr=1.0, initial=5.0, samples=4)
    twin.load_state_dict(fence.state_dict())
    assert twin.summary() == fence.summary()


@pytest.mark.parametrize(
    "fence_of",
    [
        lambda rate, first: rf.Lagrangian(rate, initial=first, same_rows=True),
        lambda rate, first: rf.ReLULagrangian(rate, initial=first, same_rows=True),
        lambda rate, first: rf.AugmentedLagrangian(rate, initial=first, same_rows=True),
    ],
    ids=["Lagrangian", "ReLU Lagrangian", "augmented"],
)
def test_with_adam_the_dual_rate_is_invisible_where_multipliers_begin_at_zero(
    fence_of: Callable[[float, float], rf.Method],
) -> None:
    """Multipliers, loss and gradient are proportional to the rate then, and Adam divides by the gradient's size."""
    first, other = (path_of(fence_of(rate, 0.0)) for rate in (2.0**-5, 2.0**4))
    torch.testing.assert_close(first, other, rtol=0.0, atol=0.0)  # powers of two scale without rounding
    assert not torch.equal(first[1], first[-1])
    begun, faster = (path_of(fence_of(rate, 1.0)) for rate in (2.0**-5, 2.0**4))
    assert not torch.allclose(begun, faster, atol=1e-3)


def test_with_adam_the_strength_of_a_penalty_is_invisible() -> None:
    first, other = (path_of(rf.Penalty(strength)) for strength in (2.0**-5, 2.0**4))
    torch.testing.assert_close(first, other, rtol=0.0, atol=0.0)


def path_of(fence: rf.Method) -> Tensor:
    """Where Adam goes with a fence for its only loss."""
    x = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=0.05, eps=1e-300)
    path = []
    for _ in range(40):
        optimizer.zero_grad()
        fence(disc=rf.at_most(x.square().sum().reshape(1), 0.5), half=rf.at_least(x[:1] + x[1:], 0.8)).backward()
        optimizer.step()
        fence.step()
        path.append(x.detach().clone())
    return torch.stack(path)


# Equalities: one signed multiplier


def test_an_equality_has_one_multiplier_of_either_sign() -> None:
    fence = rf.Lagrangian(dual_lr=0.5)
    value, target = torch.tensor([3.0, 1.0, 2.0], requires_grad=True), torch.tensor([1.0, 4.0, 2.0])
    for step in range(1, 4):
        fence(a=rf.equal(value, target), index=torch.arange(3))
        fence.step()
        assert fence.multipliers["a"].tolist() == [step * 1.0, step * -1.5, 0.0]
    loss = fence(a=rf.equal(value, target), index=torch.arange(3))
    (gradient,) = torch.autograd.grad(loss, value)
    assert gradient.tolist() == [3.0, -4.5, 0.0]
    assert loss.item() == 3.0 * 2.0 + -4.5 * -3.0
    duals = fence.duals(a=rf.equal(value, target), index=torch.arange(3))["a"]
    assert duals.tolist() == [[0.0, 3.0], [4.5, 0.0], [0.0, 0.0]]  # (below, above): never negative, never both


def test_an_equality_with_tolerance_relaxes_inside_of_it() -> None:
    """|v - 1| <= 0.5: λ grows by what is beyond, falls back to 0 inside, and does not pass it."""
    fence = rf.Lagrangian(dual_lr=1.0)
    trace = []
    for value in (3.0, 3.0, 1.2, 1.0, -2.0, 1.0):
        fence(a=rf.equal(torch.tensor(value, requires_grad=True), 1.0, 0.5))
        fence.step()
        trace.append(round(fence.multipliers["a"].item(), 5))
    assert trace == [1.5, 3.0, 2.7, 2.2, -0.3, 0.0]


@pytest.mark.parametrize("tensor", [False, True])
def test_a_between_whose_sides_meet_does_not_ratchet(tensor: bool) -> None:
    """low = high is an equality in all but name: of the two multipliers only the difference may move, and once."""
    bound = torch.tensor([1.0, 1.0]) if tensor else 1.0
    fence, signed = rf.Lagrangian(dual_lr=1.5, same_rows=True), rf.Lagrangian(dual_lr=1.5, same_rows=True)
    x, y = (torch.zeros(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for _ in range(1000):
        (gradient,) = torch.autograd.grad(x.square().sum() + fence(a=rf.between(x, bound, bound)), x)
        x = (x - 0.1 * gradient).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(y.square().sum() + signed(a=rf.equal(y, bound)), y)
        y = (y - 0.1 * gradient).detach().requires_grad_()
        fence.step()
        signed.step()
    torch.testing.assert_close(x, y)
    torch.testing.assert_close(y.detach(), torch.ones(2, dtype=torch.float64), rtol=0.0, atol=1e-10)
    low, high = fence.multipliers["a"].unbind(dim=-1)
    torch.testing.assert_close(high - low, signed.multipliers["a"])


def test_a_shared_augmented_equality_and_a_relu_one_by_hand() -> None:
    augmented = rf.AugmentedLagrangian(rho=2.0, shared=True, initial=0.5)
    value = torch.tensor([1.0, 4.0], requires_grad=True)
    mean = 2.5 - 1.0
    loss = augmented(a=rf.equal(value, 1.0))
    assert loss.item() == pytest.approx(2 * (0.5 * mean + 2.0 * mean**2 / 2))
    assert torch.autograd.grad(loss, value)[0].tolist() == pytest.approx([0.5 + 2.0 * mean] * 2)
    augmented.step()
    assert augmented.multipliers["a"].item() == pytest.approx(0.5 + 2.0 * mean)
    relu = rf.ReLULagrangian(1.0, initial=0.5, same_rows=True)
    loss = relu(a=rf.equal(value, 2.0, 0.25))
    assert loss.item() == pytest.approx(0.5 * (0.75 + 1.75))
    assert torch.autograd.grad(loss, value)[0].tolist() == [-0.5, 0.5]
    relu.step()
    assert relu.multipliers["a"].tolist() == [1.25, 2.25]


# What moves λ


def scalar_nupi(errors: list[float], lr: float, kp: float, ki: float, nu: float) -> list[float]:
    """The recursion of Sohrabi et al. for one multiplier, written out."""
    multiplier, smoothed, trace = 0.0, None, []
    for error in errors:
        before = error if smoothed is None else smoothed
        smoothed = nu * before + (1 - nu) * error
        multiplier = max(0.0, multiplier + lr * (ki * error + kp * (smoothed - before)))
        trace.append(multiplier)
    return trace


def test_nupi_follows_its_recursion_row_by_row() -> None:
    """Rows begin when they are seen: the second one only at the third step."""
    make = partial(rf.NuPI, lr=0.3, kp=4.0, ki=0.5, nu=0.25)
    fence = rf.Lagrangian(dual_optimiser=make)
    errors = {0: [2.0, 1.0, 0.5, -0.5, 1.5], 1: [3.0, -1.0, 2.0]}
    trace: dict[int, list[float]] = {0: [], 1: []}
    for step in range(5):
        rows = [0, 1] if step >= 2 else [0]
        f = torch.tensor([errors[row][step if row == 0 else step - 2] for row in rows], requires_grad=True)
        fence(a=f, index=torch.tensor(rows))
        fence.step()
        for row in rows:
            trace[row].append(fence.multipliers["a"][row].item())
    for row, found in trace.items():
        assert found == pytest.approx(scalar_nupi(errors[row], 0.3, 4.0, 0.5, 0.25), rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.SGD, lr=0.3, momentum=0.9),
        partial(torch.optim.SGD, lr=0.3, maximize=True),
        partial(torch.optim.Adam, lr=0.1),
        partial(torch.optim.RMSprop, lr=0.1),
        partial(torch.optim.Adagrad, lr=0.5),
    ],
    ids=["momentum", "maximize", "Adam", "RMSprop", "Adagrad"],
)
@pytest.mark.parametrize("options", [{"same_rows": True}, {"shared": True}, {}])
def test_any_optimiser_of_torch_moves_the_multipliers(make, options: dict) -> None:
    """The same optimiser on a parameter of its own, given -f for a gradient and clamped after each step."""
    fence = rf.Lagrangian(dual_optimiser=make, **options)
    reference = torch.nn.Parameter(torch.zeros(() if "shared" in options else 3))
    optimiser = make([reference])
    sign = 1.0 if "maximize" in make.keywords else -1.0
    index = None if options else torch.arange(3)
    for seed in range(6):
        f = torch.randn(3, generator=torch.Generator().manual_seed(seed)) + 0.3
        fence(a=f.clone().requires_grad_(), index=index)
        fence.step()
        reference.grad = sign * (f.mean() if "shared" in options else f)
        optimiser.step()
        with torch.no_grad():
            reference.clamp_(min=0.0)
        torch.testing.assert_close(fence.multipliers["a"], reference.detach())
    assert (reference > 0).any()


def test_rows_that_are_not_seen_do_not_drift_by_momentum() -> None:
    fence = rf.Lagrangian(dual_optimiser=partial(torch.optim.Adam, lr=0.1))
    fence(a=torch.ones(3, requires_grad=True), index=torch.arange(3))
    fence.step()
    before = fence.multipliers["a"].clone()
    fence(a=torch.ones(1, requires_grad=True), index=torch.tensor([1]))
    fence.step()
    assert torch.equal(fence.multipliers["a"][[0, 2]], before[[0, 2]])
    assert fence.multipliers["a"][1] > before[1]
    assert set(fence.dual_optimisers) == {"a"}


def test_a_cap_on_multipliers_and_restarts() -> None:
    capped = rf.Lagrangian(1.0, max_multiplier=2.5, same_rows=True)
    restarted = rf.Lagrangian(1.0, restart=True, same_rows=True)
    trace = []
    for f in (1.0, 1.0, 1.0, -0.1, 1.0):
        for fence in (capped, restarted):
            fence(a=torch.tensor([f], requires_grad=True))
            fence.step()
        trace.append((round(capped.multipliers["a"].item(), 5), restarted.multipliers["a"].item()))
    assert trace == [(1.0, 1.0), (2.0, 2.0), (2.5, 3.0), (2.4, 0.0), (2.5, 1.0)]
    both = rf.Lagrangian(10.0, max_multiplier=2.5)
    both(a=rf.equal(torch.tensor(-1.0, requires_grad=True), 1.0))
    both.step()
    assert both.multipliers["a"].item() == -2.5


def test_a_network_gives_the_multipliers() -> None:
    """λ(x) = softplus(a x + b): the loss is by its answers, and its weights ascend the mean of λ f."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Softplus())
    twin = copy.deepcopy(network)
    fence = rf.Lagrangian(dual_lr=0.5, multiplier=network)
    x, f = torch.randn(6, 2), torch.randn(6, requires_grad=True)
    for _ in range(3):
        loss = fence(a=f, index=x)
        torch.testing.assert_close(loss, (twin(x)[:, 0].detach() * f).sum())
        loss.backward()
        assert all(one.grad is None for one in network.parameters())
        fence.step()
        mean = (twin(x)[:, 0] * f.detach()).mean()
        for parameter, gradient in zip(
            twin.parameters(), torch.autograd.grad(mean, list(twin.parameters())), strict=True
        ):
            with torch.no_grad():
                parameter.add_(gradient, alpha=0.5)
        for one, other in zip(network.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one, other)
    assert list(fence.parameters()) == []  # nobody else's optimiser takes it along
    resumed = rf.Lagrangian(dual_lr=0.5, multiplier=copy.deepcopy(twin))
    fence(a=f, index=x)
    resumed.load_state_dict(fence.state_dict())
    for one in (fence, resumed):
        one.step()
    torch.testing.assert_close(resumed.duals(a=f, index=x), fence.duals(a=f, index=x), rtol=0.0, atol=0.0)


def test_rho_grows_beside_a_network_too() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Softplus())
    fence = rf.AugmentedLagrangian(rho=1.0, mu=2.0, multiplier=network, dual_lr=0.01)
    x = torch.linspace(-1, 1, 4)[:, None]
    for _ in range(4):
        fence(c=torch.ones(4, requires_grad=True), index=x)
        fence.step()
    assert fence.rho == 8.0
    assert fence.summary()["mean_multiplier/c"] == pytest.approx(network(x).mean().item(), rel=0.1)
    equal = rf.AugmentedLagrangian(rho=1.0, mu=2.0, multiplier=torch.nn.Linear(1, 1), dual_lr=0.01)
    for _ in range(3):
        equal(c=rf.equal(torch.ones(4, requires_grad=True), 0.0), index=x)
        equal.step()
    assert equal.rho == 4.0


def test_a_network_that_cannot_be_used_is_refused() -> None:
    x, f = torch.randn(6, 2), torch.randn(6, requires_grad=True)
    line = torch.nn.Linear(2, 1)
    with torch.no_grad():
        line.bias.fill_(-100.0)
    with pytest.raises(ValueError, match=r"answered -\d.*must not be negative: end it with torch.nn.Softplus"):
        rf.Lagrangian(multiplier=line)(a=f, index=x)
    rf.Lagrangian(multiplier=line)(a=rf.equal(f, 0.0), index=x)  # an equality's λ may be
    with pytest.raises(ValueError, match=r"answered \[6, 3\], but the residual needs \[6\]"):
        rf.Lagrangian(multiplier=torch.nn.Linear(2, 3))(a=f, index=x)
    with pytest.raises(TypeError, match=r"index= must hold what it reads of each row.*got torch.int64"):
        rf.Lagrangian(multiplier=line)(a=f, index=torch.arange(6))
    with pytest.raises(ValueError, match="'a' has no parameter to train"):
        rf.Lagrangian(multiplier=torch.nn.ReLU())(a=f, index=x)
    for options in ({"initial": 1.0}, {"max_multiplier": 1.0}, {"restart": True}):
        with pytest.raises(ValueError, match="with multiplier= they are the module's to decide"):
            rf.Lagrangian(multiplier=line, **options)
    with pytest.raises(TypeError, match="multiplier must be a torch.nn.Module, got function"):
        rf.Lagrangian(multiplier=lambda x: x)


# Looking at λ, and changing it


def test_multipliers_put_in_place_act() -> None:
    """D9: an assignment is not ignored."""
    for options, index in (({"same_rows": True}, None), ({}, torch.arange(2)), ({"shared": True}, None)):
        fence = rf.Lagrangian(1.0, **options)
        f = torch.tensor([2.0, 4.0], requires_grad=True)
        fence(a=f, index=index)
        new = torch.tensor(3.0) if options.get("shared") else torch.tensor([3.0, 3.0])
        fence.multipliers["a"] = new
        assert fence(a=f, index=index).item() == 18.0
        fence.multipliers["a"].mul_(2.0)
        assert fence(a=f, index=index).item() == 36.0
        fence.step()
        assert fence.multipliers["a"].mean().item() == 9.0
        for bad, message in (
            (-new, "must not be negative.*lowest is -3"),
            (new * torch.nan, "must be finite"),
            (torch.ones(5), r"shape .*got torch.float32 \[5\]"),
            (1.0, "got float"),
        ):
            with pytest.raises(ValueError, match=message):
                fence.multipliers["a"] = bad
        with pytest.raises(KeyError, match="no constraint is called 'b'; there are: 'a'"):
            fence.multipliers["b"] = new
        with pytest.raises(TypeError, match="cannot be deleted"):
            del fence.multipliers["a"]
    equality = rf.Lagrangian(1.0)
    equality(a=rf.equal(torch.tensor(1.0, requires_grad=True), 0.0))
    equality.multipliers["a"] = torch.tensor(-3.0)
    assert equality.multipliers["a"].item() == -3.0


# What a sceptical reader tried


def test_a_constraint_does_not_change_between_rows_and_none() -> None:
    """D3 again: .squeeze() on a batch of one would make the multipliers everybody's, or broadcast one to all."""
    rows, none = torch.ones(2, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    fence = rf.Lagrangian(1.0)
    fence(a=none * 1.0)
    with pytest.raises(ValueError, match=r"'a' had no rows and now has some \(shape \[2\]\).*no \.squeeze\(\)"):
        fence(a=rows, index=torch.arange(2))
    fence = rf.Lagrangian(1.0)
    fence(a=rows, index=torch.arange(2))
    with pytest.raises(ValueError, match=r"'a' had rows and now has none"):
        fence(a=none, index=torch.arange(2))
    shared = rf.Lagrangian(1.0, shared=True)
    shared(a=none)
    shared(a=rows)  # there it makes no difference


@pytest.mark.parametrize("rho", [1.0, 4.0])
def test_a_shared_augmented_lagrangian_is_about_the_mean_of_all_mini_batches(rho: float) -> None:
    """D2 again: min |x - (3, -1)|² with mean(x) <= 0 is (2, -2), also when each row is a call of its own."""
    x, target = torch.zeros(2, requires_grad=True), torch.tensor([3.0, -1.0])
    optimiser = torch.optim.SGD([x], lr=0.05)
    fence = rf.AugmentedLagrangian(rho, shared=True)
    for _ in range(60):  # it is there after 40
        for _ in range(10):
            optimiser.zero_grad()
            first, second = fence(a=x[:1], index=torch.tensor([0])), fence(a=x[1:], index=torch.tensor([1]))
            ((x - target).square().sum() + first + second).backward()
            optimiser.step()
        fence.step()
    torch.testing.assert_close(x.detach(), torch.tensor([2.0, -2.0]), rtol=0.0, atol=2e-3)
    assert fence.multipliers["a"].item() == pytest.approx(2.0, abs=2e-3)


def test_a_shared_augmented_lagrangian_that_cannot_know_the_others_warns_once() -> None:
    x = torch.ones(2, requires_grad=True)
    fence = rf.AugmentedLagrangian(1.0, shared=True)
    for _ in range(3):  # a call a step is what it is about
        fence(a=x)
        fence.step()
    fence(a=x)
    with pytest.warns(UserWarning, match="several calls since the last step.*Pass index="):
        fence(a=x)
    fence(a=x)
    fence.step()
    alone = rf.AugmentedLagrangian(1.0)  # one number, which is about nobody else
    for _ in range(3):
        alone(a=x.mean())


@pytest.mark.parametrize("make", [rf.Lagrangian, rf.AugmentedLagrangian])
def test_an_index_beside_shared_multipliers_is_checked_too(make) -> None:
    """The augmented Lagrangian uses it, and a wrong one is a mistake with any method."""
    x = torch.ones(2, requires_grad=True)
    for index, message in (
        (torch.tensor([0.0, 1.0]), "index must be a 1-D int64 tensor, got torch.float32"),
        (torch.arange(3), r"index has 3 entries, but constraint 'a' has shape \[2\]"),
        (torch.tensor([0, -1]), "sample out of range in row 1"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            make(shared=True)(a=x, index=index)
    with pytest.raises(ValueError, match="sample out of range.*numbered from 0 to 1"):
        make(shared=True, samples=2)(a=x, index=torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="would need a table of"):
        rf.AugmentedLagrangian(shared=True)(a=x, index=torch.tensor([0, 2**45]))


def test_what_a_shared_augmented_lagrangian_knows_of_the_others_by_hand() -> None:
    """Three data points with two entries each, one of them masked; the loss is N φ of the mean over all."""
    fence = rf.AugmentedLagrangian(2.0, shared=True, initial=0.5)
    value = torch.tensor([[1.0, 2.0], [3.0, 9.0], [5.0, 6.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True], [True, False], [True, True]])

    def call(rows: list[int]) -> Tensor:
        return fence(a=rf.at_most(value[rows], 0.0, mask=mask[rows]), index=torch.tensor(rows))

    call([0])
    call([1])
    loss = call([2])
    mean = (1 + 2 + 3 + 5 + 6) / 5
    assert loss.item() == pytest.approx(5 * ((0.5 + 2 * mean) ** 2 - 0.25) / 4)
    (gradient,) = torch.autograd.grad(loss, value)
    assert gradient[2].tolist() == pytest.approx([0.5 + 2 * mean] * 2)
    assert gradient[:2].abs().max() == 0.0
    twin = rf.AugmentedLagrangian(2.0, shared=True, initial=0.5)
    twin.load_state_dict(fence.state_dict())
    limit = rf.at_most(value[[1, 0]], 0.0, mask=mask[[1, 0]])
    expected = fence.eval()(a=limit, index=torch.tensor([1, 0]))
    assert twin.eval()(a=limit, index=torch.tensor([1, 0])).item() == expected.item() == pytest.approx(loss.item())


def test_a_shared_augmented_equality_leaves_masked_entries_out() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    masked, plain = (rf.AugmentedLagrangian(1.0, shared=True) for _ in range(2))
    loss = masked(a=rf.equal(x, 0.0, mask=torch.tensor([True, True, False])))
    assert loss.item() == plain(a=rf.equal(x[:2], 0.0)).item() == 2.25
    duals = masked.eval().duals(a=rf.equal(x, 0.0, mask=torch.tensor([True, True, False])))
    assert duals["a"][2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("make", [partial(torch.optim.SGD, lr=1.5), partial(torch.optim.Adam, lr=0.1)])
def test_a_between_whose_sides_meet_is_one_signed_multiplier_to_an_optimiser_too(make) -> None:
    """D1 again."""
    fence, signed = (rf.Lagrangian(same_rows=True, dual_optimiser=make) for _ in range(2))
    x, y = (torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for _ in range(200):
        (gradient,) = torch.autograd.grad(x.square().sum() + fence(a=rf.between(x, 1.0, 1.0)), x)
        x = (x - 0.1 * gradient).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(y.square().sum() + signed(a=rf.equal(y, 1.0)), y)
        y = (y - 0.1 * gradient).detach().requires_grad_()
        fence.step()
        signed.step()
        low, high = fence.multipliers["a"][0].tolist()
        assert high - low == pytest.approx(signed.multipliers["a"].item(), abs=1e-9)
        assert min(low, high) == 0.0
    torch.testing.assert_close(x, y)


def test_a_side_without_a_bound_makes_no_tie() -> None:
    """f = 0 beside an infinite bound is an output on its bound, and no equality."""
    for make in (
        partial(rf.Lagrangian, 1.0),
        partial(rf.Lagrangian, dual_optimiser=partial(torch.optim.SGD, lr=1.0)),
    ):
        fence = make(initial=0.5, same_rows=True)
        fence(a=rf.between(torch.zeros(2, requires_grad=True) * 1.0, 0.0, torch.inf))
        fence.step()
        assert fence.multipliers["a"][:, 0].tolist() == [0.5, 0.5]


def test_inside_its_tolerance_an_equality_comes_to_rest_with_an_optimiser_too() -> None:
    fence = rf.Lagrangian(initial=0.1, same_rows=True, dual_optimiser=partial(torch.optim.SGD, lr=1.0))
    trace = []
    for value in (0.0, 0.0, 3.0, 0.0, -4.0):
        fence(a=rf.equal(torch.tensor([value], requires_grad=True), 0.0, 1.0))
        fence.step()
        trace.append(fence.multipliers["a"].item())
    assert trace == [0.0, 0.0, 2.0, 1.0, -4.0]  # from 1 by below the band: 1 - (4 + 1)


def test_an_index_may_be_a_buffer_that_is_used_again() -> None:
    fence, index = rf.Lagrangian(1.0), torch.tensor([0, 1])
    for number in (1.0, 5.0, 7.0):
        fence(a=torch.full((2,), number, requires_grad=True), index=index)
        index += 2
    fence.step()
    assert fence.multipliers["a"].tolist() == [1.0, 1.0, 5.0, 5.0, 7.0, 7.0]


def test_multipliers_put_in_place_in_mid_epoch_do_not_forget_what_was_seen() -> None:
    for options, index in (({}, torch.arange(2)), ({"same_rows": True}, None)):
        fence = rf.Lagrangian(1.0, **options)
        fence(a=torch.ones(2, requires_grad=True), index=index)
        fence.multipliers["a"] = torch.full((2,), 0.5)
        fence.step()
        assert fence.multipliers["a"].tolist() == [1.5, 1.5]


@pytest.mark.parametrize("options", [{}, {"same_rows": True}, {"shared": True}, {"samples": 9}])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda fence: pickle.loads(pickle.dumps(fence))], ids=["copy", "pickle"]
)
def test_a_copy_goes_on_like_the_original(options: dict, copied) -> None:
    index = None if "same_rows" in options else torch.arange(3)
    fence = rf.Lagrangian(1.0, **options)

    def call(one: rf.Method, seed: int) -> None:
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        one(a=rf.at_most(x, 0.0), b=rf.between(x, 0.2, 0.2), c=rf.equal(x, 0.1), index=index)

    call(fence, 0)
    fence.step()
    call(fence, 1)
    twin = copied(fence)
    for one in (fence, twin):
        one.step()
        call(one, 2)
        one.step()
    for name, value in fence.multipliers.items():
        torch.testing.assert_close(twin.multipliers[name], value, rtol=0.0, atol=0.0)


def test_the_summary_of_a_table_that_has_grown_since_the_last_step() -> None:
    fence = rf.Lagrangian(1.0)
    fence(a=torch.ones(2, requires_grad=True), index=torch.arange(2))
    fence.step()
    fence(a=torch.ones(2, requires_grad=True), index=torch.tensor([50, 51]))
    assert fence.summary() == {"mean_multiplier/a": 1.0, "max_multiplier/a": 1.0}
    twin = rf.Lagrangian(1.0)
    twin.load_state_dict(fence.state_dict())
    for one in (fence, twin):
        one.step()
        assert one.multipliers["a"].nonzero()[:, 0].tolist() == [0, 1, 50, 51]


def test_an_optimiser_follows_a_table_with_spare_room() -> None:
    fence = rf.Lagrangian(dual_optimiser=partial(torch.optim.Adam, lr=0.1))
    for _ in range(3):
        fence(a=torch.ones(16, requires_grad=True), index=torch.arange(16))
        fence(a=torch.ones(1, requires_grad=True), index=torch.tensor([16]))
    fence.step()
    torch.testing.assert_close(fence.multipliers["a"], torch.full((17,), 0.1))


def test_many_calls_without_a_step_keep_each_row_once() -> None:
    fence = rf.Lagrangian(1.0)
    for _ in range(200):
        fence(a=torch.ones(64, requires_grad=True), index=torch.randint(100, (64,)))
    (store,) = fence._stores.values()
    assert sum(len(rows) for rows in store._seen) <= 2 * len(store._table) + 64
    fence.step()
    assert (fence.multipliers["a"] == 1.0).all()
    momentum = partial(torch.optim.SGD, lr=1.0, momentum=0.9)
    for options in ({"restart": True}, {"dual_optimiser": momentum}):  # rows that were not seen stay as they are
        fence = rf.Lagrangian(initial=2.0, samples=40, **options)
        for _ in range(30):
            fence(a=torch.ones(4, 3, requires_grad=True), index=torch.arange(4))
        fence.step()
        assert (fence.multipliers["a"][:4] == 3.0).all()
        assert (fence.multipliers["a"][4:] == 2.0).all()


def test_a_gradient_of_a_gradient_after_the_step_is_by_the_multipliers_of_the_call() -> None:
    fence = rf.AugmentedLagrangian(1.0, initial=1.0, same_rows=True)
    x = torch.tensor([1.0], requires_grad=True)
    loss = fence(a=x)
    fence.step()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    assert gradient.item() == 2.0
    assert fence.multipliers["a"].item() == 2.0


def test_optimisers_that_mix_entries_are_refused_at_once() -> None:
    for optimiser in (torch.optim.LBFGS, torch.optim.Rprop, torch.optim.SparseAdam, torch.optim.Adafactor):
        with pytest.raises(ValueError, match=f"{optimiser.__name__} does not treat each multiplier by itself"):
            rf.Lagrangian(dual_optimiser=partial(optimiser, lr=0.1))
    with pytest.raises(TypeError, match="must make a torch.optim.Optimizer.*it made list"):
        rf.Lagrangian(dual_optimiser=list)


def test_a_first_multiplier_above_the_cap_is_refused() -> None:
    with pytest.raises(ValueError, match=r"initial=5.0 is above max_multiplier=1.0"):
        rf.Lagrangian(initial=5.0, max_multiplier=1.0)
    with pytest.raises(ValueError, match=r"initial=5.0 is above max_multiplier=1.0"):
        rf.Lagrangian(initial={"a": 5.0, "b": 0.0}, max_multiplier=1.0)


def test_a_wild_index_does_not_take_all_memory() -> None:
    with pytest.raises(ValueError, match=r"constraint 'a': index \d+ would need a table of .* rows.*samples=N"):
        rf.Lagrangian()(a=torch.ones(1, requires_grad=True), index=torch.tensor([2**45]))


def test_the_dual_rate_may_be_changed_and_views_are_live() -> None:
    fence = rf.Lagrangian(1.0, same_rows=True)
    view = fence.multipliers
    fence(a=torch.ones(1, requires_grad=True))
    fence.step()
    fence.dual_lr = 0.25
    fence(a=torch.ones(1, requires_grad=True))
    fence.step()
    assert view["a"].item() == 1.25
    assert (fence.dual_lr, fence.initial, fence.max_multiplier) == (0.25, 0.0, float("inf"))
    with pytest.raises(ValueError, match="dual_lr lacks 'a'"):
        fence.dual_lr = {"b": 1.0}
    with pytest.raises(ValueError, match="has its own learning rate"):
        rf.Lagrangian(dual_optimiser=torch.optim.Adam).dual_lr = 1.0
    assert "dual_optimiser=Adam" in str(rf.Lagrangian(dual_optimiser=torch.optim.Adam))


def test_a_multiplier_network_follows_train_and_eval() -> None:
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1), torch.nn.Softplus()
    )
    fence = rf.Lagrangian(0.1, multiplier=network)
    x, f = torch.ones(4, 1), torch.ones(4, requires_grad=True)
    fence(a=f, index=x)
    fence.eval()
    first, second = (fence.duals(a=f, index=x)["a"] for _ in range(2))
    assert torch.equal(first, second)
    assert fence.train().training
    assert network.training
    with pytest.raises(ValueError, match=r"one row of features for each row of 'a': it has shape \[8, 1\]"):
        fence(a=f, index=torch.ones(8, 1))
    with torch.no_grad():
        network[0].bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="answered NaN"):
        fence(a=f, index=x)
