"""How well constraints hold from epoch to epoch: satisfaction, stability, worst violation."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.checks import Ledger
from ringfence.extras import require
from ringfence.numbers import not_negative
from ringfence.residuals import Constraint, as_residual

require("torchmetrics", "rf.Monitor", "metrics")

# after the check, so that its absence gets a clear message
from torchmetrics import Metric  # noqa: E402
from torchmetrics.utilities import dim_zero_cat  # noqa: E402

NOT_NUMBERED: Final = -1


class Monitor(Metric):
    """satisfaction = share of f <= 0; stability = share of last epoch's satisfied f that still are.

    ``update`` it with the residuals of a validation pass, ``compute`` once at the end of the epoch, ``reset``
    to begin the next: the reset keeps what the epoch satisfied, for the next epoch's stability. Each constraint
    of each data point is matched by ``index``, so data points may arrive in any order, on any rank, and more
    than once (they count once).

    ``compute()`` returns ``satisfaction``, ``stability`` and ``worst`` (the largest violation), over all
    constraints and per name as ``satisfaction/size`` and so on. Stability is NaN where it is not defined: in
    the first epoch, when nothing was satisfied before, or without ``index``.

    Args:
        tolerance: how large an f still counts as satisfied; by name, where constraints differ in it.
        **kwargs: torchmetrics' own, such as ``process_group``.
    """

    full_state_update: bool = True
    higher_is_better: bool | None = None
    is_differentiable: bool | None = False

    # Long format, one row per constraint of a data point, so that ranks and ragged sets need no common shape.
    key: list[Tensor]  # int64 [entries, 3]: sample, crc32 of the name, position within the row
    residual: list[Tensor]  # float32 [entries]; -inf where nothing is constrained
    spelling: list[Tensor]  # uint8: the names, each ended by a newline, for ranks that have not seen them

    def __init__(self, tolerance: float | Mapping[str, float] = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tolerance: float | dict[str, float] = (
            {name: not_negative(f"the tolerance of '{name}'", one) for name, one in tolerance.items()}
            if isinstance(tolerance, Mapping)
            else not_negative("tolerance", tolerance)
        )
        for state in ("key", "residual", "spelling"):
            self.add_state(state, default=[], dist_reduce_fx="cat")
        # What the last epoch satisfied, as keys. Not a buffer: its length changes, which weight averaging, DDP and
        # load_state_dict do not expect of one.
        self._satisfied_before = torch.empty(0, 3, dtype=torch.int64)
        self._satisfied_now: Tensor | None = None
        self._names: set[str] = set()

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
        self._satisfied_now = None
        ledger = Ledger(validate=True)  # a validation pass may stall
        residuals = {name: as_residual(name, constraint) for name, constraint in constraints.items()}
        for name, residual in residuals.items():
            for check in residual.all_checks():
                ledger.add(f"constraint '{name}'", check)
            _check_index(name, residual.f, index)
        for name, residual in residuals.items():  # all is well: now take them in
            self._take(name, residual.judged.f, index)

    def compute(self) -> dict[str, Tensor]:
        """The measures of this epoch, as scalar tensors by name."""
        names = {zlib.crc32(name.encode()): name for name in self._all_names()}
        if not names:
            raise ValueError("Monitor.compute was called before any update")
        key, f, held = _matched(dim_zero_cat(self.key), dim_zero_cat(self.residual), self._satisfied_before)
        ok = f <= self._allowed(key, f)
        held = torch.where(held, ok.float(), math.nan)  # of those satisfied before: 1 if they still are
        self._satisfied_now = key[ok & (key[:, 0] != NOT_NUMBERED)]
        measures = _measures("", f, ok, held)
        for code, name in sorted(names.items(), key=lambda item: item[1]):
            mine = key[:, 1] == code
            measures |= _measures(f"/{name}", f[mine], ok[mine], held[mine])
        return measures

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
        if self._satisfied_now is None and self.update_called:
            if _several_ranks():  # only compute() shares it: without, nothing is known of this epoch
                self._satisfied_now = torch.empty(0, 3, dtype=torch.int64)
            else:
                self.compute()
        if self._satisfied_now is not None:
            with torch.inference_mode(False):
                self._satisfied_before = self._satisfied_now.clone()
        self.clear()

    def clear(self) -> None:
        """Forget the epoch under way as if it had not been: for a sanity check, or a test between epochs."""
        self._satisfied_now = None
        self._names = set()
        super().reset()

    def forward(self, *, index: Tensor | None = None, **constraints: Constraint) -> dict[str, Tensor]:
        """Take in a batch and return its own measures (no stability: that is about epochs)."""
        self.update(index=index, **constraints)
        alone = Monitor(self.tolerance, sync_on_compute=False)
        alone.update(index=index, **constraints)
        return alone.compute()

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Share the epoch between ranks; one without data takes part with nothing of the right kind."""
        if self._is_synced or not _several_ranks():
            super().sync(*args, **kwargs)
            return
        for state, empty in (
            ("key", torch.empty(0, 3, dtype=torch.int64)),
            ("residual", torch.empty(0)),
            ("spelling", torch.empty(0, dtype=torch.uint8)),
        ):
            if not getattr(self, state):
                setattr(self, state, [empty.to(self.device)])
        if bool((dim_zero_cat(self.key)[:, 0] == NOT_NUMBERED).any()):
            raise ValueError("Monitor on several ranks needs index=: without it rows cannot be told apart")
        super().sync(*args, **kwargs)

    def get_extra_state(self) -> Tensor:
        """What the last epoch satisfied, for the checkpoint."""
        return self._satisfied_before

    def set_extra_state(self, state: Tensor) -> None:
        """Take up where a checkpoint left."""
        self._satisfied_before = state.clone()

    def _take(self, name: str, f: Tensor, index: Tensor | None) -> None:
        rows = f.detach().float()
        rows = rows if rows.ndim else rows[None]
        key = torch.empty((*rows.shape, 3), dtype=torch.int64, device=f.device)
        sample = torch.full(rows.shape[:1], NOT_NUMBERED) if index is None else index
        key[..., 0] = sample.to(f.device).view(-1, *[1] * (rows.ndim - 1))
        key[..., 1] = zlib.crc32(name.encode())
        key[..., 2] = _positions(rows)
        self.key.append(key.view(-1, 3))
        self.residual.append(rows.reshape(-1))
        if name not in self._names:
            self._names.add(name)
            text = bytearray(f"{name}\n".encode())
            self.spelling.append(torch.frombuffer(text, dtype=torch.uint8).to(f.device))

    def _all_names(self) -> list[str]:
        if len(self.spelling) == 0:
            return []
        text = bytes(dim_zero_cat(self.spelling).tolist()).decode()
        return sorted(set(text.split("\n")) - {""})


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
    if bool((index < 0).any()):
        raise ValueError(f"index must not be negative, got {int(index.min())}")


