"""How explicit multipliers are laid out: like the residual, one row per data point, or shared by all."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from ringfence.checks import Check
from ringfence.residuals import Residual


class Layout(ABC):
    """Where the multiplier of each residual is stored."""

    @abstractmethod
    def __str__(self) -> str:
        """The layout in words, for messages."""

    @property
    @abstractmethod
    def code(self) -> str:
        """The layout in a word that never changes, for saved states."""

    @abstractmethod
    def shape(self, residual: Residual) -> tuple[int, ...]:
        """The shape of the multipliers of a constraint whose residual this is."""

    @abstractmethod
    def rows(self, multiplier: Tensor, index: Tensor | None) -> Tensor:
        """The multipliers of one call's rows, broadcasting against its residual."""

    @abstractmethod
    def add(self, store: Tensor, values: Tensor, index: Tensor | None) -> Tensor:
        """``store``, shaped like the multipliers, with one call's values added where they belong."""

    @abstractmethod
    def advice(self) -> str:
        """What to do when a residual does not fit."""

    def empty(self, multiplier: Tensor) -> Tensor:
        """Zeros to add residuals up in."""
        return torch.zeros_like(multiplier)

    def start(self, residual: Residual, initial: float) -> Tensor:
        """The first multipliers, on the residual's device and at least float32."""
        return residual.f.new_full(self.shape(residual), initial)

    def require_fit(self, name: str, multiplier: Tensor, residual: Residual) -> None:
        """Raise unless the residual has the shape that the first one had."""
        if tuple(multiplier.shape) != self.shape(residual):
            raise ValueError(
                f"constraint '{name}' changed its shape: {list(residual.f.shape)} does not fit multipliers of "
                f"shape {list(multiplier.shape)} ({self}). {self.advice()}"
            )

    def index_checks(self, index: Tensor | None, shapes: Mapping[str, torch.Size]) -> list[Check]:
        """Raise on an index of the wrong kind; return the checks of its values."""
        return []

    def harmless(self, index: Tensor | None, device: torch.device) -> Tensor | None:
        """The index as ``rows`` and ``add`` use it, on the residuals' device."""
        return index


@final
class PerEntry(Layout):
    """One multiplier for each entry of the residual: for problems whose whole data is in every call."""

    def __str__(self) -> str:
        return "one multiplier per entry of the residual"

    @property
    def code(self) -> str:
        """By entry."""
        return "entry"

    def shape(self, residual: Residual) -> tuple[int, ...]:
        """The residual's own."""
        return tuple(residual.f.shape)

    def rows(self, multiplier: Tensor, index: Tensor | None) -> Tensor:
        """All of them."""
        return multiplier

    def add(self, store: Tensor, values: Tensor, index: Tensor | None) -> Tensor:
        """Entry by entry."""
        return store + values

    def index_checks(self, index: Tensor | None, shapes: Mapping[str, torch.Size]) -> list[Check]:
        """An index means that calls see different data points, and that is not for this layout."""
        if index is not None:
            warnings.warn(
                f"index= is ignored with {self}: rows of different calls share multipliers by their position. "
                "Use samples=N for a row of multipliers per data point, or shared=True",
                stacklevel=8,  # the line that calls the fence, above torch's own wrappers
            )
        return []

    def advice(self) -> str:
        """Mini-batches need one of the other layouts."""
        return (
            "When calls see different data points, use samples=N with index= (a row of multipliers for each), "
            "or shared=True (one per name)"
        )


