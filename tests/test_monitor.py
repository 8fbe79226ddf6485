"""Satisfaction, stability and worst violation against a dictionary-keeping reference in plain Python."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ringfence as rf


class Reference:
    """What the monitor should say, kept as {(name, sample, place): f} by plain loops."""

    def __init__(self) -> None:
        self.previous: dict[tuple[object, ...], float] = {}
        self.now: dict[tuple[object, ...], float] = {}

    def update(self, index: Tensor, **named: Tensor) -> None:
        for name, f in named.items():
            for row, sample in enumerate(index.tolist()):
                flat = f[row].reshape(-1).tolist()
                for place, value in enumerate(flat):
                    if value > -math.inf:
                        key = (name, sample, place)
                        self.now[key] = max(value, self.now.get(key, -math.inf))

    def compute(self, name: str | None = None) -> tuple[float, float, float]:
        now = {key: f for key, f in self.now.items() if name in (None, key[0])}
        satisfaction = sum(f <= 0 for f in now.values()) / len(now) if now else math.nan
        before = [key for key in now if self.previous.get(key, 1.0) <= 0]
        stability = sum(now[key] <= 0 for key in before) / len(before) if before else math.nan
        return satisfaction, stability, max([0.0, *now.values()])

    def reset(self) -> None:
        self.previous, self.now = self.now, {}


def same(measures: dict[str, Tensor], reference: Reference, names: tuple[str, ...]) -> None:
    for name in (None, *names):
        suffix = "" if name is None else f"/{name}"
        got = [measures[f"{kind}{suffix}"].item() for kind in ("satisfaction", "stability", "worst")]
        assert got == pytest.approx(reference.compute(name), rel=1e-6, nan_ok=True)


@given(seed=st.integers(0, 2**31), samples=st.integers(1, 8), epochs=st.integers(1, 4), ragged=st.booleans())
@settings(max_examples=40, deadline=None)
def test_matches_the_reference_in_any_order(seed: int, samples: int, epochs: int, ragged: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    monitor, reference = rf.Monitor(), Reference()
    for _ in range(epochs):
        size = torch.randn(samples, 2, generator=generator)
        strips = torch.randn(samples, 3, generator=generator)
        mask = torch.rand(samples, 3, generator=generator) < (0.5 if ragged else 2.0)
        order = torch.randperm(samples, generator=generator)
        for rows in order.split(3):
            named = {
                "size": rf.between(size[rows], -0.5, 0.5),
                "strips": rf.at_most(strips[rows], 0.0, mask=mask[rows]),
            }
            monitor.update(index=rows, **named)
            reference.update(rows, **{name: residual.f for name, residual in named.items()})
        same(monitor.compute(), reference, ("size", "strips"))
        monitor.reset()
        reference.reset()


def test_matches_the_reference_in_the_same_order_and_after_it_changes() -> None:
    """Epochs alike are matched without looking rows up; a test or a checkpoint between them changes nothing."""
    generator = torch.Generator().manual_seed(0)
    monitor, reference = rf.Monitor(), Reference()
    for epoch in range(6):
        index = torch.arange(7) if epoch < 4 else torch.tensor([3, 1, 4, 0, 8, 3])
        f = torch.randn(len(index), 2, 3, generator=generator)
        monitor.update(a=f, index=index)
        reference.update(index, a=f)
        same(monitor.compute(), reference, ("a",))
        monitor.reset()
        reference.reset()
        if epoch == 1:
            monitor.update(a=torch.ones(2, 2, 3), index=torch.arange(2))
            monitor.compute()
            monitor.clear()
        if epoch == 2:
            monitor.load_state_dict(monitor.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_was_shown_may_be_written_to_again(dtype: torch.dtype) -> None:
    """A CUDA graph, say, has the next batch's residuals where it had the last one's."""
    monitor, f, index = rf.Monitor(), torch.tensor([-1.0, 2.0], dtype=dtype), torch.arange(2)
    monitor.update(a=f, index=index)
    f.fill_(-1.0)
    index.fill_(7)
    monitor.update(a=f[:1], index=index[:1])
    found = monitor.compute()
    assert found["satisfaction"].item() == pytest.approx(2 / 3)
    assert found["worst"].item() == 2.0


def test_many_are_matched_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.monitor.FEW", 2)
    test_matches_the_reference_in_the_same_order_and_after_it_changes()


def test_on_a_gpu_a_fault_is_reported_when_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.checks.Check.on_cpu", property(lambda self: False))
    monitor = rf.Monitor()
    monitor.update(a=torch.zeros(2), index=torch.arange(2))
    monitor.update(a=torch.tensor([0.0, math.nan]), index=torch.arange(2))
    with pytest.raises(ValueError, match=r"constraint 'a' \(call 2 since the last check\): .* in row 1"):
        monitor.compute()
    monitor.update(a=torch.tensor([-1.0, 1.0]), index=torch.arange(2))  # the epoch with the fault is forgotten
    assert monitor.compute()["satisfaction"].item() == 0.5


def test_a_ragged_dimension_may_be_padded_differently_each_time() -> None:
    monitor = rf.Monitor()
    first = torch.tensor([[[-1.0, -1.0], [1.0, -1.0]]])  # [1 sample, 2 axes, 2 strips]
    monitor.update(strips=first, index=torch.tensor([0]))
    monitor.compute()
    monitor.reset()
    padded = torch.full((1, 2, 5), -torch.inf)
    padded[..., :2] = torch.tensor([[[-1.0, 1.0], [1.0, -1.0]]])
    monitor.update(strips=rf.Residual(padded, ragged=True), index=torch.tensor([0]))
    measures = monitor.compute()
    assert measures["satisfaction"].item() == 0.5
    assert measures["stability"].item() == pytest.approx(2 / 3)


def test_samples_seen_twice_count_once() -> None:
    monitor = rf.Monitor()
    monitor.update(a=torch.tensor([-1.0, 1.0]), index=torch.tensor([0, 1]))
    monitor.update(a=torch.tensor([1.0]), index=torch.tensor([1]))  # a padded sampler repeats it
    assert monitor.compute()["satisfaction"].item() == 0.5


def test_without_index_there_is_satisfaction_but_no_stability() -> None:
    monitor = rf.Monitor()
    for _ in range(2):
        monitor.update(a=torch.tensor([-1.0, 1.0]))
        monitor.update(a=torch.tensor([-1.0, -2.0]), b=torch.tensor(3.0))
        measures = monitor.compute()
        assert measures["satisfaction"].item() == pytest.approx(3 / 5)
        assert measures["satisfaction/b"].item() == 0.0
        assert math.isnan(measures["stability"].item())
        monitor.reset()


def test_a_reset_without_compute_still_ends_the_epoch() -> None:
    monitor = rf.Monitor()
    monitor.update(a=torch.tensor([-1.0, -1.0]), index=torch.arange(2))
    monitor.reset()
    monitor.update(a=torch.tensor([-1.0, 1.0]), index=torch.arange(2))
    assert monitor.compute()["stability"].item() == 0.5


def test_clear_forgets_a_sanity_check() -> None:
    monitor = rf.Monitor()
    monitor.update(a=torch.tensor([-1.0]), index=torch.arange(1))
    monitor.compute()
    monitor.clear()
    monitor.update(a=torch.tensor([1.0]), index=torch.arange(1))
    assert math.isnan(monitor.compute()["stability"].item())


def test_tolerance() -> None:
    monitor = rf.Monitor(tolerance=0.1)
    monitor.update(a=torch.tensor([0.05, 0.2]))
    assert monitor.compute()["satisfaction"].item() == 0.5


def test_forward_gives_the_batch_and_keeps_the_epoch() -> None:
    monitor = rf.Monitor()
    assert monitor(a=torch.tensor([-1.0]), index=torch.tensor([0]))["satisfaction"].item() == 1.0
    assert monitor(a=torch.tensor([1.0]), index=torch.tensor([1]))["satisfaction"].item() == 0.0
    assert monitor.compute()["satisfaction"].item() == 0.5


def test_memory_survives_state_dict_and_pickle() -> None:
    monitor = rf.Monitor()
    monitor.update(a=torch.tensor([-1.0, -1.0]), index=torch.arange(2))
    monitor.compute()
    monitor.reset()
    loaded = rf.Monitor()
    loaded.load_state_dict(monitor.state_dict())
    for one in (loaded, pickle.loads(pickle.dumps(monitor))):
        one.update(a=torch.tensor([-1.0, 1.0]), index=torch.arange(2))
        assert one.compute()["stability"].item() == 0.5


def test_a_name_may_have_a_space() -> None:
    monitor = rf.Monitor()
    monitor.update(**{"left ventricle": torch.tensor([-1.0])})
    assert monitor.compute()["satisfaction/left ventricle"].item() == 1.0


def test_a_failed_update_leaves_nothing() -> None:
    monitor = rf.Monitor()
    with pytest.raises(ValueError, match="constraint 'b'"):
        monitor.update(a=torch.tensor([1.0]), b=torch.tensor([math.nan]))
    assert monitor.residual == []


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Monitor was called before:UserWarning")
def test_a_reset_after_a_failed_compute_works() -> None:
    monitor = rf.Monitor()
    with pytest.raises(ValueError, match="before any update"):
        monitor.compute()
    monitor.reset()
    monitor.update(a=torch.tensor([1.0]))
    assert monitor.compute()["satisfaction"].item() == 0.0


def test_inference_mode_and_weight_averaging() -> None:
    module = torch.nn.ModuleDict({"net": torch.nn.Linear(1, 1), "monitor": rf.Monitor()})
    average = torch.optim.swa_utils.AveragedModel(module)
    with torch.inference_mode():
        module["monitor"].update(a=torch.tensor([-1.0]), index=torch.arange(1))
        module["monitor"].compute()
        module["monitor"].reset()
    average.update_parameters(module)
    assert not module["monitor"].get_extra_state().is_inference()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.update(), "without any constraint"),
        (lambda m: m.compute(), "before any update"),
        (lambda m: m.update(a=torch.tensor([float("nan"), 0.0])), r"constraint 'a': residual is NaN or infinite in row 0"),
        (lambda m: m.update(a=torch.zeros(3), index=torch.arange(2)), r"one entry per row.*int64 \[2\].*'a' of shape \[3\]"),
        (lambda m: m.update(a=torch.zeros(1), index=torch.tensor([-4])), "must not be negative, got -4"),
        (lambda m: m.update(a=torch.zeros(2), index=[0, 1]), "one entry per row, got list"),
        (lambda m: rf.Monitor(tolerance=-1.0), "tolerance must be finite and not negative"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Monitor was called before:UserWarning")
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(rf.Monitor())


def test_tolerance_by_name() -> None:
    monitor = rf.Monitor({"outside": 1.0})
    monitor.update(outside=torch.tensor([0.9, 1.1]), size=torch.tensor([0.5, -1.0]), index=torch.arange(2))
    measures = monitor.compute()
    assert measures["satisfaction/outside"].item() == 0.5
    assert measures["satisfaction/size"].item() == 0.5
    assert measures["satisfaction"].item() == 0.5
    with pytest.raises(ValueError, match="the tolerance of 'outside' must be finite and not negative"):
        rf.Monitor({"outside": -1.0})