def _positions(rows: Tensor) -> Tensor:
    """A number for each place within a row that stays the same when a ragged dimension grows."""
    place = torch.zeros(rows.shape[1:], dtype=torch.int64, device=rows.device)
    axes = rows.ndim - 1
    stride = 2 ** (60 // max(axes, 1))  # room for every axis, whatever its size is in another batch
    for axis, size in enumerate(rows.shape[1:]):
        along = torch.arange(size, device=rows.device).view(-1, *[1] * (axes - axis - 1))
        place = place * stride + along
    return place


def _matched(key: Tensor, f: Tensor, satisfied_before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each constraint once (key and f; absent ones dropped), and whether it was satisfied before."""
    present = f > -math.inf
    key, f = key[present], f[present]
    before = satisfied_before.to(key.device)
    code = _codes(torch.cat([before, key]))
    # rows without a number are all different, and unlike anything before
    anonymous = key[:, 0] == NOT_NUMBERED
    now = code[len(before) :].clone()
    now[anonymous] = -1 - torch.arange(int(anonymous.sum()), device=key.device)
    unique, inverse = torch.unique(now, return_inverse=True)
    # a data point seen twice (a padded sampler): take the worse of its values
    worst = f.new_full(unique.shape, -math.inf).scatter_reduce_(0, inverse, f, "amax")
    keys = key.new_empty(len(unique), 3).index_put_((inverse,), key)
    return keys, worst, torch.isin(unique, code[: len(before)])


def _codes(key: Tensor) -> Tensor:
    """One number for each different row of ``key``: columns are ranked one by one, far faster than whole rows."""
    code = torch.zeros(len(key), dtype=torch.int64, device=key.device)
    for column in key.unbind(dim=1):
        values, rank = torch.unique(column, return_inverse=True)
        code = code * max(len(values), 1) + rank
    return code


def _measures(suffix: str, f: Tensor, ok: Tensor, held: Tensor) -> dict[str, Tensor]:
    return {
        f"satisfaction{suffix}": ok.double().mean().float(),
        f"stability{suffix}": held.nanmean(),
        f"worst{suffix}": torch.relu(f).max() if len(f) else f.new_zeros(()),
    }