@final
class PerSample(Layout):
    """One row of multipliers for each data point, found by its index."""

    def __init__(self, samples: int) -> None:
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise ValueError(f"samples must be a positive number of data points, got {samples!r}")
        self.samples = samples

    def __str__(self) -> str:
        return f"a row of multipliers for each of {self.samples} samples"

    @property
    def code(self) -> str:
        """By sample, and how many there are."""
        return f"sample of {self.samples}"

    def shape(self, residual: Residual) -> tuple[int, ...]:
        """``[samples, *row]``."""
        return (self.samples, *residual.f.shape[1:])

    def rows(self, multiplier: Tensor, index: Tensor | None) -> Tensor:
        """The rows of ``index``."""
        return multiplier[_given(index)]

    def add(self, store: Tensor, values: Tensor, index: Tensor | None) -> Tensor:
        """Row by row."""
        return store.index_add_(0, _given(index), values.to(store.dtype))

    def advice(self) -> str:
        """Ragged rows are padded and masked."""
        return "Rows must keep their shape: pad ragged ones to a common size and use mask="

    def index_checks(self, index: Tensor | None, shapes: Mapping[str, torch.Size]) -> list[Check]:
        """An int64 tensor with one entry per row; every entry in range and different."""
        if index is None:
            raise ValueError(f"index= is missing: with {self} each call must say which sample each row is")
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1:
            kind = (
                f"{index.dtype} of shape {list(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
            )
            raise TypeError(f"index must be a 1-D int64 tensor, got {kind}")
        for name, shape in shapes.items():
            if not shape or shape[0] != len(index):
                raise ValueError(
                    f"index has {len(index)} entries, but constraint '{name}' has shape {list(shape)}: "
                    "its first dimension must count the same rows. A limit on the batch as a whole needs a fence "
                    "of its own"
                )
        inputs: dict[str, Tensor | float] = {"index": index.detach(), "samples": float(self.samples)}
        return [
            Check("sample out of range", _out_of_range, inputs, f"Samples are numbered 0 to {self.samples - 1}."),
            Check("repeated sample", _repeated, inputs, "Each sample may stand in one row of a call only."),
        ]

    def harmless(self, index: Tensor | None, device: torch.device) -> Tensor | None:
        """Within range: on a GPU that is checked later, and a wild read would take the process down before it."""
        return _given(index).to(device, non_blocking=True).clamp(0, self.samples - 1)


@final
class Shared(Layout):
    """One multiplier per constraint name for all data points.

    A two-sided constraint is two constraints, and gets one for each side: with a single one,
    λ(low - v) + λ(v - high) would not depend on v at all.
    """

    def __str__(self) -> str:
        return "one multiplier per constraint name, shared by all samples"

    @property
    def code(self) -> str:
        """By name."""
        return "name"

    def shape(self, residual: Residual) -> tuple[int, ...]:
        """Scalar, or (low, high)."""
        return (2,) if residual.two_sided else ()

    def empty(self, multiplier: Tensor) -> Tensor:
        """float64: one sum may take in millions of residuals."""
        return torch.zeros_like(multiplier, dtype=torch.float64)

    def rows(self, multiplier: Tensor, index: Tensor | None) -> Tensor:
        """The same for every row."""
        return multiplier

    def add(self, store: Tensor, values: Tensor, index: Tensor | None) -> Tensor:
        """Everything into one sum, or one a side."""
        return store + values.double().reshape(-1, *store.shape).sum(dim=0)

    def advice(self) -> str:
        """A name keeps its kind."""
        return "A constraint is either one-sided or two-sided, under the same name"


def _given(index: Tensor | None) -> Tensor:
    if index is None:  # index_checks has refused it already
        raise ValueError("index= is missing")
    return index


def layout_of(samples: int | None, shared: bool) -> Layout:
    """The layout that a method's ``samples`` and ``shared`` ask for."""
    if shared and samples is not None:
        raise ValueError(f"samples={samples} and shared=True exclude each other: a row per sample, or one for all")
    if shared:
        return Shared()
    return PerEntry() if samples is None else PerSample(samples)


def _out_of_range(index: Tensor, samples: float) -> Tensor:
    return (index < 0) | (index >= samples)


def _repeated(index: Tensor, samples: float) -> Tensor:
    # sorting, unlike unique(), needs no answer from a GPU
    order = index.argsort()
    same = index[order].diff() == 0
    nothing = same.new_zeros(1)
    beside = torch.cat([nothing, same]) | torch.cat([same, nothing])
    return torch.zeros_like(beside).index_put((order,), beside)
