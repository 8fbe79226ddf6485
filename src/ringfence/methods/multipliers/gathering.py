"""Multipliers on a GPU by one kernel, Σ φ_λ(f), or what they see by one: what a few hundred take is launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor

from ringfence.fused.launch import can_be_one, multiplied, note_all, note_rows
from ringfence.methods.multipliers.kinds import INEQUALITY, climbed
from ringfence.methods.multipliers.shared import Shared
from ringfence.methods.multipliers.store import Multipliers
from ringfence.methods.summed import Phi, summed
from ringfence.residuals import Residual

FEW: Final = 1024
"""Rows, each of which is compared with all of them."""
Rule: TypeAlias = Literal["product", "violation", "augmented"]
"""λ f, or λ max(f, 0), or (max(0, λ + ρ f)² - λ²) / 2ρ."""


def gathered_term(
    store: Multipliers, residual: Residual, index: Tensor | None, rule: Rule, rho: float | Tensor = 1.0
) -> Tensor | None:
    """Σ φ_λ(f) over what is constrained, differentiable in f; None where one kernel will not do.

    Args:
        store: whose multipliers.
        residual: of an inequality.
        index: which data points its rows are, where multipliers go by them.
        rule: what φ is.
        rho: ρ, where the rule has one.
    """
    if store.kind is not INEQUALITY or residual.equality or not can_be_one(residual.f):
        return None
    found = store.table(index)
    if found is None or found[0].dtype is not torch.float32 or not found[0].is_contiguous():
        return None
    (table, rows), ragged = found, residual.ragged
    kept: list[Tensor] = []  # not the sum: autograd's node would keep what keeps the node

    def both(f: Tensor) -> tuple[Tensor, Tensor]:
        total, slope, multiplier = multiplied(f, table, rows, rule, rho, ragged)
        kept[:] = [multiplier if rule == "augmented" else slope]
        return total, slope

    def differentiable(f: Tensor) -> Tensor:
        """The slope once more, for gradients of gradients: of these rules only one has any."""
        if rule != "augmented":
            return kept[0]
        there = f > -math.inf if ragged else torch.ones_like(f, dtype=torch.bool)
        return torch.where(there, torch.relu(climbed(kept[0], torch.where(there, f, 0.0), rho)), 0.0)

    return summed(Phi(lambda f: both(f)[0], differentiable, both), residual.f, many=0)


def noted(
    store: Multipliers, tables: Sequence[Tensor], residual: Residual, index: Tensor | None, *, violation: bool
) -> bool:
    """Have multipliers see a residual, or its violation; False where one kernel will not do.

    Args:
        store: whose, while it follows.
        tables: what it then writes to: sums, and of how many they are.
        residual: of an inequality.
        index: which data points its rows are, where multipliers go by them.
        violation: whether max(f, 0) is seen, not f.
    """
    if store.kind is not INEQUALITY or residual.equality or not can_be_one(residual.f):
        return False
    sums, counts = tables
    if isinstance(store, Shared):
        note_all(residual.f, sums, counts, violation=violation, ragged=residual.ragged)
    elif index is not None and len(index) <= FEW and sums.dtype is counts.dtype is torch.float32:
        note_rows(residual.f, index, sums, counts, violation=violation, ragged=residual.ragged)
    else:
        return False
    return True
