"""How multipliers climb: by a rate, or by any optimiser of ``torch.optim``; then within their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from ringfence.methods.multipliers.kinds import Kind
from ringfence.methods.multipliers.store import lengthened

NOT_BY_ENTRY: Final = ("Adafactor", "LBFGS", "Muon", "Rprop", "SparseAdam")
"""Optimisers that look at several entries at once, or do not begin from zeros."""

RATE: Final = "rate"

OptimiserFactory: TypeAlias = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
"""``partial(torch.optim.Adam, lr=1e-2)`` and the like."""


def ascend(kind: Kind, multiplier: Tensor, mean: Tensor, rate: float, there: Tensor | None, pair: bool) -> Tensor:
    """λ ← λ + rate·mean, projected: plain dual ascent.

    Args:
        kind: of the constraint.
        multiplier: λ.
        mean: the residuals' mean, as many as ``kind`` has for each λ.
        rate: the step's length.
        there: where something was seen; None for everywhere.
        pair: whether λ of the two sides of a limit stand side by side.
    """
    climbed = kind.shifted(multiplier, mean, rate)
    if not pair:
        return climbed
    signed = torch.stack((multiplier[..., 0], multiplier[..., 1] + rate * mean[..., 1]), dim=-1)
    return torch.where(tied(mean, there).unsqueeze(-1), apart(signed), climbed)


def tied(mean: Tensor, there: Tensor | None) -> Tensor:
    """True for two-sided limits whose sides meet (low = high), by row of ``mean [..., 2]``.

    Each side by itself would be right about its own limit, but of λ_low and λ_high only the difference acts: both
    would grow without end, and it would move twice as fast as either. So it is moved as one signed multiplier.
    """
    low, high = mean.unbind(dim=-1)
    meet = low + high == 0.0
    return meet if there is None else meet & there.all(dim=-1)


def apart(multiplier: Tensor) -> Tensor:
    """The two λ of ``[..., 2]`` with the same difference, and one of them 0."""
    signed = multiplier[..., 1] - multiplier[..., 0]
    return torch.stack((-signed, signed), dim=-1).clamp(min=0.0)


class RowOptimiser:
    """An optimiser of ``torch.optim`` for the multipliers of one constraint, whichever rows of them are seen.

    It is shown the rows that were seen and no others: neither they nor what it remembers of them move otherwise.
    What it counts (Adam's steps) it counts for all rows together. It must treat each entry by itself, and begin
    with zeros.

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
        if type(self.optimiser).__name__ in NOT_BY_ENTRY:
            raise ValueError(
                f"dual_optimiser: {type(self.optimiser).__name__} does not treat each multiplier by itself from "
                "zero on; take SGD, Adam, AdamW, RMSprop, Adagrad, rf.NuPI or another that does"
            )
        self._state: dict[str, Tensor] = {}

    def climb(
        self,
        kind: Kind,
        multiplier: Tensor,
        mean: Tensor,
        there: Tensor | None,
        rows: Tensor | None,
        total: int,
        pair: bool,
    ) -> Tensor:
        """λ after one step of the optimiser, projected to what it may be.

        Args:
            kind: of the constraint.
            multiplier: λ, or some rows of it.
            mean: the residuals' mean.
            there: where something was seen; None for everywhere.
            rows: which rows of all these are; None for all of them.
            total: how many rows there are.
            pair: whether λ of the two sides of a limit stand side by side.
        """
        direction = kind.direction(multiplier, mean)
        ties = tied(mean, there).unsqueeze(-1) if pair else None
        if ties is not None:  # the upper one moves for both
            direction = torch.where(ties & torch.tensor([True, False], device=ties.device), 0.0, direction)
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
        moved = torch.where(there, parameter.data, multiplier)
        landed = kind.landed(multiplier, moved, mean)
        return landed if ties is None else torch.where(ties, apart(moved), landed)

    def _rows_of(self, value: Tensor, rows: Tensor | None, total: int) -> Tensor:
        if value.device != self._parameter.device and value.ndim:
            value = value.to(self._parameter.device)
        if rows is None or value.ndim == 0:
            return value
        return lengthened(value, total).index_select(0, rows)

    def _keep(
        self, key: str, value: Tensor, before: Tensor | None, there: Tensor, rows: Tensor | None, total: int
    ) -> None:
        """Put back what the optimiser remembers, where something was seen."""
        if value.ndim == 0:
            self._state[key] = value
            return
        if value.shape != there.shape:
            raise ValueError(
                f"dual_optimiser: {type(self.optimiser).__name__} keeps '{key}' of shape {list(value.shape)} for "
                f"multipliers of shape {list(there.shape)}; it must treat each of them by itself"
            )
        value = torch.where(there, value, torch.zeros_like(value) if before is None else before)
        if rows is None:
            self._state[key] = value
            return
        table = self._state.get(key, value.new_zeros(0, *value.shape[1:])).to(value.device)
        self._state[key] = lengthened(table, total).index_copy_(0, rows, value)

    def tensors(self) -> dict[str, Tensor]:
        """What the optimiser remembers, and its learning rate, which a schedule may have changed."""
        return self._state | {RATE: torch.tensor(self.optimiser.param_groups[0]["lr"], dtype=torch.float64)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved; nothing, if nothing was."""
        self._state = {key: tensor for key, tensor in tensors.items() if key != RATE}
        if RATE in tensors:
            self.optimiser.param_groups[0]["lr"] = tensors[RATE].item()
