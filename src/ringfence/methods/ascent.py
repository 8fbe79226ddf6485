"""How multipliers climb: by a rate, or by any optimiser of ``torch.optim``; then within their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ringfence.methods.kinds import INEQUALITY, Kind

OptimiserFactory: TypeAlias = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
"""``partial(torch.optim.Adam, lr=1e-2)`` and the like."""


def ascend(kind: Kind, multiplier: Tensor, mean: Tensor, rate: float, highest: float, sure: bool) -> Tensor:
    """λ ← λ + rate·mean, projected: plain dual ascent.

    Args:
        kind: of the constraint.
        multiplier: λ.
        mean: the residuals' mean, as many as ``kind`` has for each λ.
        rate: the step's length.
        highest: |λ| never exceeds it.
        sure: whether ``mean`` is known to be finite; where it is not, λ stays.
    """
    climbed = kind.shifted(multiplier, mean, rate).clamp(max(kind.lowest, -highest), highest)
    if sure:
        return climbed
    usable = torch.isfinite(mean)
    return torch.where(usable if kind is INEQUALITY else usable.all(dim=-1), climbed, multiplier)


def settle_ties(multiplier: Tensor, before: Tensor, mean: Tensor, rate: float) -> Tensor:
    """Of limits whose two sides meet (low = high), move the difference of the two λ as one signed multiplier.

    Each side by itself would be right about its own limit, but of λ_low and λ_high only the difference acts: both
    would grow without end, and it would move twice as fast as either.
    """
    low, high = mean.unbind(dim=-1)
    signed = before[..., 1] - before[..., 0] + rate * 0.5 * (high - low)
    one = torch.stack((-signed, signed), dim=-1).clamp(min=0.0)
    return torch.where((low + high == 0.0).unsqueeze(-1), one, multiplier)


class RowOptimiser:
    """An optimiser of ``torch.optim`` for the multipliers of one constraint, whichever rows of them are seen.

    It is shown the rows that were seen and no others: neither they nor what it remembers of them move otherwise.
    What it counts (Adam's steps) it counts for all rows together.

    Args:
        make: from parameters to an optimiser.
    """

    def __init__(self, make: OptimiserFactory) -> None:
        self._parameter = nn.Parameter(torch.zeros(1), requires_grad=True)
        self.optimiser = make([self._parameter])
        if not isinstance(self.optimiser, torch.optim.Optimizer):
            raise TypeError(
                f"dual_optimiser must make a torch.optim.Optimizer from a list of parameters, as "
                f"partial(torch.optim.Adam, lr=1e-2) does; it made {type(self.optimiser).__name__}"
            )
        self._state: dict[str, Tensor] = {}

    def climb(
        self, kind: Kind, multiplier: Tensor, mean: Tensor, there: Tensor | None, rows: Tensor | None, total: int
    ) -> Tensor:
        """λ after one step of the optimiser, projected to what it may be.

        Args:
            kind: of the constraint.
            multiplier: λ, or some rows of it.
            mean: the residuals' mean.
            there: where something was seen; None for everywhere.
            rows: which rows of all these are; None for all of them.
            total: how many rows there are.
        """
        direction = kind.direction(multiplier, mean)
        there = torch.isfinite(direction) if there is None else there & torch.isfinite(direction)
        parameter, optimiser = self._parameter, self.optimiser
        parameter.data = multiplier.clone()
        upwards = any(group.get("maximize") for group in optimiser.param_groups)
        parameter.grad = torch.where(there, direction if upwards else -direction, 0.0)
        optimiser.state.clear()
        before = {key: self._rows_of(value, rows, total) for key, value in self._state.items()}
        if before:
            optimiser.state[parameter] = {key: value.clone() for key, value in before.items()}
        optimiser.step()
        for key, value in optimiser.state.get(parameter, {}).items():
            self._keep(key, torch.as_tensor(value), before.get(key), there, rows, total)
        parameter.grad = None
        return torch.where(there, parameter.data, multiplier).clamp(min=kind.lowest)

    def _rows_of(self, value: Tensor, rows: Tensor | None, total: int) -> Tensor:
        if rows is None or value.ndim == 0:
            return value
        return _lengthened(value, total).index_select(0, rows)

    def _keep(
        self, key: str, value: Tensor, before: Tensor | None, there: Tensor, rows: Tensor | None, total: int
    ) -> None:
        """Put back what the optimiser remembers, where something was seen."""
        if value.ndim == 0 or value.shape != there.shape:
            self._state[key] = value
            return
        value = torch.where(there, value, torch.zeros_like(value) if before is None else before)
        if rows is None:
            self._state[key] = value
            return
        table = self._state.get(key, value.new_zeros(0, *value.shape[1:]))
        self._state[key] = _lengthened(table, total).index_copy_(0, rows, value)

    def tensors(self) -> dict[str, Tensor]:
        """What the optimiser remembers."""
        return dict(self._state)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._state = dict(tensors)


def _lengthened(table: Tensor, rows: int) -> Tensor:
    """``table`` with zeros after its end, where it has fewer rows."""
    if len(table) >= rows:
        return table
    return torch.cat([table, table.new_zeros(rows - len(table), *table.shape[1:])])
