"""What methods with explicit multipliers share: what is seen, and the dual step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ringfence.barrier import not_negative, positive_number
from ringfence.checks import Check, batched, unwrapped
from ringfence.methods import ranks
from ringfence.methods.admission import Call
from ringfence.methods.ascent import OptimiserFactory, RowOptimiser, ascend, settle_ties
from ringfence.methods.base import Options, Unpack
from ringfence.methods.by_name import ByName
from ringfence.methods.dual_state import DualState
from ringfence.methods.kinds import EQUALITY, INEQUALITY, Kind
from ringfence.methods.multipliers import Multipliers
from ringfence.methods.whose import Whose
from ringfence.residuals import Constraint, Residual

Rates: TypeAlias = float | Mapping[str, float]
"""A number >= 0 for all constraints, or one for each by name."""


class DualOptions(Options, total=False):
    """The keyword arguments every method with explicit multipliers takes; ``DualMethod`` explains them."""

    initial: Rates
    samples: int | None
    shared: bool
    same_rows: bool
    multiplier: nn.Module | Mapping[str, nn.Module] | None
    dual_optimiser: OptimiserFactory | Mapping[str, OptimiserFactory] | None
    max_multiplier: Rates
    restart: bool
    process_group: dist.ProcessGroup | None


class DualMethod(DualState):
    """λ ← max(0, λ + rate · f) at a dual step; for an equality λ has a sign, and no bound at 0.

    **Whose λ.** A multiplier belongs to a data point, so a call says which its rows are: ``index=``. The table of
    multipliers grows as indices appear. Without ``index=`` a call is refused, unless the method was told that
    multipliers are ``shared``, or that calls have the ``same_rows``. A residual without rows (a rate over the
    whole batch, say) needs none of this.

    **What is seen.** Calls made in training mode with gradients enabled; the dual step costs no extra pass. It goes
    by the latest residual of each data point (the mean, where one stands in several rows of a call), or where λ is
    shared by the mean over everything since the last step. The paper's variant, a separate pass over the data, is
    ``observe``: what it is given replaces what the calls saw. Between ranks the sums are added up, so every
    rank holds the same λ; multipliers are float32 or wider and never follow ``.half()``.

    Args:
        initial: every multiplier's first value, >= 0; by constraint name, if you like.
        samples: N, the number of data points: declares the table's length, and larger indices are an error.
            On a GPU it saves a look at each index.
        shared: one multiplier per constraint name (and side, for two-sided ones) for all data points: the *mean* of
            the residual is limited.
        same_rows: every call has the same rows in the same order, so that multipliers go by position.
        multiplier: a module that answers λ for what ``index=`` then holds, features ``[rows, ...]``; by constraint
            name if there are several.
        dual_optimiser: what moves λ instead of a rate: ``partial(torch.optim.Adam, lr=1e-2)``,
            ``partial(rf.NuPI, lr=1e-2, kp=5.0)``; by constraint name, if you like.
        max_multiplier: |λ| never exceeds it; by constraint name, if you like.
        restart: whether λ falls back to 0 as soon as its constraint holds at a dual step.
        process_group: the ranks that train together; all of them unless given.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        *,
        initial: Rates = 0.0,
        samples: int | None = None,
        shared: bool = False,
        same_rows: bool = False,
        multiplier: nn.Module | Mapping[str, nn.Module] | None = None,
        dual_optimiser: OptimiserFactory | Mapping[str, OptimiserFactory] | None = None,
        max_multiplier: Rates = math.inf,
        restart: bool = False,
        process_group: dist.ProcessGroup | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.max_multiplier: ByName[float] = ByName("max_multiplier", max_multiplier, _cap)
        self.restart = restart
        if multiplier is not None and (initial != 0.0 or max_multiplier != math.inf or restart):
            raise ValueError(
                "initial, max_multiplier and restart are about stored multipliers: with multiplier= they "
                "are the module's to decide"
            )
        super().__init__(
            ByName("initial", initial, not_negative),
            Whose(samples, shared, same_rows, multiplier),
            None if dual_optimiser is None else ByName("dual_optimiser", dual_optimiser, _factory),
            process_group,
            **options,
        )

    def observe(self, *, index: Tensor | None = None, **constraints: Constraint) -> None:
        """Remember residuals for the next dual step, in place of those that the calls saw: the paper's pass.

        Call it over the whole training set (in evaluation mode, without gradients, as you like), then
        ``step()``.
        """
        call = self._admit(constraints, index)
        if not self._observing:
            self._forget()
            self._observing = True
        self._record(call)

    # What a concrete method says

    def _layout(self, residual: Residual) -> tuple[Kind, bool, torch.Size]:
        """Which kind of λ, whether ``_measure`` has a last dimension (low, high), and its shape."""
        return (EQUALITY if residual.equality else INEQUALITY), residual.two_sided, residual.f.shape

    def _measure(self, residual: Residual) -> Tensor:
        """v, what λ is about, with 0 where nothing is constrained: f itself, unless a method says otherwise."""
        return residual.filled(0.0)

    _falls = True
    """Whether a satisfied constraint lowers its multiplier."""

    # The dual step

    def _see(self, call: Call) -> None:
        if not self._observing:
            self._record(call)

    def _record(self, call: Call) -> None:
        if call.sound is False:  # float16 overflowed: the optimiser's step is left out, and so is this
            self._overflowed = True
            return
        for name, residual in call.residuals.items():
            judged = residual.judged
            self._stores[name].see(unwrapped(self._measure(judged)), judged, call.index, call.sound)

    def _advance(self) -> None:
        self._dual_step()

    def _dual_step(self) -> dict[str, Tensor]:
        """Move every λ that something was seen of; the mean residuals it went by."""
        if ranks.several(self._process_group):
            self._agree()
        means = {}
        for name, store in self._stores.items():
            if store.seen:
                means[name] = store.step(partial(self._climb, name, store))
        if not means:
            self._warn_of_nothing_seen()
        self._observing = self._overflowed = False
        return means

    def _climb(
        self,
        name: str,
        store: Multipliers,
        multiplier: Tensor,
        mean: Tensor,
        there: Tensor | None,
        rows: Tensor | None,
        in_place: bool,
    ) -> Tensor:
        """λ after the dual step; see ``Climb``."""
        kind, rate = store.kind, self._rate(name)
        highest = min(self.max_multiplier[name], _LARGEST[multiplier.dtype])
        if self._make_optimiser is not None:
            if name not in self._optimisers:
                self._optimisers[name] = RowOptimiser(self._make_optimiser[name])
            climbed = self._optimisers[name].climb(kind, multiplier, mean, there, rows, len(store))
            climbed = climbed.clamp(-highest, highest)
        else:
            # on a GPU, and where nobody looks, what is not a number may have got this far
            sure = mean.is_cpu and self._ledger.validate is not False
            if in_place and sure and there is None and not (store.pair or self.restart):
                return multiplier.add_(mean, alpha=rate).clamp_(0.0, highest)
            climbed = ascend(kind, multiplier, mean, rate, highest, sure)
            if store.pair and kind is INEQUALITY and self._falls:
                climbed = settle_ties(climbed, multiplier, mean, rate).clamp(max=highest)
        if self.restart:
            climbed = torch.where(kind.infeasibility(mean) > 0, climbed, 0.0)
        return climbed if there is None else torch.where(there, climbed, multiplier)

    def _warn_of_nothing_seen(self) -> None:
        why = (
            "every call overflowed float16, as in a step that GradScaler leaves out"
            if self._overflowed
            else "call the fence in training mode with gradients enabled, or use observe(...)"
        )
        warnings.warn(
            f"{type(self).__name__}.step() saw no residual since the last step, so the multipliers stay as they "
            f"are: {why}",
            stacklevel=5,
        )

    def _agree(self, fault: str | None = None) -> None:
        """Between ranks: raise everywhere if one cannot go on; else add up what they saw."""
        layouts = {name: ranks.layout_of(store) for name, store in self._stores.items()}
        everyones = ranks.gathered({"fault": fault, "layouts": layouts}, self._process_group)
        why = ranks.disagreement(everyones)
        if why is not None:
            self._forget()
            raise ValueError(why)
        for theirs in everyones:
            for name, layout in theirs["layouts"].items():
                if name not in self._stores:  # a rank that had no data yet
                    self._stores[name] = store = self._store_like(name, layout)
                    store.fit(*ranks.empty_like(layout, store.kind, self._stores.values()), None)
        if self._names is None and self._stores:
            self._check_new_names(tuple(self._stores))
            self._names = frozenset(self._stores)
        if self._stores:
            ranks.added_up(self._stores, self._process_group)

    def _discard(self, fault: ValueError) -> None:
        """A fault on one rank is everybody's, and the others are waiting for this one."""
        self._forget()
        if ranks.several(self._process_group):
            self._agree(str(fault))

    # Multipliers for the rows of a call

    def _admit(self, constraints: Mapping[str, Constraint], index: Tensor | None, look: bool = True) -> Call:
        if torch._C._are_functorch_transforms_active():
            _refuse_vmap(type(self).__name__, constraints)
        call = super()._admit(constraints, index, look)
        stores = self._stores
        for name, residual in call.residuals.items():
            kind, pair, shape = self._layout(residual)
            store = stores.get(name)
            if store is None:
                if stores is self._stores:  # kept only if all of them fit
                    stores = dict(stores)
                optimiser = self._network_optimiser(name)
                store = self.whose.store(name, kind, pair, _has_rows(residual), self.initial[name], optimiser)
                stores[name] = store
            elif store.kind is not kind or store.pair != pair:
                raise ValueError(
                    f"constraint '{name}' changed its kind: under the same name it stays either one-sided or "
                    "two-sided, or an equality"
                )
            store.fit(shape, residual.f, call.index)
        self._stores = stores
        if call.index is not None and self.whose.by_sample:
            call.index = self.whose.harmless(call.index, residual.f.device)
        return call

    def _index_checks(self, residuals: Mapping[str, Residual], index: Tensor | None) -> list[Check]:
        if index is None and not self.whose.by_sample:
            return []
        shapes = {name: (residual.f.shape, _has_rows(residual)) for name, residual in residuals.items()}
        return self.whose.checks(type(self).__name__, index, shapes)

    def _by_name(self) -> Iterable[Any]:
        settings = (self.initial, self.max_multiplier, self._make_optimiser, self.whose.network)
        return [setting for setting in settings if setting is not None]


_LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float32, torch.float64)}
"""λ never overflows."""


def dual_rate(given: Rates | None, options: DualOptions, default: float = 1.0) -> ByName[float]:
    """The dual learning rate that a method was given, or ``default``; a ``dual_optimiser`` has its own."""
    if given is not None and options.get("dual_optimiser") is not None:
        raise ValueError("dual_lr and dual_optimiser exclude each other: the optimiser has its own learning rate")
    return ByName("dual_lr", default if given is None else given, not_negative)


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


def _cap(what: str, number: float) -> float:
    return math.inf if number == math.inf else positive_number(what, number)


def _factory(what: str, factory: OptimiserFactory) -> OptimiserFactory:
    if not callable(factory):
        raise TypeError(
            f"{what} must make an optimiser from parameters, as partial(torch.optim.Adam, lr=1e-2) does; got "
            f"{type(factory).__name__}"
        )
    return factory
