"""A state saved in mid-epoch, loaded in a new process, continues bit for bit; foreign states are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import ringfence as rf
from children import python
from registry import METHODS
from training_run import HALFWAY, Run


def flat(state: object, prefix: str = "") -> dict[str, object]:
    if isinstance(state, dict):
        return {k: v for key, one in state.items() for k, v in flat(one, f"{prefix}/{key}").items()}
    return {prefix: state}


def test_every_method_continues_identically_in_a_new_process(tmp_path: Path) -> None:
    halfway, finished = {}, {}
    for name, entry in METHODS.items():
        run = Run(entry)
        halfway[name] = run.train(start=(0, 0), save_at=HALFWAY)
        finished[name] = run.state()
    torch.save(halfway, tmp_path / "halfway.pt")
    script = Path(__file__).with_name("training_run.py")
    done = python(script, "resume", tmp_path / "halfway.pt", tmp_path / "resumed.pt")
    assert done.returncode == 0, done.stderr
    resumed = torch.load(tmp_path / "resumed.pt", weights_only=True)
    for name in METHODS:
        before, expected, got = flat(halfway[name]), flat(finished[name]), flat(resumed[name])
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(got[key], value), f"{name}{key}"
        assert not torch.equal(before["/model/0.weight"], expected["/model/0.weight"])


@pytest.mark.parametrize("name", METHODS)
def test_the_state_is_plain_tensors_that_safetensors_takes(name: str, tmp_path: Path) -> None:
    run = Run(METHODS[name])
    state = run.train(start=(0, 0), save_at=HALFWAY)["fence"]
    safetensors.torch.save_file(state, tmp_path / "fence.safetensors")
    twin = METHODS[name].make()
    twin.load_state_dict(safetensors.torch.load_file(tmp_path / "fence.safetensors"))
    assert twin.state_dict().keys() == state.keys()
    for key, value in twin.state_dict().items():
        assert torch.equal(value, state[key])


def test_a_state_saved_during_the_papers_pass_goes_on_with_it() -> None:
    fence, twin = rf.Lagrangian(1.0, samples=2), rf.Lagrangian(1.0, samples=2)
    fence.observe(a=torch.tensor([5.0]), index=torch.tensor([0]))
    twin.load_state_dict(fence.state_dict())
    twin(a=torch.ones(2, requires_grad=True), index=torch.arange(2))  # not seen: the pass is under way
    twin.observe(a=torch.tensor([7.0]), index=torch.tensor([1]))
    twin.step()
    assert twin.multipliers["a"].tolist() == [5.0, 7.0]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("options", [{}, {"shapes": {"a": ()}}])
def test_a_state_saved_before_the_first_call_loads(name: str, options: dict) -> None:
    """The twin begins with the method's formula at λ = 0, and goes on as one that was never loaded into."""
    entry, values = METHODS[name], [0.5, -1.0, 2.0, 0.25]
    twin, plain = entry.make(**options), entry.make(**options)
    for _ in range(2):  # what it learnt before is forgotten
        twin(a=torch.ones(4, dtype=torch.float64, requires_grad=True), index=entry.index(torch.arange(4)))
        twin.step()
    twin.load_state_dict(entry.make(**options).state_dict())
    losses = []
    for fence in (twin, plain):
        for _ in range(3):
            a = torch.tensor(values, dtype=torch.float64, requires_grad=True)
            losses.append(fence(a=a, index=entry.index(torch.arange(4))).item())
            fence.step()
    of_mean = name == "augmented, shared"
    seen = [sum(values) / 4] * 4 if of_mean else values
    assert losses[0] == pytest.approx(sum(entry.phi(f, 0.0) for f in seen), rel=1e-12)
    assert losses[:3] == losses[3:]
    state, expected = twin.state_dict(), plain.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(value, expected[key]) for key, value in state.items())


def test_a_saved_state_does_not_change_while_training_goes_on() -> None:
    fence = rf.Lagrangian(1.0, samples=2)
    fence(a=torch.ones(2, requires_grad=True), index=torch.arange(2))
    state = fence.state_dict()
    fence(a=torch.ones(2, requires_grad=True), index=torch.arange(2))
    fence.step()
    assert state["sums.a"].tolist() == [1.0, 1.0]
    assert state["multipliers.a"].tolist() == [0.0, 0.0]


def test_a_fence_inside_a_module_is_saved_with_it() -> None:
    module = nn.ModuleDict({"net": nn.Linear(1, 1), "fence": rf.LogBarrier(t=2.0, mu=3.0)})
    module["fence"].step()
    twin = nn.ModuleDict({"net": nn.Linear(1, 1), "fence": rf.LogBarrier()})
    twin.load_state_dict(module.state_dict())
    assert twin["fence"].t == 6.0


