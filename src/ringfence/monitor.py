"""How well constraints hold from epoch to epoch: satisfaction, stability, worst violation."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.checks import Ledger
from ringfence.extras import require
from ringfence.fetching import fetched
from ringfence.matching import NOT_NUMBERED, Epoch, Taken, long_format, matched
from ringfence.numbers import not_negative
from ringfence.residuals import Constraint, as_residual

require("torchmetrics", "rf.Monitor", "metrics")

# after the check, so that its absence gets a clear message
from torchmetrics import Metric  # noqa: E402
from torchmetrics.utilities import dim_zero_cat  # noqa: E402

FEW: Final = 2**16
"""Residuals: up to so many are matched on the CPU, by one copy from a GPU; there it would wait dozens of times."""


class Monitor(Metric):
    """satisfaction = share of f <= 0; stability = share of last epoch's satisfied f that still are.

    ``update`` it with the residuals of a validation pass, ``compute`` once at the end of the epoch, ``reset``
    to begin the next: the reset keeps what the epoch satisfied, for the next epoch's stability. Each constraint
    of each data point is matched by ``index``, so data points may arrive in any order, on any rank, and more
    than once (they count once).

    ``compute()`` returns ``satisfaction``, ``stability`` and ``worst`` (the largest violation), over all
    constraints and per name as ``satisfaction/size`` and so on. Stability is NaN where it is not defined: in
    the first epoch, when nothing was satisfied before, or without ``index``.

    On a GPU no update waits: residuals are looked at, and a fault reported, by ``compute`` (by the 64th update at
    the latest), and an epoch with a fault is forgotten.

    Args:
        tolerance: how large an f still counts as satisfied; by name, where constraints differ in it.
        **kwargs: torchmetrics' own, such as ``process_group``.
    """

    full_state_update: bool = True
    higher_is_better: bool | None = None
    is_differentiable: bool | None = False

    # Flat, so that ranks and ragged sets need no common shape; and nothing is computed until it is asked for.
    residual: list[Tensor]  # float32 [entries]; -inf where nothing is constrained
    sample: list[Tensor]  # int64 [rows], of those that are numbered
    taken: list[Tensor]  # uint8, on the CPU until ranks share it: a line of JSON for each ``Taken``

    def __init__(self, tolerance: float | Mapping[str, float] = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tolerance: float | dict[str, float] = (
            {name: not_negative(f"the tolerance of '{name}'", one) for name, one in tolerance.items()}
            if isinstance(tolerance, Mapping)
            else not_negative("tolerance", tolerance)
        )
        for state in ("residual", "sample", "taken"):
            self.add_state(state, default=[], dist_reduce_fx="cat")
        # What the last epoch satisfied, as keys. Not a buffer: its length changes, which weight averaging, DDP and
        # load_state_dict do not expect of one.
        self._satisfied_before = torch.empty(0, 3, dtype=torch.int64)
        self._last: Epoch | None = None  # where that is from: most often the same constraints come again
        self._now: Epoch | None = None
        self._ledger = Ledger()

    def update(self, *unnamed: Constraint, index: Tensor | None = None, **constraints: Constraint) -> None:
        """Take in the residuals of some data points.

        Args:
            *unnamed: refused, with a message: every constraint has a name.
            index: int64 ``[rows]``: which data point each row is. Without it there is no stability. Data points of
                different loaders need different numbers.
            **constraints: residuals by name, as for a method's call.
        """
        if unnamed:
            raise TypeError("a constraint needs a name: update(size=rf.between(...)), not update(rf.between(...))")
        if not constraints:
            raise ValueError("Monitor.update was called without any constraint: name at least one")
        self._now = None
        residuals = {name: as_residual(name, constraint) for name, constraint in constraints.items()}
        for name, residual in residuals.items():
            for check in residual.all_checks():
                self._ledger.add(f"constraint '{name}'", check)
            _check_index(name, residual.f, index)
        index = None if index is None else index.clone()  # its owner may use it again, as with residuals below
        for name, residual in residuals.items():  # all is well, as far as is known: now take them in
            self._take(name, residual.judged.f, index)
        self._settle(self._ledger.close_call)

    def compute(self) -> dict[str, Tensor]:
        """The measures of this epoch, as scalar tensors by name."""
        taken = self._all_taken()
        if not taken:
            raise ValueError("Monitor.compute was called before any update")
        f, sample = dim_zero_cat(self.residual), torch.empty(0, dtype=torch.int64)
        if any(one.numbered for one in taken):
            sample = (
                torch.cat([one.to(f.device) for one in self.sample])
                if isinstance(self.sample, list)
                else self.sample
            )
        device = f.device
        if len(f) <= FEW:
            f, sample = fetched(f, sample)
        _check_numbers(sample)
        rows, values = long_format(taken, f, sample)
        last = self._last
        if last is not None and last.rows.device == rows.device and torch.equal(last.rows, rows):
            key, place, before = last.key, last.place, last.satisfied
        else:
            key, place, before = matched(rows, self._satisfied_before)
        # a data point seen twice (a padded sampler): take the worse of its values
        f = values.new_full((len(key),), -math.inf).scatter_reduce_(0, place, values, "amax")
        ok = f <= self._allowed(key, f)
        held = torch.where(before, ok.float(), math.nan)  # of those satisfied before: 1 if they still are
        self._now = Epoch(rows, key, place, ok & (key[:, 0] != NOT_NUMBERED))
        measures = _measures("", f, ok, held)
        for name in sorted({one.name for one in taken}):
            mine = key[:, 1] == zlib.crc32(name.encode())
            measures |= _measures(f"/{name}", f[mine], ok[mine], held[mine])
        numbers = torch.stack(list(measures.values())).to(device)  # in one copy
        return dict(zip(measures, numbers.unbind(), strict=True))

    def _allowed(self, key: Tensor, f: Tensor) -> Tensor | float:
        """How large each residual may be."""
        if not isinstance(self.tolerance, dict):
            return self.tolerance
        allowed = torch.zeros_like(f)
        for name, one in self.tolerance.items():
            allowed = torch.where(key[:, 1] == zlib.crc32(name.encode()), one, allowed)
        return allowed

    def reset(self) -> None:
        """Begin the next epoch; what this one satisfied is kept for stability."""
        self._settle(self._ledger.settle)
        if self._now is None and self.update_called:
            if _several_ranks():  # only compute() shares it: without, nothing is known of this epoch
                self._satisfied_before, self._last = torch.empty(0, 3, dtype=torch.int64), None
            else:
                self.compute()
        if self._now is not None:
            with torch.inference_mode(False):
                now = Epoch(*(one.clone() for one in self._now))
                self._satisfied_before = now.key[now.satisfied]
            self._last = now if len(now.rows) <= FEW else None
        self.clear()

    def clear(self) -> None:
        """Forget the epoch under way as if it had not been: for a sanity check, or a test between epochs."""
        self._now, self._ledger = None, Ledger()
        super().reset()

    def forward(self, *, index: Tensor | None = None, **constraints: Constraint) -> dict[str, Tensor]:
        """Take in a batch and return its own measures (no stability: that is about epochs)."""
        self.update(index=index, **constraints)
        alone = Monitor(self.tolerance, sync_on_compute=False)
        alone.update(index=index, **constraints)
        return alone.compute()

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Share the epoch between ranks; one without data takes part with nothing of the right kind."""
        if not self._is_synced:
            self._settle(self._ledger.settle)
        if self._is_synced or not _several_ranks():
            super().sync(*args, **kwargs)
            return
        if not all(one.numbered for one in self._all_taken()):
            raise ValueError("Monitor on several ranks needs index=: without it rows cannot be told apart")
        device = self.residual[0].device if len(self.residual) else self.device
        for state, empty in (
            ("residual", torch.empty(0)),
            ("sample", torch.empty(0, dtype=torch.int64)),
            ("taken", torch.empty(0, dtype=torch.uint8)),
        ):
            setattr(self, state, [torch.cat([empty.to(device), *(one.to(device) for one in getattr(self, state))])])
        super().sync(*args, **kwargs)

    def get_extra_state(self) -> Tensor:
        """What the last epoch satisfied, for the checkpoint."""
        return self._satisfied_before

    def set_extra_state(self, state: Tensor) -> None:
        """Take up where a checkpoint left."""
        self._satisfied_before, self._last = state.clone(), None

    def _take(self, name: str, f: Tensor, index: Tensor | None) -> None:
        line = json.dumps([name, list(f.shape) or [1], index is not None]) + "\n"
        self.residual.append(f.detach().to(torch.float32, copy=True).reshape(-1))
        if index is not None:
            self.sample.append(index)
        self.taken.append(torch.frombuffer(bytearray(line.encode()), dtype=torch.uint8))

    def _all_taken(self) -> list[Taken]:
        """In the order of the residuals, and of the samples."""
        if len(self.taken) == 0:
            return []
        lines = bytes(dim_zero_cat(self.taken).tolist()).decode().splitlines()
        return [Taken(name, tuple(shape), numbered) for name, shape, numbered in map(json.loads, lines)]

    def _settle(self, look: Callable[[], None]) -> None:
        """Make checks that wait; where one fails, nothing of the epoch can be told from what is wrong."""
        try:
            look()
        except ValueError:
            self.clear()
            raise


def _several_ranks() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _check_index(name: str, f: Tensor, index: Tensor | None) -> None:
    if index is None:
        return
    rows = f.shape[:1] if f.ndim else torch.Size([1])
    if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.shape != rows:
        kind = f"{index.dtype} {list(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(
            f"index must be an int64 tensor with one entry per row, got {kind} "
            f"for constraint '{name}' of shape {list(f.shape)}; a limit on the batch as a whole needs an update of "
            "its own, without index"
        )
    if index.is_cpu:
        _check_numbers(index)


def _check_numbers(index: Tensor) -> None:
    if bool((index < 0).any()):
        raise ValueError(f"index must not be negative, got {int(index.min())}")


def _measures(suffix: str, f: Tensor, ok: Tensor, held: Tensor) -> dict[str, Tensor]:
    return {
        f"satisfaction{suffix}": ok.double().mean().float(),
        f"stability{suffix}": held.nanmean(),
        f"worst{suffix}": torch.relu(f).max() if len(f) else f.new_zeros(()),
    }
