# ruff: noqa: RUF009 - option() is dataclasses.field() with a help text
"""The registry of methods: one class each, with its settings, how it is made, and how tables and curves show it.

A method that is added to ``METHODS`` appears in `ringfence train`, `ringfence compare`, their help, tables and
curves. One of a user's own joins by ``register``, or by its class path: ``--method my_module.MyMethod``. Needs no
torch until a method is made.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from ringfence import class_path
from ringfence.hints import nearest, one_line
from ringfence.numbers import fraction, not_negative, positive_number
from ringfence.options import check_words, option

if TYPE_CHECKING:
    from ringfence.methods import Method
    from ringfence.methods.base import Options

Unit: TypeAlias = Literal["pixels", "relative", "odds"]
SMALLEST: Final = 1e-6
LARGEST: Final = 1e8
"""What t and γ never exceed: beyond it, float32 has no digits left for what they multiply."""
LARGEST_RHO: Final = 1e6


@dataclass(frozen=True)
class Setup:
    """What a method may need to know of a training.

    Attributes:
        samples: how many training images there are.
        epochs: how long it takes.
        constraints: their names.
    """

    samples: int
    epochs: int
    constraints: Sequence[str] = ()


@dataclass(frozen=True)
class MethodSettings(ABC):
    """A method's settings, and what belongs to it."""

    name: ClassVar[str]
    """What it is asked for by."""
    title: ClassVar[str]
    """Its name in tables and curves; default: that name with spaces."""
    colour: ClassVar[str]
    """Its line's colour in curves; default: one of a few."""
    steps: ClassVar[Literal["epoch", "step"]] = "epoch"
    """How often ``fence.step()`` is due: after each epoch, or after each iteration."""

    temperature: float = option(1.0, "the logits are divided by it; below 1 sharpens")
    final_temperature: float = option(1.0, "its value in the last epoch (geometric schedule)")

    def __post_init__(self) -> None:
        check_words(self)
        positive_number("temperature", self.temperature)
        positive_number("final_temperature", self.final_temperature)

    def remarks(self, setup: Setup) -> list[str]:
        """What should be known of these settings before such a training begins, a line each."""
        return []

    @abstractmethod
    def make(self, setup: Setup) -> Method | None:
        """The fence, with losses that are means over the batch's images; None where no constraint is enforced."""


@dataclass(frozen=True)
class ConstrainedSettings(MethodSettings):
    """What every method that enforces constraints has."""

    weights: dict[str, float] = option({}, "how much each constraint's term counts, by its name; default: 1")
    unit: Unit = option(
        "pixels",
        "what its residuals are measured in; odds: t² are the odds of being in a box that make a pixel foreground",
    )

    def options(self, setup: Setup) -> Options:
        """What every fence of ours is made with."""
        weights = {name: weight for name, weight in self.weights.items() if name in setup.constraints}
        # We build residuals and indices, so validation is off; the module looks at the loss once an epoch.
        return {"reduction": "batchmean", "validate": False, "weights": weights}


@dataclass(frozen=True)
class Lagrangian(ConstrainedSettings):
    """Standard Lagrangian: λ per image and constraint, projected dual ascent once an epoch."""

    name: ClassVar = "lagrangian"
    title: ClassVar = "Standard Lagrangian"
    colour: ClassVar = "#8c8c8c"

    dual_lr: float = option(1.0, "dual learning rate")
    initial: float = option(0.0, "initial λ")

    def make(self, setup: Setup) -> Method:
        """Multipliers for every training image."""
        import ringfence as rf

        return rf.Lagrangian(self.dual_lr, initial=self.initial, samples=setup.samples, **self.options(setup))


@dataclass(frozen=True)
class ReLULagrangian(ConstrainedSettings):
    """ReLU Lagrangian (Nandwani et al.): one λ per constraint kind, on the violation alone."""

    name: ClassVar = "relu_lagrangian"
    title: ClassVar = "ReLU Lagrangian"
    colour: ClassVar = "#e69f00"
    steps: ClassVar[Literal["epoch", "step"]] = "step"

    dual_lr: float = option(1.0, "dual learning rate")
    initial: float = option(0.0, "initial λ")
    interval: int = option(10, "iterations before the first dual step")
    growth: int = option(1, "how many iterations longer each interval is than the one before")

    def make(self, setup: Setup) -> Method:
        """As its authors do it: one λ for all images, moved at growing intervals of iterations."""
        import ringfence as rf

        return rf.ReLULagrangian(
            self.dual_lr, self.interval, self.growth, initial=self.initial, shared=True, **self.options(setup)
        )


