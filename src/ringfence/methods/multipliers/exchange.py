"""What ranks send each other: a few numbers, and rows of any number packed into parcels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

ALIGNED: Final = 8
"""Bytes that every part of a parcel is rounded up to, so that it can be read in place."""


class Rows(NamedTuple):
    """What was seen of some data points, each of them once.

    Attributes:
        which: int64 ``[rows]``: the data points.
        sums: ``[rows, *residual]``, what was seen, added up.
        counts: of how many; shaped like ``sums``, or with ones after the first dimension where entries are alike.
    """

    which: Tensor
    sums: Tensor
    counts: Tensor

    @property
    def wide(self) -> bool:
        """Whether each entry has a count of its own."""
        return any(size != 1 for size in self.counts.shape[1:])


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This process's rank and how many there are; (0, 1) for one alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def several(group: dist.ProcessGroup | None) -> bool:
    """Whether there is anybody to agree with."""
    return place(group)[1] > 1


def wire(device: torch.device, group: dist.ProcessGroup | None) -> torch.device:
    """Where a tensor must be to be sent: gloo takes them from the CPU, NCCL from a GPU."""
    backend = dist.get_backend(group)
    if backend == "gloo":
        return torch.device("cpu")
    if backend == "nccl" and device.type != "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return device


def gathered(mine: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What each rank has to say, whatever it is; for what is rare, since it takes long."""
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    return everyones


def numbers(mine: Tensor, group: dist.ProcessGroup | None) -> list[list[int]]:
    """As many int64 of each rank."""
    mine = mine.to(wire(mine.device, group))
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, mine, group=group)
    found: list[list[int]] = torch.stack(everyones).tolist()
    return found


def reduced(mine: Sequence[float], how: dist.ReduceOp.RedOpType, group: dist.ProcessGroup | None) -> list[float]:
    """Sums or maxima over the ranks, in float64."""
    flat = torch.tensor(mine, dtype=torch.float64, device=wire(torch.device("cpu"), group))
    dist.all_reduce(flat, how, group=group)
    found: list[float] = flat.tolist()
    return found


def everybodys(parcel: Tensor, sizes: Sequence[int], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Every rank's parcel of bytes, on every rank; ``sizes`` says how long each is."""
    padded = parcel.new_zeros(max(sizes))
    padded[: len(parcel)] = parcel
    padded = padded.to(wire(parcel.device, group))
    found = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(found, padded, group=group)
    return [one[:size].to(parcel.device) for one, size in zip(found, sizes, strict=True)]


def swapped(parcels: Sequence[Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """One parcel for each rank goes out, one of each comes in; of any dtype and length, rows alike."""
    mine = torch.tensor([len(one) for one in parcels])
    theirs: list[int] = each_to_each(mine, group).tolist()
    found = each_to_each(torch.cat(list(parcels)), group, theirs, mine.tolist())
    return list(found.split(theirs))


def each_to_each(
    out: Tensor,
    group: dist.ProcessGroup | None,
    incoming: list[int] | None = None,
    outgoing: list[int] | None = None,
) -> Tensor:
    """``all_to_all_single`` wherever ``out`` is: rows for each rank in order, and those of each in return."""
    sent = out.contiguous().to(wire(out.device, group))
    found = sent.new_empty((len(out) if incoming is None else sum(incoming), *out.shape[1:]))
    dist.all_to_all_single(found, sent, incoming, outgoing, group=group)
    return found.to(out.device)


# Parcels


def no_rows(like: Tensor) -> Rows:
    """Nothing seen; ``like`` is ``[0, *residual]``."""
    narrow = like.new_empty(0, *[1] * (like.ndim - 1))
    return Rows(torch.empty(0, dtype=torch.int64, device=like.device), like, narrow)


def parcelled(news: Sequence[Rows], lengths: Sequence[int]) -> Tensor:
    """Rows of several tables in one uint8 tensor, empty if there is no table; ``lengths`` are the tables'."""
    if not news:
        return torch.empty(0, dtype=torch.uint8)
    header = [
        number
        for rows, length in zip(news, lengths, strict=True)
        for number in (length, len(rows.which), int(rows.wide))
    ]
    parts = [torch.tensor(header, device=news[0].which.device), *(tensor for rows in news for tensor in rows)]
    return torch.cat([_as_bytes(part) for part in parts])


def parcel_size(news: Sequence[Rows]) -> int:
    """How many bytes ``parcelled`` will give, without packing."""
    return 24 * len(news) + sum(_rounded(tensor.nbytes) for rows in news for tensor in rows)


def rows_in(parcel: Tensor, like: Sequence[Tensor]) -> tuple[list[int], list[Rows]]:
    """The tables' lengths and rows again.

    Args:
        parcel: as parcelled, or empty: of a rank that knew of no table.
        like: for each table an empty tensor ``[0, *residual]`` of its dtype.
    """
    if not len(parcel):
        return [0] * len(like), [no_rows(one) for one in like]
    start = 24 * len(like)
    header: list[int] = parcel[:start].view(torch.int64).tolist()
    news = []
    for table, one in enumerate(like):
        count, wide = header[3 * table + 1], header[3 * table + 2]
        row = tuple(one.shape[1:])
        parts = []
        for shape, dtype in (
            ((count,), torch.int64),
            ((count, *row), one.dtype),
            ((count, *(row if wide else [1] * len(row))), one.dtype),
        ):
            size = shape_size(shape) * dtype.itemsize
            parts.append(parcel[start : start + size].view(dtype).view(shape))
            start += _rounded(size)
        news.append(Rows(*parts))
    return header[::3], news


def merged(parts: Sequence[Rows]) -> Rows:
    """The rows of all ranks, each once: sums are added in float64 and in the ranks' order, so alike everywhere."""
    wide = any(one.wide for one in parts)
    index, sums = torch.cat([one.which for one in parts]), torch.cat([one.sums for one in parts])
    counts = torch.cat([one.counts.expand(one.sums.shape) if wide else one.counts for one in parts])
    rows, where = torch.unique(index, return_inverse=True)
    total = sums.new_zeros((len(rows), *sums.shape[1:]), dtype=torch.float64)
    number = counts.new_zeros((len(rows), *counts.shape[1:]), dtype=torch.float64)
    if len(index):
        where, order = where.sort(stable=True)
        along = torch.arange(len(where), device=where.device)
        turn = along - torch.searchsorted(where, where)  # 0 for the first rank that saw a row, 1 for the second
        for one in range(int(turn.max()) + 1):  # no row twice in a turn: nothing depends on a race
            now = turn == one
            total[where[now]] += sums[order[now]].double()
            number[where[now]] += counts[order[now]].double()
    return Rows(rows, total.to(sums.dtype), number.to(counts.dtype))


def shape_size(shape: Sequence[int]) -> int:
    """How many entries."""
    return torch.Size(shape).numel()


def _as_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    if flat.stride(0) != 1:  # also of a single number, which counts as contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    flat = flat.view(torch.uint8)
    missing = _rounded(len(flat)) - len(flat)
    return torch.cat([flat, flat.new_zeros(missing)]) if missing else flat


def _rounded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
