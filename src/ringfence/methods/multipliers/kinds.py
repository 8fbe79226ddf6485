"""The two kinds of constraint a multiplier belongs to: inequalities, λ >= 0, and equalities, λ of either sign."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Final, final

import torch
from torch import Tensor


class Kind(ABC):
    """How a multiplier λ and its residual v go together.

    The dual step of rate r is λ ← ``shifted(λ, v, r)``. It is also the slope of the augmented Lagrangian with
    ρ = r, whose value is (``shifted``² - λ²) / 2ρ for both kinds.
    """

    code: str
    """The kind in a word that never changes, for saved states."""

    lowest: float
    """No multiplier is below it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return kind_of, (self.code,)  # a copy is the same kind, not another one

    @abstractmethod
    def shape(self, shape: torch.Size) -> torch.Size:
        """The shape of the multipliers of residuals of that shape."""

    @abstractmethod
    def residual_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """The other way round."""

    @abstractmethod
    def where_seen(self, count: Tensor) -> Tensor:
        """True for the multipliers whose residuals were counted at all."""

    @abstractmethod
    def shifted(self, multiplier: Tensor, v: Tensor, rate: float | Tensor) -> Tensor:
        """λ after a step of that rate along v, projected to what λ may be: a new tensor, differentiable in v."""

    @abstractmethod
    def product(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """Σ λ v over everything, differentiable in v."""

    @abstractmethod
    def sides(self, slope: Tensor) -> Tensor:
        """d/dv for each entry of v, from d/dλ's partner ``slope``, shaped like the multipliers."""

    @abstractmethod
    def direction(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """Where λ should go: what an optimiser is given for a gradient (to ascend)."""

    @abstractmethod
    def landed(self, before: Tensor, after: Tensor, v: Tensor) -> Tensor:
        """Where a step along ``direction`` may end, that was taken from ``before`` to ``after``."""

    @abstractmethod
    def infeasibility(self, v: Tensor) -> Tensor:
        """How far from satisfied, >= 0, elementwise."""


@final
class Inequality(Kind):
    """v <= 0, λ >= 0. Two-sided ones have a λ for each side."""

    code = "inequality"
    lowest = 0.0

    def shape(self, shape: torch.Size) -> torch.Size:
        """One λ an entry."""
        return shape

    def residual_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """The same."""
        return tuple(shape)

    def where_seen(self, count: Tensor) -> Tensor:
        """Each for itself."""
        return count > 0

    def shifted(self, multiplier: Tensor, v: Tensor, rate: float | Tensor) -> Tensor:
        """max(0, λ + rate·v)."""
        return torch.relu(climbed(multiplier, v, rate))

    def product(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """Σ λ v."""
        return inner(multiplier, v)

    def sides(self, slope: Tensor) -> Tensor:
        """As they are."""
        return slope

    def direction(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """The residual."""
        return v

    def landed(self, before: Tensor, after: Tensor, v: Tensor) -> Tensor:
        """Not below 0."""
        return after.clamp(min=0.0)

    def infeasibility(self, v: Tensor) -> Tensor:
        """max(v, 0)."""
        return torch.relu(v)


@final
class Equality(Kind):
    """v = (-g - tolerance, g - tolerance) <= 0 for an off-target g: one λ of either sign for both sides.

    At most one side can act, the upper one where λ > 0 and the lower one where λ < 0; two multipliers that know
    nothing of each other would both grow, and their difference move twice as fast as either.
    """

    code = "equality"
    lowest = -math.inf

    def shape(self, shape: torch.Size) -> torch.Size:
        """One λ for both sides."""
        return shape[:-1]

    def residual_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """Two sides for one λ."""
        return (*shape, 2)

    def where_seen(self, count: Tensor) -> Tensor:
        """Both sides come and go together."""
        return count[..., 0] > 0

    def shifted(self, multiplier: Tensor, v: Tensor, rate: float | Tensor) -> Tensor:
        """λ + rate·g, shrunk towards 0 by rate·tolerance."""
        below, above = v.unbind(dim=-1)
        # never both positive, since below + above = -2 tolerance
        return torch.relu(climbed(multiplier, above, rate)) - torch.relu(rate * below - multiplier)

    def product(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """Σ λ g - |λ|·tolerance."""
        return (self.sides(multiplier) * v).sum()

    def sides(self, slope: Tensor) -> Tensor:
        """(max(-λ, 0), max(λ, 0))."""
        return torch.stack((-slope, slope), dim=-1).clamp(min=0.0)

    def direction(self, multiplier: Tensor, v: Tensor) -> Tensor:
        """How far outside of the tolerance, with its sign; inside, back to 0."""
        below, above = v.unbind(dim=-1)
        outside = torch.relu(above) - torch.relu(below)
        towards = torch.where(multiplier > 0, above, -below)
        return torch.where(multiplier == 0, outside, towards)

    def landed(self, before: Tensor, after: Tensor, v: Tensor) -> Tensor:
        """On the other side of 0 only if that side is violated: the way back ends at 0."""
        below, above = v.unbind(dim=-1)
        crossed = (before * after < 0) & (torch.where(after > 0, above, below) <= 0)
        return torch.where(crossed, 0.0, after)

    def infeasibility(self, v: Tensor) -> Tensor:
        """max(|g| - tolerance, 0)."""
        return torch.relu(v).amax(dim=-1)


INEQUALITY: Final = Inequality()
EQUALITY: Final = Equality()


def kind_of(code: str) -> Kind:
    """The kind that a saved state or another rank calls by its code."""
    return EQUALITY if code == EQUALITY.code else INEQUALITY


def inner(one: Tensor, other: Tensor) -> Tensor:
    """Σ one·other, broadcasting; by one dot product where shapes agree."""
    if one.shape != other.shape:
        return (one * other).sum()
    if one.ndim == 1:
        return torch.dot(one, other)
    return torch.dot(one.reshape(-1), other.reshape(-1))


def climbed(multiplier: Tensor, v: Tensor, rate: float | Tensor) -> Tensor:
    """λ + rate·v; the rate is a tensor where a CUDA graph must read it anew."""
    return multiplier + rate * v if isinstance(rate, Tensor) else torch.add(multiplier, v, alpha=rate)
