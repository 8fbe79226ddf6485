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
from ringfence.fetching import fetched
from ringfence.methods.admission import Call
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.by_name import ByName
from ringfence.methods.multipliers import Multipliers, Network, Sharded
from ringfence.methods.multipliers.ascent import OptimiserFactory, RowOptimiser
from ringfence.methods.multipliers.exchange import place, reduced
from ringfence.methods.multipliers.kinds import INEQUALITY, Kind, kind_of
from ringfence.methods.multipliers.shards import fetch, own_rows, whole_tables
from ringfence.methods.multipliers.store import tally
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
        """λ as stored, by name. It is live: a dual step changes it, and so may you. Sharded, it is this rank's."""
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
        """Mean and largest |λ| of each constraint, of those that had a dual step: padding has none.

        Of sharded multipliers over all ranks, which take part together.
        """
        stores = dict(sorted(self._stores.items()))
        tallies = fetched(*(tally(*store.used()) for store in stores.values()))  # a GPU is waited for once
        summary = {}
        for (name, store), found in zip(stores.items(), tallies, strict=True):
            total, count, largest = found.tolist()
            if isinstance(store, Sharded):
                total, count = reduced([total, count], dist.ReduceOp.SUM, self._process_group)
                (largest,) = reduced([largest], dist.ReduceOp.MAX, self._process_group)
            if count:
                summary[f"mean_multiplier/{name}"] = total / count
                summary[f"max_multiplier/{name}"] = largest
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

    def _loss(self, call: Call) -> Tensor:
        self._fetch(call)
        return super()._loss(call)

    def _duals(self, call: Call) -> dict[str, Tensor]:
        self._fetch(call)
        return super()._duals(call)

    def _fetch(self, call: Call) -> None:
        """Get the rows of sharded multipliers from the ranks that keep them."""
        if not self.whose.sharded or call.index is None:
            return
        stores = [self._stores[name] for name in call.residuals if self._stores[name].has_rows]
        ranks = place(self._process_group)[1]
        if any(store.ranks != ranks for store in stores):
            raise ValueError(
                f"the multipliers were spread over {stores[0].ranks} rank(s), and now there are {ranks}: begin the "
                "process group before the first call of the fence and before load_state_dict"
            )
        shards = [store for store in stores if isinstance(store, Sharded)]
        if shards:
            with torch.no_grad():
                fetch(shards, call.index, self._process_group)

    # Making and dropping them

    def _store_like(self, name: str, layout: Mapping[str, Any]) -> Multipliers:
        """The place that another rank, or a saved state, has for a constraint's multipliers."""
        return self._store(name, kind_of(layout["kind"]), layout["pair"], layout["has_rows"])

    def _store(self, name: str, kind: Kind, pair: bool, has_rows: bool) -> Multipliers:
        """A place for the multipliers of a constraint; see ``Whose.store``."""
        return self.whose.store(
            name,
            kind,
            pair,
            has_rows,
            self._initial[name],
            self._network_optimiser(name),
            place(self._process_group) if self.whose.sharded else (0, 1),
        )

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

    def _saved(self) -> dict[str, Tensor]:
        """Of sharded multipliers rank 0 has all rows; all ranks take part, and the others get none of them."""
        shards = {name: store for name, store in self._stores.items() if isinstance(store, Sharded)}
        saved = super()._saved()
        if not shards:
            return saved
        mine = {key: one for key, one in saved.items() if one.ndim and key.partition(".")[2] in shards}
        for key in mine:
            del saved[key]
        mine = {key: one for key, one in mine.items() if not key.startswith("seen/")}
        for name, store in sorted(shards.items()):
            if reduced([float(store.seen)], dist.ReduceOp.MAX, self._process_group)[0]:
                seen = store.seen_by_owner(self._process_group)
                mine |= {f"{what}.{name}": table for what, table in seen.items()}
        assert self.whose.samples is not None  # noqa: S101
        return saved | whole_tables(mine, self.whose.samples, self._process_group)

    def _taken(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rank, ranks = place(self._process_group)
        if not self.whose.sharded or ranks == 1:
            return super()._taken(header, tensors)
        spread = {name for name, layout in header["stores"].items() if layout["has_rows"]}
        for name in spread:
            if name in self._stores and self._stores[name].ranks != ranks:  # of a process that was alone
                del self._stores[name]
        return {
            key: own_rows(one.detach(), rank, ranks) if key.partition(".")[2] in spread else one.detach().clone()
            for key, one in tensors.items()
        }

    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        if header["whose"] != self.whose.code:
            return f"the state's multipliers are kept by {header['whose']}, this method's by {self.whose.code}"
        for name, layout in header["stores"].items():
            saved, known = tensors.get(f"multipliers.{name}"), self._stores.get(name)
            if saved is None:
                if layout["kept"] != Network.code:
                    sharded = "; sharded, they are all in rank 0's" if self.whose.sharded else ""
                    return f"the state lacks the multipliers of {name}{sharded}"
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
