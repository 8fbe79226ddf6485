"""What methods with explicit multipliers share: how λ is laid out, what was seen, and the dual step."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.barrier import not_negative
from ringfence.checks import Check
from ringfence.methods.base import Method, Options, Unpack
from ringfence.methods.layout import layout_of
from ringfence.residuals import Constraint, Residual


class DualOptions(Options, total=False):
    """The keyword arguments every method with explicit multipliers takes; ``DualMethod`` explains them."""

    initial: float
    samples: int | None
    shared: bool
    process_group: dist.ProcessGroup | None


class DualMethod(Method):
    """λ ← max(0, λ + rate · f̄) at a dual step, with f̄ the mean residual seen since the last one.

    Calls made in training mode with gradients enabled are what is *seen*: the dual step costs no extra pass.
    The paper's variant, a separate pass over the data, is ``observe``: what it is given replaces what the
    calls saw. Between ranks the sums are added up, so every rank holds the same λ; multipliers are float32 or
    wider and never follow ``.half()``.

    Args:
        initial: every multiplier's first value, >= 0.
        samples: N, the number of data points: one row of multipliers each, found by ``index=``.
        shared: one multiplier per constraint name (and side, for two-sided ones) for all data points.
        process_group: the ranks that train together; all of them unless given.
        **options: weights, reduction, shapes, validate: as for every method, see ``Method``.
    """

    def __init__(
        self,
        *,
        initial: float = 0.0,
        samples: int | None = None,
        shared: bool = False,
        process_group: dist.ProcessGroup | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.initial = not_negative("initial", initial)
        self.layout = layout_of(samples, shared)
        self._process_group = process_group
        self._multipliers: dict[str, Tensor] = {}
        self._met: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}
        self._explicit = False

    @property
    def multipliers(self) -> dict[str, Tensor]:
        """λ as stored, by name: shaped like the residual, ``[samples, ...]``, or one per name."""
        return dict(self._multipliers)

    def observe(self, *, index: Tensor | None = None, **constraints: Constraint) -> None:
        """Remember residuals for the next dual step, in place of those that the calls saw: the paper's pass.

        Call it over the whole training set (in evaluation mode, without gradients, as you like), then
        ``step()``.
        """
        residuals, index = self._admit(constraints, index)
        if not self._explicit:
            self._forget()
            self._explicit = True
        self._record(residuals, index)

    def summary(self) -> dict[str, float]:
        """Mean and largest multiplier of each constraint, of those that had a dual step: padding has none."""
        summary = {}
        for name, multiplier in sorted(self._multipliers.items()):
            met = self._met.get(name)
            if met is not None and bool(met.any()):
                multiplier = multiplier[met.to(multiplier.device)]
            summary[f"mean_multiplier/{name}"] = multiplier.mean().item()
            summary[f"max_multiplier/{name}"] = multiplier.max().item()
        return summary

    # What a concrete method says

    @property
    @abstractmethod
    def _rate(self) -> float:
        """How far a dual step goes."""

    def _climb(self, f: Tensor) -> Tensor:
        """The ascent direction for one residual; f itself unless a method says otherwise."""
        return f

    def _remember(self, residuals: Mapping[str, Residual], index: Tensor | None) -> None:
        """What a training call does for the dual step."""
        self._record(residuals, index)

    # The dual step

    def _see(self, residuals: Mapping[str, Residual], index: Tensor | None) -> None:
        if not self._explicit:
            self._remember(residuals, index)

    def _advance(self) -> None:
        self._dual_step()

    def _record(self, residuals: Mapping[str, Residual], index: Tensor | None) -> None:
        # never as inference tensors, which no later training call could use
        with torch.inference_mode(False), torch.no_grad():
            for name, residual in residuals.items():
                f = self._climb(residual.f.detach())
                seen = torch.ones_like(f)
                if residual.ragged:
                    f, seen = torch.where(residual.present, f, 0.0), residual.present.to(f.dtype)
                for store, values in ((self._sums, f), (self._counts, seen)):
                    if name not in store:
                        store[name] = self.layout.empty(self._multipliers[name])
                    store[name] = self.layout.add(store[name].to(f.device), values, index)

    def _dual_step(self) -> None:
        sums, counts = self._totals()
        if not sums:
            warnings.warn(
                f"{type(self).__name__}.step() saw no residual since the last step, so the multipliers stay as "
                "they are: call the fence in training mode with gradients enabled, or use observe(...)",
                stacklevel=4,
            )
        for name, total in sums.items():
            multiplier, count = self._multipliers[name], counts[name]
            climbed = multiplier + self._rate * (total / count.clamp(min=1)).to(multiplier.dtype)
            # Where nothing was seen, or something that is not a number (on a GPU that is reported later), λ stays.
            # A new tensor, not an update in place: a graph may still hold the old one.
            usable = (count > 0) & torch.isfinite(climbed)
            self._multipliers[name] = torch.where(usable, climbed.clamp(min=0.0), multiplier)
            before = self._met.get(name)
            self._met[name] = count > 0 if before is None else (count > 0) | before.to(count.device)
        self._forget()

    def _totals(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What was seen, added up over the ranks."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(self._process_group) == 1:
            return self._sums, self._counts
        self._agree_on_names()
        names = sorted(self._multipliers)
        for name in names:  # a rank without data this epoch adds nothing, but takes part
            for store in (self._sums, self._counts):
                store.setdefault(name, self.layout.empty(self._multipliers[name]))
        parts = [store[name] for name in names for store in (self._sums, self._counts)]
        flat = torch.cat([part.reshape(-1).double() for part in parts])  # one message for all of them
        dist.all_reduce(flat, group=self._process_group)
        pieces = flat.split([part.numel() for part in parts])
        shaped = [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)]
        return dict(zip(names, shaped[::2], strict=True)), dict(zip(names, shaped[1::2], strict=True))

    def _agree_on_names(self) -> None:
        """Let a rank that has not been called yet learn names and shapes from the others."""
        mine = {name: (tuple(value.shape), value.dtype) for name, value in self._multipliers.items()}
        everyones: list[Any] = [None] * dist.get_world_size(self._process_group)
        dist.all_gather_object(everyones, mine, group=self._process_group)
        device = next((value.device for value in self._multipliers.values()), _communicating_device())
        for theirs in everyones:
            for name, (shape, dtype) in theirs.items():
                if name not in self._multipliers:
                    self._multipliers[name] = torch.full(shape, self.initial, dtype=dtype, device=device)
        if self._multipliers:
            self._check_names(tuple(self._multipliers))
            self._names = self._names or tuple(self._multipliers)

    def _discard(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._sums, self._counts, self._explicit = {}, {}, False

    # Multipliers for the rows of a call

    def _admit(
        self, constraints: Mapping[str, Constraint], index: Tensor | None
    ) -> tuple[dict[str, Residual], Tensor | None]:
        residuals, index = super()._admit(constraints, index)
        for name, residual in residuals.items():
            if name in self._multipliers:
                self.layout.require_fit(name, self._multipliers[name], residual)
        with torch.inference_mode(False), torch.no_grad():
            for name, residual in residuals.items():
                if name not in self._multipliers:
                    self._multipliers[name] = self.layout.start(residual, self.initial)
                self._multipliers[name] = self._multipliers[name].to(residual.f.device)
        return residuals, self.layout.harmless(index, next(iter(residuals.values())).f.device)

    def _index_checks(self, residuals: Mapping[str, Residual], index: Tensor | None) -> list[Check]:
        return self.layout.index_checks(index, {name: residual.f.shape for name, residual in residuals.items()})

    def _multiplier(self, name: str, f: Tensor, index: Tensor | None) -> Tensor:
        return self.layout.rows(self._multipliers[name], index).to(f.dtype)

    # State

    def __deepcopy__(self, memo: dict[int, Any]) -> DualMethod:
        memo[id(self._process_group)] = self._process_group  # the ranks are the same, and cannot be copied
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"layout": self.layout.code, "explicit": self._explicit}

    def _knows(self, name: str, header: dict[str, Any]) -> bool:
        kind, _, constraint = name.partition(".")
        return kind in ("multipliers", "met", "sums", "counts") and constraint in header["names"]

    def _tensors(self) -> dict[str, Tensor]:
        stores = {"multipliers": self._multipliers, "met": self._met, "sums": self._sums, "counts": self._counts}
        return {f"{kind}.{name}": tensor for kind, store in stores.items() for name, tensor in store.items()}

    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        if header["layout"] != self.layout.code:
            return f"the state's multipliers are kept by {header['layout']}, this method's by {self.layout.code}"
        lost = [name for name in header["names"] if f"multipliers.{name}" not in tensors]
        if lost and tensors:  # none at all is the state of a method that was declared, but not called yet
            return f"the state lacks the multipliers of {', '.join(lost)}"
        for name, known in self._multipliers.items():
            saved = tensors.get(f"multipliers.{name}")
            if saved is not None and saved.shape != known.shape:
                return (
                    f"the state's multipliers of '{name}' have shape {list(saved.shape)}, "
                    f"this method's have {list(known.shape)}"
                )
        return super()._refusal(header, tensors)

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        super()._restore(header, numbers, tensors)
        self._explicit = header["explicit"]
        self._multipliers, self._met, self._sums, self._counts = (
            {key.split(".", 1)[1]: tensor for key, tensor in tensors.items() if key.startswith(f"{kind}.")}
            for kind in ("multipliers", "met", "sums", "counts")
        )


def _communicating_device() -> torch.device:
    """Where a rank that holds no tensor yet must put one for the others to reach it."""
    return (
        torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    )
