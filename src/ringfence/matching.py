"""Constraints of data points as rows with keys, so that those of one epoch find themselves in the next."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

NOT_NUMBERED: Final = -1


class Taken(NamedTuple):
    """What the monitor was shown of a constraint at once.

    Attributes:
        name: of the constraint.
        shape: of its residuals, rows first.
        numbered: whether there was an index.
    """

    name: str
    shape: tuple[int, ...]
    numbered: bool


class Epoch(NamedTuple):
    """An epoch's constraints, and which of them were satisfied.

    Attributes:
        rows: int64 ``[entries, 3]``, the keys of ``long_format``; a data point may have come twice.
        key: int64 ``[constraints, 3]``, each once.
        place: int64 ``[entries]``, which of them an entry is.
        satisfied: bool ``[constraints]``; False of those without a number, which no other epoch knows.
    """

    rows: Tensor
    key: Tensor
    place: Tensor
    satisfied: Tensor


def long_format(taken: Sequence[Taken], f: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """One row for each constraint of a data point: int64 ``[entries, 3]``, and f; absent ones are left out.

    The columns are sample, crc32 of the name, and position within the row.
    """
    numbers = iter(sample.split([one.shape[0] for one in taken if one.numbered]))
    alike: dict[tuple[str, tuple[int, ...]], list[tuple[Tensor, Tensor]]] = {}
    for one, part in zip(taken, f.split([math.prod(one.shape) for one in taken]), strict=True):
        number = next(numbers) if one.numbered else sample.new_full(one.shape[:1], NOT_NUMBERED)
        alike.setdefault((one.name, one.shape[1:]), []).append((part, number))
    keys, found = [], []
    for (name, shape), parts in alike.items():
        some = torch.cat([part for part, _ in parts])
        entry = (some > -math.inf).nonzero().squeeze(1)
        row, place = entry // max(math.prod(shape), 1), entry % max(math.prod(shape), 1)
        number = torch.cat([number for _, number in parts])[row]
        code = torch.full_like(row, zlib.crc32(name.encode()))
        keys.append(torch.stack([number, code, _positions(shape, f.device)[place]], dim=1))
        found.append(some[entry])
    return torch.cat(keys), torch.cat(found)


def _positions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A number for each place within a row, flat, that stays the same when a ragged dimension grows."""
    place = torch.zeros(shape, dtype=torch.int64, device=device)
    stride = 2 ** (60 // max(len(shape), 1))  # room for every axis, whatever its size is in another batch
    for axis, size in enumerate(shape):
        along = torch.arange(size, device=device).view(-1, *[1] * (len(shape) - axis - 1))
        place = place * stride + along
    return place.reshape(-1)


def matched(rows: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The different keys among ``rows``, which of them each row has, and whether a key is one of ``before``."""
    before = before.to(rows.device)
    code = _codes(torch.cat([before, rows]))
    # rows without a number are all different, and unlike anything before
    anonymous = rows[:, 0] == NOT_NUMBERED
    now = code[len(before) :].clone()
    now[anonymous] = -1 - torch.arange(int(anonymous.sum()), device=rows.device)
    unique, place = torch.unique(now, return_inverse=True)
    key = rows.new_empty(len(unique), 3).index_put_((place,), rows)
    return key, place, torch.isin(unique, code[: len(before)])


def _codes(key: Tensor) -> Tensor:
    """One number for each different row of ``key``: columns are ranked one by one, far faster than whole rows."""
    code = torch.zeros(len(key), dtype=torch.int64, device=key.device)
    for column in key.unbind(dim=1):
        values, rank = torch.unique(column, return_inverse=True)
        code = code * max(len(values), 1) + rank
    return code
