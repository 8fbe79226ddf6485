"""The registry of methods: each makes its fence from its settings, checks them itself, and has a look of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

import ringfence as rf
from ringfence import weak
from ringfence.residuals import at_most
from ringfence.weak.training.methods import (
    METHODS,
    ConstrainedSettings,
    MethodSettings,
    Setup,
    colour_of,
    method_named,
    register,
    title_of,
)

SETUP = Setup(samples=1, epochs=5, constraints=("size",))


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def cost(method: str, **settings: Any) -> float:
    """What a constraint that is broken by 2 costs, before any step."""
    fence = METHODS[method](**settings).make(SETUP)
    assert fence is not None
    shared = "relu" in method
    return float(fence(size=at_most(torch.tensor([[2.0]]), 0.0), index=None if shared else torch.tensor([0])))


@pytest.mark.parametrize("method", ["lagrangian", "relu_lagrangian", "augmented_lagrangian"])
def test_multipliers_begin_where_the_settings_say(method: str) -> None:
    assert cost(method, initial=0.75) - cost(method) == pytest.approx(0.75 * 2.0)


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        ("penalty", {"strength": 3.0}, 3.0 * 4.0),
        ("penalty", {"strength": 3.0, "weights": {"size": 0.5, "other": 9.0}}, 6.0),
        ("augmented_lagrangian", {"rho": 3.0}, 3.0 / 2.0 * 4.0),
        ("log_barrier", {"t": 2.0}, 2.0 * 2.0 - math.log(1 / 4) / 2 + 1 / 2),
        ("lagrangian", {}, 0.0),
        ("relu_lagrangian", {}, 0.0),
    ],
)
def test_every_setting_reaches_its_formula(method: str, settings: dict[str, Any], expected: float) -> None:
    assert cost(method, **settings) == pytest.approx(expected)


def test_t_grows_by_mu_or_to_where_it_should_be() -> None:
    for settings, last in (({"t": 2.0, "mu": 1.5}, 2.0 * 1.5**4), ({"t": 0.5, "mu": None, "final_t": 8.0}, 8.0)):
        fence = METHODS["log_barrier"](**settings).make(SETUP)
        for _ in range(4):
            fence.step()
        assert float(fence.t) == pytest.approx(last, rel=1e-5)
    once = METHODS["log_barrier"](t=0.5, mu=None, final_t=8.0).make(replace(SETUP, epochs=1))
    assert float(once.t) == 0.5  # of one epoch, the first is the last


@pytest.mark.parametrize(
    "growth", [{"mu": 2.0}, {"mu": None, "final_t": 8.0}, {"mu": None, "final_t": 8.0, "hold": 0.5}]
)
def test_odds_of_a_constraint_stop_where_they_should(growth: dict[str, Any]) -> None:
    """t of it against 1/t of the others: t² up to 2.25, and 2.25 from there on."""
    setup = replace(SETUP, constraints=("size", "absent"))
    fence, plain = (
        METHODS["log_barrier"](t=0.5, most_odds=most, **growth).make(setup) for most in ({"absent": 2.25}, {})
    )
    seen = []
    for _ in range(5):
        assert isinstance(fence, rf.LogBarrier)
        assert isinstance(plain, rf.LogBarrier)
        assert isinstance(fence.t, dict)
        assert fence.t["size"] == pytest.approx(plain.t, rel=1e-5)
        seen.append(fence.t["absent"] * fence.t["size"])
        assert seen[-1] == pytest.approx(min(fence.t["size"] ** 2, 2.25))
        fence.step()
        plain.step()
    assert seen[0] < 2.25 == pytest.approx(seen[-1])
    assert METHODS["log_barrier"](t=0.5, most_odds={"absent": 2.0}).make(SETUP).t == 0.5  # where there is no such


@pytest.mark.parametrize(
    "growth", [{"mu": 2.0}, {"mu": None, "final_t": 8.0}, {"mu": None, "final_t": 8.0, "hold": 0.5}]
)
def test_odds_of_a_constraint_are_those_of_the_last_epoch_early(growth: dict[str, Any]) -> None:
    """In half of the time: in every other epoch those of a barrier with twice as many, and in the end the last."""
    setup = replace(SETUP, constraints=("size", "edges"), epochs=9)
    fence, plain = (
        METHODS["log_barrier"](t=0.5, early=early, **growth).make(setup) for early in ({"edges": 0.5}, {})
    )
    assert isinstance(fence, rf.LogBarrier)
    assert isinstance(plain, rf.LogBarrier)
    seen, usual = [], []
    for _ in range(9):
        assert isinstance(fence.t, dict)
        assert fence.t["size"] == pytest.approx(plain.t, rel=1e-5)
        seen.append(fence.t["edges"] * fence.t["size"])
        usual.append(float(plain.t) ** 2)
        fence.step()
        plain.step()
    assert seen[:5] == pytest.approx(usual[::2], rel=1e-4)
    assert seen[5:] == pytest.approx([usual[-1]] * 4, rel=1e-4)


def test_full_supervision_has_no_fence() -> None:
    assert METHODS["full_supervision"]().make(SETUP) is None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["temperature", "final_temperature"])
def test_temperatures_are_above_zero(method: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, got {name}=0.0"):
        METHODS[method](**{name: 0.0})


def test_every_method_looks_different_and_says_what_it_is() -> None:
    for looks in ([title_of(name) for name in METHODS], [colour_of(name) for name in METHODS]):
        assert len(set(looks)) == len(METHODS)
    assert title_of("augmented_lagrangian") == "Augmented Lagrangian (not in the paper)"
    assert {one.steps for one in METHODS.values()} <= {"epoch", "step"}
    assert METHODS["relu_lagrangian"].steps == "step"
    assert [name for name, one in METHODS.items() if one.name != name] == []
    assert (title_of("a_method_of_mine"), colour_of("mine")) == ("a method of mine", colour_of("mine"))


@dataclass(frozen=True)
class Mine(ConstrainedSettings):
    """A penalty by another name."""

    name: ClassVar = "mine"
    title: ClassVar = "Mine"
    colour: ClassVar = "#000000"

    def make(self, setup: Setup) -> rf.Method:
        return rf.Penalty(2.0, **self.options(setup))


def test_a_method_of_one_s_own_joins(registry: None) -> None:
    assert register(Mine) is Mine
    register(Mine)  # twice does no harm: a module may be imported again
    assert (method_named("mine"), title_of("mine"), colour_of("mine")) == ("mine", "Mine", "#000000")
    assert cost("mine") == 8.0


def test_what_is_not_a_method_does_not_join(registry: None) -> None:
    class Impostor(Mine):
        name: ClassVar = "penalty"

    with pytest.raises(ValueError, match="there is a method 'penalty' already: choose another name"):
        register(Impostor)
    with pytest.raises(
        TypeError,
        match=r"a method is a subclass of ringfence.weak.MethodSettings, which makes a fence; got .*Penalty",
    ):
        register(rf.Penalty)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no method 'barier'; did you mean 'log_barrier'"):
        method_named("barier")
    with pytest.raises(ValueError, match="method: there is no module 'nowhere' for 'nowhere.Mine'"):
        method_named("nowhere.Mine")
    assert issubclass(METHODS["penalty"], MethodSettings)


def test_a_method_may_call_a_number_what_another_calls_by_constraint(registry: None) -> None:
    @dataclass(frozen=True)
    class Patient(Mine):
        name: ClassVar = "patient"
        early: float = 0.5

    register(Patient)
    assert weak.from_preset(weak.TrainSettings, "boxes").method_settings["patient"] == Patient()


@pytest.mark.parametrize("missing", ["name", "title", "colour"])
def test_a_method_without_a_name_says_so(missing: str, registry: None) -> None:
    body = {name: value for name, value in (("name", "x"), ("title", "X"), ("colour", "#111")) if name != missing}
    kind = type("Nameless", (ConstrainedSettings,), {**body, "make": lambda self, setup: None})
    if missing == "name":
        with pytest.raises(TypeError, match="Nameless needs a name"):
            register(kind)
    else:
        register(kind)
        assert title_of("x")
        assert colour_of("x").startswith("#")


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("log_barrier", {"t": 1e-30}, "t 1e-30 is below 1e-06"),
        (
            "log_barrier",
            {"mu": 0.5, "most_odds": {"size": 1.0}},
            "mu must be at least 1 .a barrier is raised, not lowered",
        ),
        (
            "log_barrier",
            {"mu": 0.5, "early": {"size": 0.5}},
            "mu must be at least 1 .a barrier is raised, not lowered",
        ),
        ("log_barrier", {"early": {"size": 0.0}}, "early.size 0 leaves no epoch in which its odds could grow"),
        ("log_barrier", {"early": {"size": 1.5}}, "early.size is a fraction from 0 to below 1, got 1.5"),
        (
            "log_barrier",
            {"early": {"size": 0.5}, "most_odds": {"size": 1.0}},
            "most_odds and early both say how the odds of size grow: leave it out of one of them",
        ),
        ("log_barrier", {"temperature": 1e300}, "temperature must be positive and finite, and at most 3.4e"),
        ("lagrangian", {"dual_lr": 1e300}, "dual_lr must be"),
        ("lagrangian", {"initial": 1e300}, "initial must be"),
    ],
)
def test_numbers_that_float32_does_not_hold_are_refused(
    method: str, changes: dict[str, float], message: str
) -> None:
    """D13: they ended in a RuntimeError of torch's."""
    with pytest.raises(ValueError, match=message):
        METHODS[method](**changes).make(Setup(1, 2, ("size",)))
