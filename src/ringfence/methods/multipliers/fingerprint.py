"""A number that tells whether two ranks hold the same multipliers, kept up to date by the rows that change."""

from __future__ import annotations

import struct
from typing import Final

import torch
from torch import Tensor

SPREAD: Final = 0x9E3779B97F4A7C15 - 2**64
"""2^64 / golden ratio, as a signed number: neighbouring places get unlike odd weights."""
CHUNK: Final = 2**17
"""Entries looked at together, so that a long table needs no second one."""
_INTEGERS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_CODES: Final = {torch.float16: ("<e", "<h"), torch.float32: ("<f", "<i"), torch.float64: ("<d", "<q")}


def fingerprint(values: Tensor, initial: float = 0.0, rows: Tensor | None = None) -> Tensor:
    """Σ (bits of λ - bits of ``initial``) · (an odd weight of its place), modulo 2^64: an int64 scalar.

    A whole-number sum: exact, the same in any order and on any device, and 0 for what is still as it began, so that
    tables of different lengths can be compared, and a change of some rows is a difference of two sums.

    Args:
        values: λ, all of them or some rows.
        initial: what every λ began with.
        rows: which rows these are; None for all.
    """
    width = values[0].numel() if values.ndim and len(values) else 1
    flat = values.detach().contiguous().reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    first = _bits(initial, flat.dtype)
    columns = torch.arange(width, device=flat.device)
    step = max(CHUNK // width, 1)
    count = flat.numel() // width
    for start in range(0, count, step):
        stop = min(start + step, count)
        row = torch.arange(start, stop, device=flat.device) if rows is None else rows[start:stop]
        bits = flat[start * width : stop * width].view(_INTEGERS[flat.dtype.itemsize]).long() - first
        place = (row[:, None] * width + columns).reshape(-1) * SPREAD
        weights = ((place ^ (place >> 29)) * SPREAD) | 1  # not linear in the place, or changes would cancel out
        total += (bits * weights).sum()
    return total


def _bits(number: float, dtype: torch.dtype) -> int:
    if dtype not in _CODES:  # bfloat16, of a network's weights, which begin anywhere
        return 0
    floating, whole = _CODES[dtype]
    return int(struct.unpack(whole, struct.pack(floating, number))[0])
