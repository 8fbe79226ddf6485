"""One multiplier for each entry of the residual, where every call has the same rows in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor

from ringfence.methods.multipliers.kinds import INEQUALITY, Kind
from ringfence.methods.multipliers.store import Climb, Kept, counts, first, shape_changed
from ringfence.residuals import Residual

WORTH_A_REFERENCE: Final = 2**24
"""Bytes from which on residuals are not copied: as many again would be felt."""


@final
class SameRows(Kept):
    """λ shaped like the residual. The latest call counts: before it are points that training has left behind.

    v is copied, since a parameter, or a view of one, changes when its optimiser steps; where there are millions it
    is kept by reference, and one that was changed in place before ``step()`` is an error.
    """

    code = "entry"

    def __init__(self, name: str, kind: Kind, pair: bool, initial: float) -> None:
        super().__init__(name, kind, pair, initial)
        self._met: Tensor | None = None  # None: every entry had a dual step, or none had
        self._v: Tensor | None = None
        self._count: Tensor | None = None  # None: every entry was there
        self._version: int | None = None

    def __str__(self) -> str:
        return "one multiplier per entry of the residual"

    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """The shape of the first call is that of all."""
        if self._value is None:
            self._value = first(like, self.kind.shape(shape), self.initial)
        elif self._value.shape != self.kind.shape(shape):
            raise shape_changed(
                self,
                shape,
                "When calls see different data points, leave out same_rows and give index= (a row of multipliers "
                "for each), or use shared=True (one per name)",
            )
        elif self._value.device != like.device:
            self._value = self._value.to(like.device)
            self._met = None if self._met is None else self._met.to(like.device)
            self._v = None if self._v is None else self._v.to(like.device)
            self._count = None if self._count is None else self._count.to(like.device)

    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Keep this call's v in place of the last one's."""
        own = v.detach()
        self._count = self._version = None
        if residual.ragged or sound is not True:
            with torch.inference_mode(False), torch.no_grad():
                self._v, self._count = counts(own, residual, sound)
            return
        if v.is_inference():
            with torch.inference_mode(False):
                self._v = own.clone()
        elif v.nbytes < WORTH_A_REFERENCE or not v.is_cpu:
            self._v = own.clone()
        else:
            self._v, self._version = own, own._version

    @property
    def seen(self) -> bool:
        """Whether there was a call."""
        return self._v is not None

    def step(self, climb: Climb) -> Tensor:
        """Every entry moves."""
        fault = self.fault()
        if fault is not None:
            self.forget()
            raise ValueError(fault)
        v, count = self._v, self._count
        assert v is not None  # noqa: S101
        there = None if count is None else self.kind.where_seen(count)
        mean = v if count is None else v / count.clamp(min=1)
        value = self._value
        assert value is not None  # noqa: S101
        if mean.dtype != value.dtype:
            mean = mean.to(value.dtype)
        # a loss that has not gone backward yet may still hold λ: then a new one is made
        free = self.kind is INEQUALITY and value._use_count() == 1  # type: ignore[attr-defined]
        self._value = climb(value, mean, there, None, free)
        if there is not None:
            self._met = there if self._met is None else self._met | there
        self.forget()
        return mean

    def fault(self) -> str | None:
        """Whether v is still what it was in the call."""
        if self._v is None or self._version is None or self._v._version == self._version:
            return None
        return (
            f"constraint '{self.name}': the tensor given to the last call was changed in place before step(), so "
            "the dual step has nothing to go by: give the fence a copy (.clone()), or step before the change"
        )

    def _owned(self) -> Tensor | None:
        """v, no longer by reference."""
        if self._version is not None and self._v is not None and self.fault() is None:
            self._v, self._version = self._v.clone(), None
        return self._v

    def __getstate__(self) -> dict[str, Any]:
        self._owned()  # a copy has a version of its own
        return self.__dict__

    def forget(self) -> None:
        """Drop the last call."""
        self._v = self._count = self._version = None

    def used(self) -> tuple[Tensor, Tensor | None]:
        """Without padding."""
        return self.value, None if self._met is None else self._met.to(self.value.device)

    def sums(self) -> list[Tensor]:
        """v and how often it was seen, 0 or 1."""
        if self._v is None:
            empty = self.value.new_zeros(self.kind.residual_shape(self.value.shape))
            return [empty, empty]
        v = self._v
        return [v, torch.ones_like(v) if self._count is None else self._count]

    def take_sums(self, sums: list[Tensor]) -> None:
        """What the ranks saw, added up."""
        self._v, self._count = sums
        self._version = None

    def tensors(self) -> dict[str, Tensor]:
        """λ, and what was seen."""
        found = {"multipliers": self._value, "met": self._met, "sums": self._owned(), "counts": self._count}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        self._value, self._met = tensors.get("multipliers"), tensors.get("met")
        self._v, self._count, self._version = tensors.get("sums"), tensors.get("counts"), None
