"""What ranks ask each other for where multipliers are sharded: the rows of a call, and all rows for a state."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.methods.multipliers.exchange import each_to_each, gathered, place, shape_size, wire
from ringfence.methods.multipliers.sharded import Sharded, routes, shard_length

CHUNK: Final = 2**24
"""Bytes of a table that are sent together when it is saved."""


def whole_tables(mine: Mapping[str, Tensor], samples: int, group: dist.ProcessGroup | None) -> dict[str, Tensor]:
    """Everybody's rows of each of this rank's tables, on rank 0 and its CPU; nothing on the others.

    All ranks call together. Rows come by the chunk, so that no rank but the first needs more memory than it has.

    Args:
        mine: this rank's tables, by name; one that it lacks counts as zeros.
        samples: how many rows there are on all ranks.
        group: the ranks.
    """
    rank, ranks = place(group)
    told = gathered({name: (list(one.shape[1:]), one.dtype) for name, one in mine.items()}, group)
    shapes: dict[str, list[list[int]]] = {}
    dtypes: dict[str, torch.dtype] = {}
    for theirs in told:
        for name, (row, dtype) in theirs.items():
            shapes.setdefault(name, []).append(row)
            dtypes[name] = dtype
    found = {}
    for name in sorted(shapes):
        row = [max(sizes) for sizes in zip(*shapes[name], strict=True)]
        table = torch.empty(samples, *row, dtype=dtypes[name]) if rank == 0 else None
        step = max(CHUNK // max(shape_size(row) * dtypes[name].itemsize, 1), 1)
        for start in range(0, shard_length(samples, 0, ranks), step):
            stop = min(start + step, shard_length(samples, 0, ranks))
            chunk = _chunk(mine.get(name), start, stop, row, dtypes[name])
            for other, rows in enumerate(_to_first(chunk, group)):
                assert table is not None  # noqa: S101
                many = min(stop, shard_length(samples, other, ranks)) - start
                table[start * ranks + other : stop * ranks : ranks][:many] = rows[:many].to(table.dtype)
        if table is not None:
            found[name] = table
    return found


def own_rows(table: Tensor, rank: int, ranks: int) -> Tensor:
    """A rank's rows of everybody's: a copy, so that the rest can be dropped."""
    return table[rank::ranks].clone() if table.ndim else table.clone()


def _chunk(mine: Tensor | None, start: int, stop: int, row: list[int], dtype: torch.dtype) -> Tensor:
    """Some rows of a table, as long and as wide as everybody's; bytes for bools, which not every backend sends."""
    chunk = torch.zeros(stop - start, *row, dtype=torch.uint8 if dtype == torch.bool else dtype)
    if mine is not None:
        rows = mine[start:stop]
        chunk[: len(rows)] = rows.cpu()
    return chunk


def _to_first(chunk: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
    """Everybody's chunk on rank 0."""
    sent = chunk.to(wire(chunk.device, group))
    rank, ranks = place(group)
    found = [torch.empty_like(sent) for _ in range(ranks)] if rank == 0 else None
    dist.gather(sent, found, 0 if group is None else dist.get_global_rank(group, 0), group=group)
    return [] if found is None else [one.cpu() for one in found]


def fetch(stores: Sequence[Sharded], index: Tensor, group: dist.ProcessGroup | None) -> None:
    """Get λ of the data points ``index`` of a call from the ranks that keep them; all ranks call together.

    One exchange of numbers, one of rows asked for and one of answers, for all constraints.
    """
    stores = sorted(stores, key=lambda one: one.name)
    way = routes(index, stores[0].ranks)
    what = [(one.name, list(one.value.shape[1:]), str(one.value.dtype), one.samples) for one in stores]
    code = zlib.crc32(repr(what).encode())
    told = each_to_each(torch.tensor([[number, code] for number in way.number]), group)
    asked, codes = told.t().tolist()
    others = [rank for rank, other in enumerate(codes) if other != code]
    if others:
        raise ValueError(
            f"sharded multipliers: rank {others[0]} asks for others in this call than rank {stores[0].rank}, which "
            f"asks for {', '.join(f'{name} {shape} of {dtype}' for name, shape, dtype, _ in what)}. Call the fence "
            "alike on all ranks: the same constraints, and the same samples=N"
        )
    wanted = each_to_each(way.rows, group, asked, way.number)
    answers = torch.cat([one.answer(wanted).to(_widest(stores)) for one in stores], dim=1)
    found = each_to_each(answers, group, way.number, asked)
    found = torch.empty_like(found).index_copy_(0, way.order, found)
    for one, answer in zip(stores, found.split([one.width for one in stores], dim=1), strict=True):
        one.take_answer(answer)


def _widest(stores: Sequence[Sharded]) -> torch.dtype:
    """float64, if any is: float32 goes through it unchanged."""
    return torch.float64 if any(one.value.dtype == torch.float64 for one in stores) else torch.float32
