"""What methods with explicit multipliers share: what is seen, and the dual step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ringfence.checks import unwrapped
from ringfence.methods.admission import Call
from ringfence.methods.base import Options, Unpack
from ringfence.methods.by_name import ByName
from ringfence.methods.dual_state import DualState
from ringfence.methods.multipliers import Multipliers, ranks
from ringfence.methods.multipliers.ascent import OptimiserFactory, RowOptimiser, ascend
from ringfence.methods.multipliers.exchange import several
from ringfence.methods.multipliers.gathering import Rule, gathered_term, noted
from ringfence.methods.multipliers.kinds import EQUALITY, INEQUALITY, Kind
from ringfence.methods.multipliers.whose import Whose
from ringfence.numbers import not_negative, positive_number
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
    sharded: bool


class DualMethod(DualState):
    """λ ← max(0, λ + rate · f) at a dual step; for an equality λ has a sign, and no bound at 0.

    **Whose λ.** A multiplier belongs to a data point, so a call says which its rows are: ``index=``. The table of
    multipliers grows as indices appear. Without ``index=`` a call is refused, unless the method was told that
    multipliers are ``shared``, or that calls have the ``same_rows``. A residual without rows (a rate over the
    whole batch, say) needs none of this.

    **What is seen.** Calls made in training mode with gradients enabled; the dual step costs no extra pass. It goes
    by the latest residual of each data point (the mean, where one stands in several rows of a call), or where λ is
    shared by the mean over everything since the last step. The paper's variant, a separate pass over the data, is
    ``observe``: what it is given replaces what the calls saw. Between ranks what was seen is added up, so every
    rank holds the same λ (``sharded``: its own rows of them); multipliers are float32 or wider and never follow
    ``.half()``.

    Args:
        dual_lr: the rate of plain ascent, >= 0; by constraint name, if you like. 1 unless given.
        initial: every multiplier's first value, >= 0; by constraint name, if you like.
        samples: N, the number of data points: declares the table's length, and larger indices are an error.
            On a GPU it saves a look at each index.
        shared: one multiplier per constraint name (and side, for two-sided ones) for all data points: the *mean* is
            limited, of the residual or of what a method makes of it.
        same_rows: every call has the same rows in the same order, so that multipliers go by position.
        multiplier: a module that answers λ for what ``index=`` then holds, features ``[rows, ...]``; by constraint
            name if there are several.
        dual_optimiser: what moves λ instead of a rate: ``partial(torch.optim.Adam, lr=1e-2)``,
            ``partial(rf.NuPI, lr=1e-2, kp=5.0)``; by constraint name, if you like. One that treats each
            multiplier by itself and begins from zeros: not LBFGS, Rprop, Adafactor, SparseAdam or Muon.
        max_multiplier: |λ| never exceeds it; by constraint name, if you like.
        restart: whether λ falls back to 0 as soon as its constraint holds at a dual step.
        process_group: the ranks that train together; all of them unless given.
        sharded: with ``samples``: rank r of R keeps the rows of data points r, r + R, r + 2R, ... and no others,
            so that memory falls with the ranks. A call asks the other ranks for the rows of its batch, so all of
            them must call the fence, ``duals``, ``summary`` and ``state_dict`` together and equally often; a rank
            without data calls with zero rows.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        dual_lr: Rates | None = None,
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
        sharded: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if dual_lr is not None and dual_optimiser is not None:
            raise ValueError(
                "dual_lr and dual_optimiser exclude each other: the optimiser has its own learning rate"
            )
        if multiplier is not None and (initial != 0.0 or max_multiplier != math.inf or restart):
            raise ValueError(
                "initial, max_multiplier and restart are about stored multipliers: with multiplier= they are the "
                "module's to decide"
            )
        self._dual_lr = None if dual_lr is None else ByName("dual_lr", dual_lr, not_negative)
        self._highest: ByName[float] = ByName("max_multiplier", max_multiplier, _cap)
        self.restart = restart
        self._followed: dict[str, list[Tensor]] | None = None
        first: ByName[float] = ByName("initial", initial, not_negative)
        first.require_at_most(self._highest)
        super().__init__(
            first,
            Whose(samples, shared, same_rows, multiplier, sharded),
            None if dual_optimiser is None else ByName("dual_optimiser", dual_optimiser, _factory),
            process_group,
            **options,
        )

    @property
    def dual_lr(self) -> float | dict[str, float] | None:
        """The dual learning rate, by name where it was given so; None where it was not given. It may be changed."""
        return None if self._dual_lr is None else self._dual_lr.value

    @dual_lr.setter
    def dual_lr(self, rate: Rates) -> None:
        if self._make_optimiser is not None:
            raise ValueError("a dual_optimiser has its own learning rate: see fence.dual_optimisers")
        new: ByName[float] = ByName("dual_lr", rate, not_negative)
        if self._names is not None:
            new.check_names(self._names)
        self._dual_lr = new

    @property
    def max_multiplier(self) -> float | dict[str, float]:
        """What |λ| never exceeds; by name where it was given so."""
        return self._highest.value

    def extra_repr(self) -> str:
        """What moves λ, and whose it is, for ``print(fence)``."""
        return f"{self._mover()}, {self.whose}"

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

    # What a concrete method may say

    def _rate(self, name: str) -> float:
        """How far a dual step goes."""
        return 1.0 if self._dual_lr is None else self._dual_lr[name]

    def _layout(self, residual: Residual) -> tuple[Kind, bool, torch.Size]:
        """Which kind of λ, whether ``_measure`` has a last dimension (low, high), and its shape."""
        return (EQUALITY if residual.equality else INEQUALITY), residual.two_sided, residual.f.shape

    def _measure(self, residual: Residual) -> Tensor:
        """v, what λ is about, with 0 where nothing is constrained: f itself, unless a method says otherwise."""
        return residual.filled(0.0)

    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        """Σ λ v, unless a method says otherwise."""
        store = self._stores[name]
        in_one = None if self._rule is None else gathered_term(store, residual, index, self._rule)
        if in_one is not None:
            return in_one
        v = self._measure(residual)
        return store.kind.product(store.rows(v, index), store.measured(v, residual)[0])

    _rule: Rule | None = None
    """φ, where it is one that a kernel knows, and v is f, or of a violation max(f, 0)."""

    _falls = True
    """Whether a satisfied constraint lowers its multiplier."""

    # What a CUDA graph can record

    def follow(self, device: torch.device | None) -> bool:
        """See ``Method.follow``. λ of declared ``samples`` and shared ones can, of a process that is alone."""
        for store in self._stores.values():
            store.leave()
        self._followed = None
        if device is None or not self._stores or several(self._process_group):
            return False
        found = {name: store.follow() for name, store in self._stores.items()}
        known = {name: tensors for name, tensors in found.items() if tensors is not None}
        if len(known) < len(found):
            return self.follow(None)
        self._followed = known
        return True

    def note(self, residuals: Mapping[str, Residual], index: Tensor | None = None) -> None:
        """See ``Method.note``."""
        judged = {name: one.judged for name, one in residuals.items()}
        tables = self._followed or {}
        rest = {
            name: one
            for name, one in judged.items()
            if self._rule is None
            or name not in tables
            or not noted(self._stores[name], tables[name], one, index, violation=self._rule == "violation")
        }
        with torch.no_grad():
            self._show(rest, index)

    def replayed(self) -> None:
        """See ``Method.replayed``."""
        for store in self._stores.values():
            store.saw()

    def followed(self) -> list[Tensor]:
        """Sums and counts of what was seen."""
        return [tensor for tensors in (self._followed or {}).values() for tensor in tensors]

    # The dual step

    def _see(self, call: Call) -> None:
        if not self._observing:
            self._record(call)

    def _record(self, call: Call) -> None:
        if call.sound is False:  # float16 overflowed: the optimiser's step is left out, and so is this
            self._overflowed = True
            return
        if torch._C._are_functorch_transforms_active():  # what is kept is kept outside of torch.func.grad
            with torch._C._DisableFuncTorch():
                plain = {name: _outside(residual.judged) for name, residual in call.residuals.items()}
                self._keep(plain, None if call.index is None else unwrapped(call.index), call.sound)
        else:
            self._keep({name: one.judged for name, one in call.residuals.items()}, call.index, call.sound)

    def _keep(self, residuals: Mapping[str, Residual], index: Tensor | None, sound: bool | Tensor) -> None:
        self._show(residuals, index, sound)
        if self._followed is not None:
            self.replayed()

    def _show(self, residuals: Mapping[str, Residual], index: Tensor | None, sound: bool | Tensor = True) -> None:
        for name, residual in residuals.items():
            self._stores[name].see(self._measure(residual), residual, index, sound)

    def _advance(self) -> None:
        self._dual_step()

    def _dual_step(self) -> dict[str, Tensor]:
        """Move every λ that something was seen of; the mean residuals it went by."""
        seen = any(store.seen for store in self._stores.values())
        if several(self._process_group):
            seen = self._agree(seen)
        means = {}
        if seen:
            for name, store in self._stores.items():
                if store.seen:
                    means[name] = store.step(partial(self._climb, name, store))
        else:
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
        kind, highest = store.kind, min(self._highest[name], _LARGEST[multiplier.dtype])
        pair = store.pair and kind is INEQUALITY and self._falls
        if self._make_optimiser is not None:
            climbed = self._optimiser(name).climb(kind, multiplier, mean, there, rows, len(store), pair)
        else:
            # on a GPU, and where nobody looks, what is not a number may have got this far
            sure = mean.is_cpu and self._ledger.validate is not False
            if in_place and sure and there is None and not (pair or self.restart):
                return multiplier.add_(mean, alpha=self._rate(name)).clamp_(0.0, highest)
            climbed = ascend(kind, multiplier, mean, self._rate(name), there, pair)
            if not sure:
                usable = torch.isfinite(mean)
                climbed = torch.where(usable if kind is INEQUALITY else usable.all(dim=-1), climbed, multiplier)
        climbed = climbed.clamp(-highest, highest)
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

    def _agree(self, seen: bool, fault: str | None = None) -> bool:
        """Between ranks: raise everywhere if one cannot go on; else add up what they saw, if anybody did."""
        try:
            seen = ranks.agree(self._stores, self._store_like, seen, fault, self._process_group)
        except ValueError:
            self._forget()
            raise
        if self._names is None and self._stores:
            self._check_new_names(tuple(self._stores))
            self._names = frozenset(self._stores)
        return seen

    def _discard(self, fault: ValueError) -> None:
        """A fault on one rank is everybody's, and the others are waiting for this one."""
        if several(self._process_group):
            self._agree(False, str(fault))
        self._forget()

    def _by_name(self) -> Iterable[Any]:
        settings = (self._dual_lr, self._highest, self._initial, self._make_optimiser, self.whose.network)
        return [setting for setting in settings if setting is not None]

    def _mover(self) -> str:
        if self._make_optimiser is not None:
            return f"dual_optimiser={self._make_optimiser}"
        return f"dual_lr={1.0 if self._dual_lr is None else self._dual_lr}"


_LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float32, torch.float64)}
"""λ never overflows."""


def _outside(residual: Residual) -> Residual:
    return replace(residual, f=unwrapped(residual.f).detach())


def _cap(what: str, number: float) -> float:
    return math.inf if number == math.inf else positive_number(what, number)


def _factory(what: str, factory: OptimiserFactory) -> OptimiserFactory:
    if not callable(factory):
        raise TypeError(
            f"{what} must make an optimiser from parameters, as partial(torch.optim.Adam, lr=1e-2) does; got "
            f"{type(factory).__name__}"
        )
    RowOptimiser(factory)  # so that one that will not do is refused now, not at the first dual step
    return factory
