"""One multiplier for all data points, on the mean of what they were measured at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from ringfence.methods.multipliers.kinds import INEQUALITY, Kind
from ringfence.methods.multipliers.latest import Latest
from ringfence.methods.multipliers.store import Climb, Kept, counts, first
from ringfence.residuals import Residual


@final
class Shared(Kept):
    """λ per constraint name. The mean over everything seen since the last step is what is held to ``<= 0``.

    A two-sided inequality is two constraints, and gets one for each side: with a single one,
    λ(low - v) + λ(v - high) would not depend on v at all.
    """

    code = "name"

    def __init__(self, name: str, kind: Kind, pair: bool, initial: float) -> None:
        super().__init__(name, kind, pair, initial)
        # float64: one sum may take in millions of residuals
        self._sum: Tensor | None = None
        self._count: Tensor | None = None
        self._latest: Latest | None = None
        self._both: Tensor | None = None  # sum and count, while a graph writes to them
        self._fixed: tuple[Tensor, ...] | None = None  # each of them

    def __str__(self) -> str:
        return "one multiplier per constraint name, shared by all samples"

    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """Anything fits."""
        if self._value is None:
            self._value = first(like, self.kind.shape(torch.Size((2,) if self.pair else ())), self.initial)
        elif self._value.device != like.device:
            moved = {name: one.to(like.device) for name, one in self.tensors().items()}
            self.restore(moved)

    def measured(self, v: Tensor, residual: Residual) -> tuple[Tensor, Tensor | float]:
        """The sum of v over this call (of each side), and of how many."""
        v, there = counts(v, residual, True)
        if not self.pair:
            return v.sum(), max(float(v.numel()), 1.0) if there is None else there.sum().clamp(min=1.0)
        total = v.reshape(-1, 2).sum(dim=0)
        if there is None:
            return total, max(v.numel() / 2.0, 1.0)
        number = there.reshape(-1, 2).sum(dim=0).clamp(min=1.0)
        return total, number if self.kind is INEQUALITY else number[0]

    def everyone(self, v: Tensor, residual: Residual, index: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """The mean of v over all data points, and how many entries that is; differentiable in this call's.

        Those that the call does not have count as they were seen last, which takes ``index`` and ``remember``; else
        the call's are all there are.
        """
        total, number = self.measured(v, residual)
        if self._latest is None or index is None or not self.has_rows:
            return total / number, number
        with torch.no_grad():
            sums, counts = self._latest.others(index)
        if self.kind is not INEQUALITY:
            counts = counts[0]
        elif not self.pair:
            sums, counts = sums[0], counts[0]
        number = (counts + number).to(total.dtype)
        return (total + sums.to(total.dtype)) / number, number

    def remember(self, samples: int | None) -> None:
        """From now on keep the latest v of each data point."""
        self._latest = Latest(self.name, 2 if self.pair else 1, samples)

    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Add this call's v to the sum."""
        with torch.inference_mode(False), torch.no_grad():
            v, there = counts(v.detach(), residual, sound)
            if self._latest is not None and index is not None and self.has_rows:
                self._latest.put(index, v, there)
            number = torch.ones_like(v) if there is None else there
            total = v.double().reshape(-1, 2).sum(dim=0) if self.pair else v.sum(dtype=torch.float64)
            many = number.double().reshape(-1, 2).sum(dim=0) if self.pair else number.sum(dtype=torch.float64)
            if self._fixed is not None:
                self._fixed[0].add_(total)
                self._fixed[1].add_(many)
            elif self._sum is None or self._count is None:
                self._sum, self._count = total, many
            else:
                self._sum = self._sum.to(total.device) + total
                self._count = self._count.to(total.device) + many

    @property
    def seen(self) -> bool:
        """Whether anything was added up."""
        return self._sum is not None

    def step(self, climb: Climb) -> Tensor:
        """One step for all."""
        assert self._sum is not None and self._count is not None  # noqa: S101, PT018
        mean = (self._sum / self._count.clamp(min=1)).to(self.value.dtype)
        climbed = climb(self.value, mean, self.kind.where_seen(self._count), None, False)
        if self._fixed is None:
            self._value = climbed
        else:
            self.value.copy_(climbed)
        self.forget()
        return mean

    def forget(self) -> None:
        """Begin the sum anew."""
        self._sum = self._count = None
        if self._both is not None:
            self._both.zero_()

    def follow(self) -> list[Tensor] | None:
        """The sum and what it is of; not where the latest of each data point is kept."""
        if self._value is None or self._latest is not None:
            return None
        self._value = self._value.clone()
        self._both = torch.stack(self.sums())  # one tensor: what is seen is forgotten by one launch
        total, count = self._fixed = self._both.unbind()
        if self.seen:
            self.saw()
        return [total, count]

    def leave(self) -> None:
        """Sums are made anew again."""
        if self._fixed is not None and self.seen:
            self._sum, self._count = self._fixed
        self._fixed = self._both = None

    def saw(self) -> None:
        """The sums count."""
        assert self._fixed is not None  # noqa: S101 - see follow
        self._sum, self._count = self._fixed

    def used(self) -> tuple[Tensor, None]:
        """All there are."""
        return self.value, None

    def sums(self) -> list[Tensor]:
        """The sum and what it is of."""
        if self._sum is not None and self._count is not None:
            return [self._sum, self._count]
        empty = torch.zeros((2,) if self.pair else (), dtype=torch.float64, device=self.value.device)
        return [empty, empty]

    def take_sums(self, sums: list[Tensor]) -> None:
        """Those of all ranks."""
        self._sum, self._count = (one.double() for one in sums)

    def tensors(self) -> dict[str, Tensor]:
        """λ and the sums."""
        found = {"multipliers": self._value, "sums": self._sum, "counts": self._count}
        if self._latest is not None:
            found |= self._latest.tensors()
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._value, self._sum, self._count = (tensors.get(name) for name in ("multipliers", "sums", "counts"))
        if self._latest is not None:
            self._latest.restore(tensors)
