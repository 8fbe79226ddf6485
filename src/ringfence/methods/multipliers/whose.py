"""Whose multiplier is whose: by data point, by position, one for all, or a network's answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final

import torch
from torch import Tensor, nn

from ringfence.checks import Check
from ringfence.methods.by_name import ByName
from ringfence.methods.multipliers import Indexed, Multipliers, Network, SameRows, Sharded, Shared
from ringfence.methods.multipliers.ascent import OptimiserFactory
from ringfence.methods.multipliers.kinds import Kind

FEW: Final = 256


class Whose:
    """Which way multipliers are kept, and what a call must say for it.

    Args:
        samples: how many data points there are, where that is declared.
        shared: one multiplier for all of them.
        same_rows: every call has the same rows.
        multiplier: a network's answer, by constraint name if there are several.
        sharded: each rank keeps the rows of some data points.
    """

    def __init__(
        self,
        samples: int | None,
        shared: bool,
        same_rows: bool,
        multiplier: nn.Module | Mapping[str, nn.Module] | None,
        sharded: bool = False,
    ) -> None:
        if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
            raise ValueError(f"samples must be a positive number of data points, got {samples!r}")
        chosen = {
            "shared=True": shared,
            "same_rows=True": same_rows,
            "multiplier=": multiplier is not None,
        }
        given = [option for option, is_given in chosen.items() if is_given]
        if samples is not None and (same_rows or multiplier is not None):
            given.append(f"samples={samples}")
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} exclude each other: multipliers are kept for each data point, for all "
                "together, by position, or are a network's"
            )
        if sharded and (given or samples is None):
            raise ValueError(
                "sharded=True spreads a row of multipliers for each data point over the ranks: "
                + (f"leave out {given[0]}, or sharded" if given else "declare how many there are with samples=N")
            )
        self.samples, self.shared, self.same_rows, self.sharded = samples, shared, same_rows, sharded
        self.network: ByName[nn.Module] | None = (
            None if multiplier is None else ByName("multiplier", multiplier, _module)
        )

    def __str__(self) -> str:
        if self.network is not None:
            return f"multipliers by {self.network}"
        if self.shared:
            return "one multiplier per constraint name, shared by all samples"
        if self.same_rows:
            return "one multiplier per entry of the residual"
        each = "data point" if self.samples is None else f"of {self.samples} samples"
        return f"a row of multipliers for each {each}{', spread over the ranks' if self.sharded else ''}"

    @property
    def by_sample(self) -> bool:
        """Whether each data point has a row of its own."""
        return not (self.shared or self.same_rows or self.network is not None)

    @property
    def code(self) -> str:
        """The way in words that never change, for saved states."""
        if self.network is not None:
            return "network"
        if self.by_sample:
            return "sample" if self.samples is None else f"sample of {self.samples}"
        return "name" if self.shared else "entry"  # shared, samples bounds nothing that is kept

    def store(
        self,
        name: str,
        kind: Kind,
        pair: bool,
        has_rows: bool,
        initial: float,
        optimiser: OptimiserFactory,
        place: tuple[int, int],
    ) -> Multipliers:
        """A place for the multipliers of a constraint; a residual without rows is its own data point.

        ``place`` is this process's rank and how many there are; with one alone nothing is sharded.
        """
        if self.network is not None:
            store: Multipliers = Network(name, kind, pair, self.network[name], optimiser)
        elif self.shared or not has_rows:
            store = Shared(name, kind, pair, initial)
        elif self.same_rows:
            store = SameRows(name, kind, pair, initial)
        elif self.sharded and self.samples is not None and place[1] > 1:
            store = Sharded(name, kind, pair, initial, self.samples, *place)
        else:
            store = Indexed(name, kind, pair, initial, self.samples)
        store.has_rows = has_rows
        return store

    def checks(
        self, method: str, index: Tensor | None, shapes: Mapping[str, tuple[torch.Size, bool]]
    ) -> list[Check]:
        """Raise on an index that is missing or of the wrong kind; return the checks of its values.

        Args:
            method: for messages.
            index: as given.
            shapes: of each residual, and whether it has rows.
        """
        if self.same_rows and index is not None:
            raise ValueError(
                "same_rows=True says that every call has the same rows, index= that they differ: leave one out"
            )
        rows = {name: shape for name, (shape, has_rows) in shapes.items() if has_rows}
        if self.network is not None or not rows or (self.shared and index is None):
            return []
        if index is None:
            raise ValueError(self._missing(method, next(iter(rows))))
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1:
            kind = (
                f"{index.dtype} of shape {list(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
            )
            raise TypeError(f"index must be a 1-D int64 tensor, got {kind}")
        for name, shape in rows.items():
            if shape[0] != len(index):
                raise ValueError(
                    f"index has {len(index)} entries, but constraint '{name}' has shape {list(shape)}: "
                    "its first dimension must count the same rows"
                )
        if index.is_cpu and self._surely_in_range(index):
            return []
        last = "Samples are numbered from 0" + (f" to {self.samples - 1}." if self.samples else ".")
        inputs: dict[str, Tensor | float] = {"index": index.detach()}
        return [Check("sample out of range", self._out_of_range, inputs, last)]

    def harmless(self, index: Tensor, device: torch.device) -> Tensor:
        """The index beside the residuals; on a GPU within range, since a wild read would come before its check."""
        if index.device != device:
            index = index.to(device, non_blocking=True)
        return index if index.is_cpu or self.samples is None else index.clamp(0, self.samples - 1)

    def _missing(self, method: str, name: str) -> str:
        if self.samples is not None:
            return f"index= is missing: with {self} each call must say which sample each row is"
        return (
            f"{method} keeps a multiplier for each data point, and cannot tell whose the rows of '{name}' are: "
            "pass index= (int64, which data point each row is), or build it with shared=True (one multiplier per "
            "constraint, which limits the mean), or with same_rows=True (every call has the same rows in the same "
            "order)"
        )

    def _out_of_range(self, index: Tensor) -> Tensor:
        wrong = index < 0
        return wrong if self.samples is None else wrong | (index >= self.samples)

    def _surely_in_range(self, index: Tensor) -> bool:
        if not index.numel():
            return True
        if len(index) <= FEW:  # so few are looked at sooner in Python
            numbers = index.tolist()
            low, high = min(numbers), max(numbers)
        else:
            low, high = (one.item() for one in index.aminmax())
        return low >= 0 and (self.samples is None or high < self.samples)


class MultiplierView(MutableMapping[str, Tensor]):
    """λ by constraint name, as it is: what is put here acts, and so does a change in place."""

    def __init__(self, stores: Mapping[str, Multipliers]) -> None:
        self._stores = stores

    def __getitem__(self, name: str) -> Tensor:
        return self._stores[name].value

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name not in self._stores:
            known = ", ".join(f"'{one}'" for one in self._stores) or "none yet"
            raise KeyError(f"no constraint is called '{name}'; there are: {known}")
        store = self._stores[name]
        before = store.value
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != before.shape:
            kind = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the multipliers of '{name}' are a tensor of shape {list(before.shape)}, got {kind}")
        fault = unfit(store.kind, value)
        if fault is not None:
            raise ValueError(f"the multipliers of '{name}' {fault}")
        store.put(value.detach().to(before).clone())

    def __delitem__(self, name: str) -> None:
        raise TypeError("multipliers cannot be deleted: a constraint keeps them as long as its method lives")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def __repr__(self) -> str:
        return repr(dict(self))


def unfit(kind: Kind, value: Tensor) -> str | None:
    """What is wrong with multipliers of that kind; None if nothing is."""
    if not bool(torch.isfinite(value).all()):
        return "must be finite"
    if value.numel() and value.min().item() < kind.lowest:
        return f"must not be negative, since it is an inequality; the lowest is {value.min().item():g}"
    return None


def _module(what: str, module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{what} must be a torch.nn.Module, got {type(module).__name__}")
    return module
