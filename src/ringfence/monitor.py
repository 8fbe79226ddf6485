"""How well constraints hold from epoch to epoch: satisfaction, stability, worst violation."""

from __future__ import annotations

import math
import zlib
from typing import Any, Final

import torch
from torch import Tensor

from ringfence.checks import Ledger
from ringfence.extras import require
from ringfence.residuals import Constraint, Residual, as_residual

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
        tolerance: how large an f still counts as satisfied.
        **kwargs: torchmetrics' own, such as ``process_group``.
    """

    full_state_update: bool = True
    higher_is_better: bool | None = None
    is_differentiable: bool | None = False

    # Long format, one row per constraint of a data point, so that ranks and ragged sets need no common shape.
    key: list[Tensor]  # int64 [entries, 3]: sample, crc32 of the name, position within the row
    residual: list[Tensor]  # float32 [entries]; -inf where nothing is constrained
    spelling: list[Tensor]  # uint8: the names, each ended by a newline, for ranks that have not seen them
    satisfied_before: Tensor  # int64 [entries, 3]: the keys that last epoch satisfied

    def __init__(self, tolerance: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= tolerance < math.inf:
            raise ValueError(f"tolerance must be finite and not negative, got {tolerance}")
        self.tolerance = tolerance
        for state in ("key", "residual", "spelling"):
            self.add_state(state, default=[], dist_reduce_fx="cat")
        self.register_buffer("satisfied_before", torch.empty(0, 3, dtype=torch.int64))
        self._satisfied_now: Tensor | None = None
        self._names: set[str] = set()

    def update(self, *, index: Tensor | None = None, **constraints: Constraint) -> None:
        """Take in the residuals of some data points.

        Args:
            index: int64 ``[rows]``: which data point each row is. Without it there is no stability.
            **constraints: residuals by name, as for a method's call.
        """
        if not constraints:
            raise ValueError("Monitor.update was called without any constraint: name at least one")
        self._satisfied_now = None
        ledger = Ledger(at_once=True)  # a validation pass may stall
        for name, constraint in constraints.items():
            residual = as_residual(name, constraint)
            for check in residual.checks:
                ledger.add(f"constraint '{name}'", check)
            self._take(name, residual, index)

    def compute(self) -> dict[str, Tensor]:
        """The measures of this epoch, as scalar tensors by name."""
        names = {zlib.crc32(name.encode()): name for name in self._all_names()}
        if not names:
            raise ValueError("Monitor.compute was called before any update")
        key, f = _unique(dim_zero_cat(self.key), dim_zero_cat(self.residual))
        ok = f <= self.tolerance
        self._satisfied_now = key[ok & (key[:, 0] != NOT_NUMBERED)]
        held = _still(key, ok, self.satisfied_before.to(key.device))
        measures = _measures("", f, ok, held)
        for code, name in sorted(names.items(), key=lambda item: item[1]):
            mine = key[:, 1] == code
            measures |= _measures(f"/{name}", f[mine], ok[mine], held[mine])
        return measures

    def reset(self) -> None:
        """Begin the next epoch; what this one satisfied is kept for stability."""
        if self.key and self._satisfied_now is None and not _several_ranks():
            self.compute()
        if self._satisfied_now is not None:
            self.satisfied_before = self._satisfied_now
        self.clear()

    def clear(self) -> None:
        """Forget the epoch under way as if it had not been: for a sanity check before training."""
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
        for state, empty in (
            ("key", torch.empty(0, 3, dtype=torch.int64)),
            ("residual", torch.empty(0)),
            ("spelling", torch.empty(0, dtype=torch.uint8)),
        ):
            if not getattr(self, state):
                setattr(self, state, [empty.to(self.device)])
        if _several_ranks() and bool((torch.cat(self.key)[:, 0] == NOT_NUMBERED).any()):
            raise ValueError("Monitor on several ranks needs index=: without it rows cannot be told apart")
        super().sync(*args, **kwargs)

    def _take(self, name: str, residual: Residual, index: Tensor | None) -> None:
        f = residual.f.detach().float()
        rows = f if f.ndim else f[None]
        sample = _sample_numbers(name, rows, index)
        key = torch.empty((*rows.shape, 3), dtype=torch.int64, device=f.device)
        key[..., 0] = sample.view(-1, *[1] * (rows.ndim - 1))
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
        return sorted(set(bytes(dim_zero_cat(self.spelling).tolist()).decode().split()))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # the memory of the last epoch is as long as that epoch was: make room before torch compares shapes
        saved = state_dict.get(f"{prefix}satisfied_before")
        if saved is not None:
            self.satisfied_before = torch.empty_like(saved, device=self.satisfied_before.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _several_ranks() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _sample_numbers(name: str, rows: Tensor, index: Tensor | None) -> Tensor:
    if index is None:
        return torch.full((rows.shape[0],), NOT_NUMBERED, device=rows.device)
    if index.dtype != torch.int64 or index.shape != rows.shape[:1]:
        raise ValueError(
            f"index must be int64 with one entry per row: got {index.dtype} of shape {list(index.shape)} "
            f"for constraint '{name}' of shape {list(rows.shape)}"
        )
    if bool((index < 0).any()):
        raise ValueError(f"index must not be negative, got {int(index.min())}")
    return index.to(rows.device)


def _positions(rows: Tensor) -> Tensor:
    """A number for each place within a row that stays the same when a ragged dimension grows."""
    place = torch.zeros(rows.shape[1:], dtype=torch.int64, device=rows.device)
    axes = rows.ndim - 1
    stride = 2 ** (60 // max(axes, 1))  # room for every axis, whatever its size is in another batch
    for axis, size in enumerate(rows.shape[1:]):
        along = torch.arange(size, device=rows.device).view(-1, *[1] * (axes - axis - 1))
        place = place * stride + along
    return place


def _unique(key: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Each constraint once, absent ones dropped; rows without a number are all different."""
    present = f > -math.inf
    key, f = key[present], f[present]
    numbered = key[:, 0] != NOT_NUMBERED
    unique, inverse = torch.unique(key[numbered], dim=0, return_inverse=True)
    # a data point seen twice (a padded sampler): any of its values will do, take the worst
    worst = f.new_full((len(unique),), -math.inf).scatter_reduce_(0, inverse, f[numbered], "amax")
    return torch.cat([unique, key[~numbered]]), torch.cat([worst, f[~numbered]])


def _still(key: Tensor, ok: Tensor, satisfied_before: Tensor) -> Tensor:
    """For each constraint: 1 satisfied then and now, 0 satisfied then only, NaN otherwise."""
    _, inverse = torch.unique(torch.cat([satisfied_before, key]), dim=0, return_inverse=True)
    then, now = inverse[: len(satisfied_before)], inverse[len(satisfied_before) :]
    return torch.where(torch.isin(now, then), ok.float(), math.nan)


def _measures(suffix: str, f: Tensor, ok: Tensor, held: Tensor) -> dict[str, Tensor]:
    return {
        f"satisfaction{suffix}": ok.double().mean().float(),
        f"stability{suffix}": held.nanmean(),
        f"worst{suffix}": torch.relu(f).max() if len(f) else f.new_zeros(()),
    }