def test_a_checkpoint_without_a_fence_loads_when_not_strict() -> None:
    module = nn.ModuleDict({"net": nn.Linear(1, 1), "fence": rf.LogBarrier(t=2.0), "monitor": rf.Monitor()})
    report = module.load_state_dict(nn.ModuleDict({"net": nn.Linear(1, 1)}).state_dict(), strict=False)
    assert report.missing_keys == ["fence.header", "monitor._extra_state"]
    assert module["fence"].t == 2.0


def seen(fence: rf.Method, samples: int = 12) -> rf.Method:
    fence(a=torch.ones(samples, 2, requires_grad=True), index=torch.arange(samples))
    return fence


def negative(fence: rf.Method, number: float = -2.0) -> dict:
    """D9: a state that somebody edited, or wrote with another library."""
    state = fence.state_dict()
    state["multipliers.a"][0] = number
    return state


@pytest.mark.parametrize(
    ("state", "fence", "message"),
    [
        (rf.Lagrangian().state_dict(), rf.LogBarrier(), "saved by Lagrangian, but it is being loaded into LogBarrier"),
        (rf.LogBarrier().state_dict(), rf.AugmentedLagrangian(), "saved by LogBarrier.*into AugmentedLagrangian"),
        (rf.Lagrangian(samples=5).state_dict(), rf.Lagrangian(samples=6), "kept by sample of 5, this method's by sample of 6"),
        (rf.Lagrangian(samples=5).state_dict(), rf.Lagrangian(shared=True), "kept by sample of 5, this method's by name"),
        (nn.Linear(1, 1).state_dict(), rf.Penalty(), r'Missing key.*"header"'),
        (rf.LogBarrier().state_dict() | {"odd": torch.ones(1)}, rf.LogBarrier(), r'Unexpected key.*"odd"'),
        (rf.Lagrangian(samples=5).state_dict(), rf.Lagrangian(), "kept by sample of 5, this method's by sample$"),
        (negative(seen(rf.Lagrangian())), rf.Lagrangian(), "multipliers of 'a' must not be negative.*lowest is -2"),
        (negative(seen(rf.Lagrangian()), torch.nan), rf.Lagrangian(), "multipliers of 'a' must be finite"),
        ({k: v for k, v in seen(rf.Lagrangian(shared=True)).state_dict().items() if k != "multipliers.a"}, rf.Lagrangian(shared=True), "lacks the multipliers of a"),
        (seen(rf.Lagrangian(samples=3), 3).state_dict(), None, r"multipliers of 'a' have shape \[3, 2\].*\[3, 4\]"),
        (seen(rf.LogBarrier()).state_dict(), None, "about the constraints 'a', this method's are 'b'"),
        ({k: v for k, v in rf.LogBarrier().state_dict().items() if k != "t"}, rf.LogBarrier(), "the state lacks t"),
    ],
)  # fmt: skip
def test_foreign_states_are_refused_and_nothing_changes(state: dict, fence: rf.Method | None, message: str) -> None:
    if fence is None and "multipliers.a" in state:
        fence = rf.Lagrangian(samples=3)
        fence(a=torch.ones(3, 4, requires_grad=True), index=torch.arange(3))
    elif fence is None:
        fence = rf.LogBarrier()
        fence(b=torch.ones(2))
    before = fence.state_dict()
    with pytest.raises(RuntimeError, match=message):
        fence.load_state_dict(state)
    assert all(torch.equal(value, before[key]) for key, value in fence.state_dict().items())


def test_a_state_of_another_kind_of_constraint_is_refused() -> None:
    """D9 again: an equality's negative λ is none for an inequality that is there already."""
    equality, inequality = rf.Lagrangian(1.0, same_rows=True), rf.Lagrangian(1.0, same_rows=True)
    equality(a=rf.equal(torch.zeros(1, requires_grad=True), 2.0))
    equality.step()
    inequality(a=torch.ones(1, requires_grad=True))
    with pytest.raises(
        RuntimeError, match="constraint 'a' is an equality kept by entry, this method's an inequality"
    ):
        inequality.load_state_dict(equality.state_dict())


def test_a_state_without_an_optimisers_memory_clears_it_and_a_rate_comes_along() -> None:
    make = partial(torch.optim.SGD, lr=1.0, momentum=0.9)
    old, fence = (rf.Lagrangian(same_rows=True, dual_optimiser=make) for _ in range(2))
    x = torch.ones(1, requires_grad=True)
    for _ in range(9):
        fence(a=10 * x)
        fence.step()
    old(a=x)
    fence.load_state_dict(old.state_dict())
    fence.step()
    assert fence.multipliers["a"].item() == 1.0
    fence.dual_optimisers["a"].param_groups[0]["lr"] = 0.01
    twin = rf.Lagrangian(same_rows=True, dual_optimiser=make)
    twin.load_state_dict(fence.state_dict())
    for one in (fence, twin):
        one(a=x)
        one.step()
    assert twin.multipliers["a"].item() == fence.multipliers["a"].item() < 1.1
