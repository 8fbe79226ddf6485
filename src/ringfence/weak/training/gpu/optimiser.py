"""An optimiser's step as part of a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from ringfence.weak.training.gpu.adam import AtOnce

KNOWN: Final = (Adam, AdamW)
"""Fused, these take their learning rate from a tensor, and read nothing else that changes."""
OWN: Final = ("params", "lr", "initial_lr", "capturable")
"""Of a group: what a schedule of learning rates changes, or we do."""


class InGraph:
    """An optimiser whose learning rates a graph reads anew; its state stays where it is.

    Other numbers of its groups, such as betas, stay as recorded: ``as_recorded`` tells if they changed.

    Args:
        optimiser: one that ``can_be_recorded``.
    """

    def __init__(self, optimiser: Optimizer) -> None:
        self._optimiser = optimiser
        self._values = [float(group["lr"]) for group in optimiser.param_groups]
        self._rates = [
            torch.tensor(value, device=group["params"][0].device)
            for value, group in zip(self._values, optimiser.param_groups, strict=True)
        ]
        self._others = [_others(group) for group in optimiser.param_groups]
        self._at_once = AtOnce(optimiser, self._rates)
        self._first = True

    def step(self) -> None:
        """The optimiser's, while it is recorded: in one launch where it can be.

        The first is always its own: it makes its state, and schedules of learning rates look for it.
        """
        if self._first or not self._at_once.serves():
            self._optimiser.step()
        else:
            self._at_once.step()
        self._first = False

    def as_recorded(self) -> bool:
        """Whether a replay does what the optimiser would; new learning rates are passed on."""
        for place, group in enumerate(self._optimiser.param_groups):
            if _others(group) != self._others[place]:
                return False
            if group["lr"] != self._values[place]:
                self._values[place] = float(group["lr"])
                self._rates[place].fill_(self._values[place])
        return True

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Steps in here leave no trace in its state; where there was none, it is as at the beginning: zeros."""
        groups = self._optimiser.param_groups
        before = [(group["lr"], group["capturable"]) for group in groups]
        saved = {
            weight: {name: one.clone() for name, one in state.items() if isinstance(one, Tensor)}
            for weight, state in self._optimiser.state.items()
        }
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"], group["capturable"] = rate, True
        self._first = True
        try:
            yield
            self._at_once.fill()
        finally:
            for group, (rate, capturable) in zip(groups, before, strict=True):
                group["lr"], group["capturable"] = rate, capturable
            for weight, state in self._optimiser.state.items():
                for name, one in state.items():
                    if isinstance(one, Tensor):
                        known = saved.get(weight, {}).get(name)
                        one.zero_() if known is None else one.copy_(known)


def can_be_recorded(optimiser: Optimizer) -> bool:
    """Whether a graph may hold its step: Adam or AdamW, fused, with numbers as learning rates."""
    return type(optimiser) in KNOWN and all(
        group.get("fused") and not isinstance(group["lr"], Tensor) for group in optimiser.param_groups
    )


def _others(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in OWN}
