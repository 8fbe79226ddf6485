"""What methods with explicit multipliers remember, and how a call finds its own."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.checks import Check, batched
from ringfence.methods.admission import Call
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.by_name import ByName
from ringfence.methods.multipliers import Multipliers, Network
from ringfence.methods.multipliers.ascent import OptimiserFactory, RowOptimiser
from ringfence.methods.multipliers.kinds import INEQUALITY, Kind, kind_of
from ringfence.methods.multipliers.whose import MultiplierView, Whose, unfit
from ringfence.residuals import Constraint, Residual

_TENSORS = ("multipliers", "met", "sums", "counts", "last", "network", "optimiser", "gradient")
"""What a saved state may hold of a constraint's multipliers."""


class DualState(Method):
    """The multipliers of every constraint, whatever is done with them.

    Args:
        initial: every multiplier's first value.
        whose: how they are kept.
        make_optimiser: what moves them, where that is not a rate.
        process_group: the ranks that train together.
        **options: as for every method.
    """

    def __init__(
        self,
        initial: ByName[float],
        whose: Whose,
        make_optimiser: ByName[OptimiserFactory] | None,
        process_group: dist.ProcessGroup | None,
        **options: Unpack[Options],
    ) -> None:
        self._initial, self.whose = initial, whose
        self._make_optimiser, self._process_group = make_optimiser, process_group
        self._stores: dict[str, Multipliers] = {}
        self._optimisers: dict[str, RowOptimiser] = {}
        self._observing = False  # observe() is under way, and calls do not count
        self._overflowed = False
        super().__init__(**options)

    @property
    def initial(self) -> float | dict[str, float]:
        """Every multiplier's first value; by name where it was given so."""
        return self._initial.value

    @property
    def multipliers(self) -> MultiplierView:
        """λ as stored, by name. It is live: a dual step changes it, and so may you."""
        return MultiplierView(self._stores)

    @property
    def dual_optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """What moves λ, by name, once there was a dual step: for learning-rate schedules."""
        networks = {name: store.optimiser for name, store in self._stores.items() if isinstance(store, Network)}
        return networks | {name: one.optimiser for name, one in self._optimisers.items()}

    def train(self, mode: bool = True) -> DualState:
        """As for any module; networks that give multipliers go along."""
        super().train(mode)
        for store in self._stores.values():
            if isinstance(store, Network):
                store.module.train(mode)
        return self

    def summary(self) -> dict[str, float]:
        """Mean and largest |λ| of each constraint, of those that had a dual step: padding has none."""
        summary = {}
        for name, store in sorted(self._stores.items()):
            used = store.used().abs()
            if used.numel():
                summary[f"mean_multiplier/{name}"] = used.mean().item()
                summary[f"max_multiplier/{name}"] = used.max().item()
        return summary

    # What methods say

    @abstractmethod
    def _rate(self, name: str) -> float:
        """How far a dual step goes."""

    @abstractmethod
    def _layout(self, residual: Residual) -> tuple[Kind, bool, torch.Size]:
        """Of what λ is about: its kind, whether it has a last dimension (low, high), and its shape."""

    # Multipliers for the rows of a call

    def _admit(self, constraints: Mapping[str, Constraint], index: Tensor | None, look: bool = True) -> Call:
        if torch._C._are_functorch_transforms_active():
            _refuse_vmap(type(self).__name__, constraints)
        names = self._names
        call = super()._admit(constraints, index, look)
        made: dict[str, Multipliers] = {}
        try:
            for name, residual in call.residuals.items():
                kind, pair, shape = self._layout(residual)
                store = self._stores.get(name)
                if store is None:
                    made[name] = store = self._store(name, kind, pair, _has_rows(residual))
                else:
                    self._require_the_same(store, kind, pair, residual)
                store.fit(shape, residual.f, call.index)
        except BaseException:
            self._names = names  # a call that failed fixes nothing
            raise
        if made:
            self._stores.update(made)
        if call.index is not None and self.whose.network is None:
            call.index = self.whose.harmless(call.index, residual.f.device)
        return call

    def _require_the_same(self, store: Multipliers, kind: Kind, pair: bool, residual: Residual) -> None:
        if store.kind is not kind or store.pair != pair:
            raise ValueError(
                f"constraint '{store.name}' changed its kind: under the same name it stays either one-sided or "
                "two-sided, or an equality"
            )
        if store.has_rows != _has_rows(residual) and not self.whose.shared:
            before, now = ("rows", "none") if store.has_rows else ("no rows", "some")
            raise ValueError(
                f"constraint '{store.name}' had {before} and now has {now} (shape {list(residual.f.shape)}): keep "
                "the first dimension, also of a batch of one (no .squeeze())"
            )

    def _index_checks(self, residuals: Mapping[str, Residual], index: Tensor | None) -> list[Check]:
        if index is None and not self.whose.by_sample:
            return []
        shapes = {name: (residual.f.shape, _has_rows(residual)) for name, residual in residuals.items()}
        return self.whose.checks(type(self).__name__, index, shapes)

    # Making and dropping them

    def _store_like(self, name: str, layout: Mapping[str, Any]) -> Multipliers:
        """The place that another rank, or a saved state, has for a constraint's multipliers."""
        return self._store(name, kind_of(layout["kind"]), layout["pair"], layout["has_rows"])

    def _store(self, name: str, kind: Kind, pair: bool, has_rows: bool) -> Multipliers:
        """A place for the multipliers of a constraint; see ``Whose.store``."""
        return self.whose.store(name, kind, pair, has_rows, self._initial[name], self._network_optimiser(name))

    def _optimiser(self, name: str) -> RowOptimiser:
        assert self._make_optimiser is not None  # noqa: S101
        if name not in self._optimisers:
            self._optimisers[name] = RowOptimiser(self._make_optimiser[name])
        return self._optimisers[name]

    def _network_optimiser(self, name: str) -> OptimiserFactory:
        if self._make_optimiser is not None:
            return self._make_optimiser[name]
        return partial(torch.optim.SGD, lr=self._rate(name))

    def _forget(self) -> None:
        self._observing = self._overflowed = False
        for store in self._stores.values():
            store.forget()

    # State

    def __deepcopy__(self, memo: dict[int, Any]) -> DualState:
        memo[id(self._process_group)] = self._process_group  # the ranks are the same, and cannot be copied
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def _header(self) -> dict[str, Any]:
        stores = {
            name: {
                "kept": store.code,
                "kind": store.kind.code,
                "pair": store.pair,
                "has_rows": store.has_rows,
            }
            for name, store in sorted(self._stores.items())
        }
        return super()._header() | {"stores": stores, "whose": self.whose.code, "observing": self._observing}

    def _knows(self, name: str, header: dict[str, Any]) -> bool:
        what, _, constraint = name.partition(".")
        return constraint in header["stores"] and what.partition("/")[0] in _TENSORS

    def _tensors(self) -> dict[str, Tensor]:
        found = {
            f"{what}.{name}": tensor
            for name, store in self._stores.items()
            for what, tensor in store.tensors().items()
        }
        for name, optimiser in self._optimisers.items():
            found |= {f"optimiser/{what}.{name}": tensor for what, tensor in optimiser.tensors().items()}
        return found

    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        if header["whose"] != self.whose.code:
            return f"the state's multipliers are kept by {header['whose']}, this method's by {self.whose.code}"
        for name, layout in header["stores"].items():
            saved, known = tensors.get(f"multipliers.{name}"), self._stores.get(name)
            if saved is None:
                if layout["kept"] != Network.code:
                    return f"the state lacks the multipliers of {name}"
                continue
            if known is not None:
                live = {"kept": known.code, "kind": known.kind.code, "pair": known.pair, "has_rows": known.has_rows}
                if live != layout:
                    return f"the state's constraint '{name}' is {_shown(layout)}, this method's {_shown(live)}"
                if list(saved.shape)[saved.ndim - len(known.size()) :] != known.size() or (
                    saved.ndim != known.value.ndim
                ):
                    return (
                        f"the state's multipliers of '{name}' have shape {list(saved.shape)}, "
                        f"this method's have {list(known.value.shape)}"
                    )
            fault = unfit(kind_of(layout["kind"]), saved)
            if fault is not None:
                return f"the state's multipliers of '{name}' {fault}"
        return super()._refusal(header, tensors)

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._observing = header["observing"]
        for name in self._stores.keys() - header["stores"].keys():  # seen since that state was saved
            del self._stores[name]
            self._optimisers.pop(name, None)
        for name, layout in header["stores"].items():
            mine = {key.partition(".")[0]: one for key, one in tensors.items() if key.partition(".")[2] == name}
            store = self._stores.get(name) or self._store_like(name, layout)
            store.restore(mine)
            self._stores[name] = store
            moved = {key.partition("/")[2]: one for key, one in mine.items() if key.startswith("optimiser/")}
            if self._make_optimiser is not None and layout["kept"] != Network.code:
                self._optimiser(name).restore(moved)


def _shown(layout: Mapping[str, Any]) -> str:
    sides = "two-sided " if layout["pair"] and layout["kind"] == INEQUALITY.code else ""
    rows = "" if layout["has_rows"] else ", without rows"
    return f"{'a' if sides else 'an'} {sides}{layout['kind']} kept by {layout['kept']}{rows}"


def _refuse_vmap(method: str, constraints: Mapping[str, Constraint]) -> None:
    """Raise before anything is kept: what vmap hands over is no tensor outside of it."""
    for constraint in constraints.values():
        f = constraint.f if isinstance(constraint, Residual) else constraint
        if isinstance(f, Tensor) and batched(f):
            raise ValueError(
                f"{method} cannot be called inside torch.vmap: it keeps multipliers, and what it saw, for each "
                "data point. Put the model inside vmap, and give its outputs to the fence"
            )


def _has_rows(residual: Residual) -> bool:
    return residual.f.ndim > residual.two_sided
