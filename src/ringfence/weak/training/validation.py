"""What validation looks at beside constraints: measures against masks, and the multipliers that residuals imply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from ringfence.fetching import fetched
from ringfence.methods import Method
from ringfence.methods.dual import DualMethod
from ringfence.residuals import Residual
from ringfence.weak.ranks.world import from_all
from ringfence.weak.training.measures import MEASURES

LAST: Final = 10
"""Epochs whose mean says what a training reaches: in these, levels are set, and images are turned."""


class Validation(nn.Module):
    """An epoch's measures and implied multipliers: on the device until it ends, then of all ranks together."""

    def __init__(self) -> None:
        super().__init__()
        self.measures = nn.ModuleDict({name: one.metric() for name, one in MEASURES.items() if one.metric})
        self._pulls = _Pulls()

    def judge(self, logits: Tensor, batch: Mapping[str, Tensor], ghost: bool = False) -> None:
        """Measure a batch by its masks, where it has any.

        Args:
            logits: the network's.
            batch: with ``mask``, and what measures read.
            ghost: nothing of it counts: metrics see a batch without rows, and know of what kind it is.
        """
        if "mask" not in batch:
            return
        if ghost:
            logits, batch = logits[:0], {name: tensor[:0] for name, tensor in batch.items()}
        for metric in self.measures.values():
            metric.update(logits, batch)  # type: ignore[operator]

    def imply(self, fence: Method | None, residuals: Mapping[str, Residual], rows: int, checked: bool) -> None:
        """Keep the multipliers that residuals imply; those that a method keeps belong to training images.

        Args:
            fence: the method.
            residuals: of a batch.
            rows: how many images it has.
            checked: whether somebody has looked at these residuals already.
        """
        if fence is not None and not isinstance(fence, DualMethod):
            duals = fence.term_duals(residuals) if checked else fence.duals(index=None, **residuals)
            self._pulls.add(duals, residuals, rows)

    def told(self) -> dict[str, Tensor]:
        """What there is to log, by name; and begin anew. Waits for the device once."""
        found: dict[str, Tensor] = {}
        for name, metric in self.measures.items():
            if metric.update_called:
                one: Any = metric.compute()  # type: ignore[operator]
                metric.reset()  # type: ignore[operator]
                found |= one if isinstance(one, dict) else {name: one}
        pulls = self._pulls.tallied()
        values = fetched(*map(torch.as_tensor, found.values()), *pulls.values())
        told = dict(zip(found, values, strict=False))
        known = {name: one.tolist() for name, one in zip(pulls, values[len(found) :], strict=True)}
        for name, (mean, largest) in _means_and_largest(known).items():
            told[f"fence/mean_multiplier/{name}"] = torch.tensor(mean)
            told[f"fence/max_multiplier/{name}"] = torch.tensor(largest)
        return told


class _Pulls:
    """The multipliers that an epoch's residuals imply: kept where they are until they are tallied."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def add(self, duals: Mapping[str, Tensor], residuals: Mapping[str, Residual], rows: int) -> None:
        """Those of a batch of so many images: per image, not per batch."""
        for name, each in duals.items():
            self._seen.setdefault(name, []).append(((each * rows).flatten(), residuals[name].f.detach().flatten()))

    def tallied(self) -> dict[str, Tensor]:
        """Sum, number and largest of each name's, where there is a constraint: float64 ``[3]``; and begin anew."""
        seen, self._seen = self._seen, {}
        found = {}
        for name, parts in seen.items():
            values, f = (torch.cat(part) for part in zip(*parts, strict=True))
            absent, values = f == -math.inf, values.double()
            # one more, so that there is a largest of none
            largest = torch.cat([values.masked_fill(absent, -math.inf), values.new_full((1,), -math.inf)]).amax()
            found[name] = torch.stack([values.masked_fill(absent, 0.0).sum(), (~absent).sum().double(), largest])
        return found


def _means_and_largest(mine: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Of each name, the mean and the largest of all ranks' values, from tallies; names without any are left out."""
    everyones = from_all({name: tuple(one) for name, one in mine.items() if one[1]})
    found = {}
    for name in dict.fromkeys(name for theirs in everyones for name in theirs):
        sums, counts, largest = zip(*(theirs[name] for theirs in everyones if name in theirs), strict=True)
        found[name] = (sum(sums) / sum(counts), max(largest))
    return found