@dataclass(frozen=True)
class Penalty(ConstrainedSettings):
    """Quadratic penalty: γ max(0, f)²."""

    name: ClassVar = "penalty"
    title: ClassVar = "Penalty"
    colour: ClassVar = "#0072b2"

    strength: float = option(1.0, "γ")
    mu: float = option(1.0, "growth of γ per epoch")

    def remarks(self, setup: Setup) -> list[str]:
        """Where γ ends, if that is not where its growth would take it."""
        return _capped("γ", self.strength, self.mu, setup)

    def make(self, setup: Setup) -> Method:
        """γ grows by μ an epoch."""
        import ringfence as rf

        return rf.Penalty(self.strength, self.mu, **self.options(setup))


@dataclass(frozen=True)
class LogBarrier(ConstrainedSettings):
    """Log-barrier extension: ψ_t(f)."""

    name: ClassVar = "log_barrier"
    title: ClassVar = "Log-barrier extension"
    colour: ClassVar = "#c0272d"

    t: float = option(1.0, "initial t")
    mu: float | None = option(1.1, "growth of t per epoch; null where final_t is given")
    final_t: float | None = option(None, "t in the last epoch (geometric schedule); default: mu says how it grows")
    hold: float = option(0.0, "the fraction of epochs that t stays as it is before it grows to final_t")
    most_odds: dict[str, float] = option(
        {}, "odds that those of a constraint never exceed, by its name: its t is then the smaller of t and odds / t"
    )
    early: dict[str, float] = option(
        {}, "the fraction of epochs after which the odds of a constraint are those of the last epoch, by its name"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_number("t", self.t)
        for name, odds in self.most_odds.items():
            positive_number(f"most_odds.{name}", odds)
        for name, share in self.early.items():
            if not fraction(f"early.{name}", share):
                raise ValueError(
                    f"early.{name} 0 leaves no epoch in which its odds could grow: give a larger fraction"
                )
        if both := sorted(self.most_odds.keys() & self.early.keys()):
            raise ValueError(
                f"most_odds and early both say how the odds of {both[0]} grow: leave it out of one of them "
                "(--log_barrier.early {} takes away what a plan has there)"
            )
        if (self.most_odds or self.early) and self.mu is not None and positive_number("mu", self.mu) < 1.0:
            raise ValueError(f"mu must be at least 1 (a barrier is raised, not lowered), got mu={self.mu}")
        if fraction("hold", self.hold) == 1.0:
            raise ValueError("hold 1 leaves no epoch in which t could grow: give a smaller fraction")
        if self.hold and self.final_t is None:
            raise ValueError(f"hold {self.hold} is for a t that grows to final_t, and final_t is null")
        if (self.final_t is None) == (self.mu is None):
            raise ValueError(
                f"t grows by mu, or to final_t: one of them must be null; got mu {self.mu}, final_t {self.final_t}"
            )
        if self.final_t is not None and not self.final_t >= self.t:
            raise ValueError(f"final_t {self.final_t} must not be below t {self.t}")
        for name, value in (("t", self.t), ("final_t", self.final_t)):
            if value is not None and value < SMALLEST:
                raise ValueError(f"{name} {value:g} is below {SMALLEST:g}, where 1/t² means nothing in float32")
            if value is not None and value > LARGEST:
                raise ValueError(
                    f"{name} {value:g} is above {LARGEST:g}, which t never exceeds: choose a smaller one"
                )

    def remarks(self, setup: Setup) -> list[str]:
        """Where t ends, if that is not where its growth would take it."""
        return _capped("t", self.t, self.mu or 1.0, setup)

    def make(self, setup: Setup) -> Method:
        """μ is such that t is what it should be in the last epoch."""
        import ringfence as rf

        options = self.options(setup)
        if any(name in self.most_odds or name in self.early for name in setup.constraints):
            t = self._by_epoch(setup.epochs)
            return rf.LogBarrier({name: self._own(name, t, setup.epochs) for name in setup.constraints}, **options)
        if self.hold:
            return rf.LogBarrier(self._by_epoch(setup.epochs), **options)
        return rf.LogBarrier(self.t, self._growth(setup.epochs), **options)

    def _growth(self, epochs: int) -> float:
        if self.final_t is None:
            return float(self.mu or 1.0)
        return float((self.final_t / self.t) ** (1.0 / max(epochs - 1, 1)))

    def _by_epoch(self, epochs: int) -> Callable[[float], float]:
        """t by epoch, from 0: as it is for a while, and then geometric."""
        growth = self._growth(epochs)

        def t(epoch: float) -> float:
            if not self.hold:
                passed = float(epoch)
            else:  # up to final_t in what is left of the epochs
                last = max(epochs - 1, 1)
                passed = last * min(max((epoch / last - self.hold) / (1.0 - self.hold), 0.0), 1.0)
            exponent = math.log(self.t) + passed * math.log(growth)
            return math.exp(min(exponent, math.log(LARGEST)))

        return t

    def _own(self, name: str, t: Callable[[float], float], epochs: int) -> Callable[[int], float]:
        """A constraint's own t: strips pull with 1/t, so that one with c/t pushes at odds of c."""
        if (odds := self.most_odds.get(name)) is not None:
            return lambda epoch: min(t(epoch), odds / t(epoch))
        if (share := self.early.get(name)) is not None:
            return lambda epoch: t(min(epoch / share, epochs - 1)) ** 2 / t(epoch)
        return t


@dataclass(frozen=True)
class FullSupervision(MethodSettings):
    """Full supervision: cross-entropy against every pixel's label, and Dice loss if asked for; the upper bound."""

    name: ClassVar = "full_supervision"
    title: ClassVar = "Full supervision"
    colour: ClassVar = "#2a9d5c"

    dice: float = option(0.0, "how much Dice loss counts beside cross-entropy")

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("dice", self.dice)

    def make(self, setup: Setup) -> None:
        """No constraint is enforced."""


@dataclass(frozen=True)
class AugmentedLagrangian(ConstrainedSettings):
    """Augmented Lagrangian (not in the paper): λ per image and constraint, and a quadratic term of strength ρ."""

    name: ClassVar = "augmented_lagrangian"
    title: ClassVar = "Augmented Lagrangian (not in the paper)"
    colour: ClassVar = "#9467bd"

    rho: float = option(1.0, "ρ, and the dual learning rate")
    initial: float = option(0.0, "initial λ")
    mu: float = option(1.0, "growth of ρ per epoch")

    def remarks(self, setup: Setup) -> list[str]:
        """Where ρ ends, if that is not where its growth would take it."""
        return _capped("ρ", self.rho, self.mu, setup, LARGEST_RHO)

    def make(self, setup: Setup) -> Method:
        """Multipliers for every training image."""
        import ringfence as rf

        return rf.AugmentedLagrangian(
            self.rho, self.mu, initial=self.initial, samples=setup.samples, **self.options(setup)
        )


METHODS: Final[dict[str, type[MethodSettings]]] = {
    one.name: one for one in (Lagrangian, ReLULagrangian, Penalty, LogBarrier, FullSupervision, AugmentedLagrangian)
}
"""By name, in the order of tables. A new one is added here."""

_SPARE_COLOURS: Final = ("#56b4e9", "#d55e00", "#cc79a7", "#f0e442", "#009e73")


def _capped(name: str, start: float, mu: float, setup: Setup, most: float = LARGEST) -> list[str]:
    """A remark if a number that grows by ``mu`` an epoch would exceed what our methods allow."""
    if start <= 0.0 or mu <= 1.0:
        return []
    exponent = math.log10(start) + (setup.epochs - 1) * math.log10(mu)
    if exponent <= math.log10(most):
        return []
    return [
        f"{name} would grow to 1e{exponent:.0f} in {setup.epochs} epochs, and stays at {most:g}: lower mu {mu:g}"
    ]


def register(method: type[MethodSettings]) -> type[MethodSettings]:
    """Add a method of one's own to those there are; returns it, so that it can be a decorator."""
    if not (isinstance(method, type) and issubclass(method, MethodSettings)):
        raise TypeError(
            f"a method is a subclass of ringfence.weak.MethodSettings, which makes a fence; got {method!r}: see "
            "docs/python.md, a method of your own"
        )
    if not str(getattr(method, "name", "")).isidentifier():
        raise TypeError(f"{method.__name__} needs a name to be asked for by, as in name: ClassVar = 'my_method'")
    if METHODS.get(method.name, method) is not method and METHODS[method.name].__module__ == __name__:
        raise ValueError(f"there is a method '{method.name}' already: choose another name")
    METHODS[method.name] = method
    return method


def method_named(name: str) -> str:
    """The name of a method in the registry; one given by its class path is imported and registered first."""
    if name in METHODS:
        return name
    if "." in name:
        try:
            return register(class_path.find(name, "method")).name
        except TypeError as error:
            raise ValueError(f"method: {error}") from None
    near = nearest(name, METHODS)
    likely = f"did you mean '{near}'? " if near else ""
    raise ValueError(f"there is no method '{one_line(name)}'; {likely}There are: {', '.join(METHODS)}")


def title_of(name: str) -> str:
    """What tables call a method; one that is not registered here, or has no title, goes by its own name."""
    return getattr(METHODS.get(name), "title", name.replace("_", " "))


def colour_of(name: str) -> str:
    """A method's colour; one that is not registered here, or has none, gets one that stays the same."""
    return getattr(METHODS.get(name), "colour", _SPARE_COLOURS[sum(name.encode()) % len(_SPARE_COLOURS)])
