"""Multipliers after some epochs against a plain-Python dual ascent, for every layout, and what counts as seen."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.mark.parametrize("method", ["Lagrangian", "ReLULagrangian", "AugmentedLagrangian"])
def test_per_sample_multipliers_follow_scalar_dual_ascent(method: str) -> None:
    fence = {
        "Lagrangian": rf.Lagrangian(dual_lr=0.5, samples=SAMPLES, initial=0.2),
        "ReLULagrangian": rf.ReLULagrangian(dual_lr=0.5, interval=None, samples=SAMPLES, initial=0.2),
        "AugmentedLagrangian": rf.AugmentedLagrangian(rho=0.5, samples=SAMPLES, initial=0.2),
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


def test_a_sample_seen_twice_counts_with_its_mean() -> None:
    fence = rf.Lagrangian(1.0, samples=2)
    for f in (1.0, 4.0):
        fence(a=torch.tensor([f], requires_grad=True), index=torch.tensor([1]))
    fence.step()
    assert fence.multipliers["a"].tolist() == [0.0, 2.5]


def test_only_training_calls_with_gradients_are_seen() -> None:
    fence = rf.Lagrangian(1.0)
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


def test_an_index_without_samples_is_not_silently_ignored() -> None:
    with pytest.warns(UserWarning, match=r"index= is ignored with one multiplier per entry.*Use samples=N"):
        rf.Lagrangian()(a=torch.ones(2, requires_grad=True), index=torch.tensor([5, 3]))


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


@pytest.mark.parametrize("options", [{"samples": 2}, {"shared": True}, {}])
@pytest.mark.filterwarnings("ignore:index= is ignored:UserWarning")
def test_state_made_in_inference_mode_serves_training(options: dict) -> None:
    fence = rf.Lagrangian(1.0, initial=1.0, **options)
    with torch.inference_mode():  # a validation before the first training step, and the paper's pass
        fence(a=torch.ones(2), index=torch.arange(2))
        fence.observe(a=torch.ones(2), index=torch.arange(2))
    fence.observe(a=torch.ones(2), index=torch.arange(2))
    fence.step()
    f = torch.ones(2, requires_grad=True)
    fence(a=f, index=torch.arange(2)).backward()
    assert f.grad.tolist() == [2.0, 2.0]


def test_a_step_without_anything_seen_warns() -> None:
    with pytest.warns(UserWarning, match=r"saw no residual since the last step.*observe"):
        rf.Lagrangian(1.0).step()


# Nandwani et al.'s schedule


def test_relu_lagrangian_updates_at_growing_intervals_from_one_mini_batch() -> None:
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=3, growth=2, warmup=4)
    expected, seen = 0.0, []
    due = [4 + 3, 4 + 3 + 5, 4 + 3 + 5 + 7]  # after the warm-up: 3 calls, then 5, then 7
    for call in range(1, 25):
        f = torch.tensor([0.1 * call, -1.0], requires_grad=True)
        loss = fence(a=f)
        assert loss.item() == pytest.approx(expected * 0.1 * call, rel=1e-5)  # by the multiplier before the update
        if call in due:
            expected += 0.1 * call / 2  # the mean over this call's two entries, of which one is violated
            seen.append(call)
        assert fence.multipliers["a"].item() == pytest.approx(expected, rel=1e-5)
        fence.step()  # an epoch's end changes nothing
        assert fence.multipliers["a"].item() == pytest.approx(expected, rel=1e-5)
    assert seen == due


def test_relu_lagrangian_once_an_epoch_with_warm_up() -> None:
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=None, warmup=2, initial=0.5)
    seen = []
    for _ in range(4):
        fence(a=torch.tensor([1.0, -7.0], requires_grad=True))
        fence.step()
        seen.append(fence.multipliers["a"].item())
    assert seen == [0.5, 0.5, 1.0, 1.5]


def test_relu_lagrangian_is_shared_unless_told_otherwise() -> None:
    assert "shared" in str(rf.ReLULagrangian())
    assert "each of 5 samples" in str(rf.ReLULagrangian(samples=5))
    assert "per entry" in str(rf.ReLULagrangian(shared=False))


def test_a_shared_multiplier_on_both_sides_would_cancel() -> None:
    """Why a two-sided constraint gets one a side: with a single λ the loss would not depend on the value."""
    value = torch.tensor([9.0], requires_grad=True)
    fence = rf.Lagrangian(1.0, shared=True)
    fence(a=rf.between(value, 0.0, 5.0))
    fence.step()
    (gradient,) = torch.autograd.grad(fence(a=rf.between(value, 0.0, 5.0)), value)
    assert gradient.item() > 0


def test_the_dual_step_does_not_disturb_a_graph_in_flight() -> None:
    fence = rf.Lagrangian(1.0, initial=1.0)
    f = torch.tensor([2.0], requires_grad=True)
    loss = fence(a=f)
    fence.step()
    loss.backward()
    assert f.grad.tolist() == [1.0]


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
        lambda rate, first: rf.Lagrangian(rate, initial=first),
        lambda rate, first: rf.ReLULagrangian(rate, interval=None, initial=first),
        lambda rate, first: rf.AugmentedLagrangian(rate, initial=first),
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
