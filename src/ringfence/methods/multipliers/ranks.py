"""The dual step between processes: everyone agrees first, then they tell each other what they saw."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch import distributed as dist

from ringfence.methods.multipliers import Indexed, Multipliers, Sharded
from ringfence.methods.multipliers.exchange import (
    everybodys,
    gathered,
    merged,
    numbers,
    parcel_size,
    parcelled,
    rows_in,
    shape_size,
    swapped,
    wire,
)
from ringfence.methods.multipliers.kinds import Kind

SEEN: Final = 1
FAULT: Final = 2


def agree(
    stores: dict[str, Multipliers],
    store_like: Callable[[str, Mapping[str, Any]], Multipliers],
    seen: bool,
    fault: str | None,
    group: dist.ProcessGroup | None,
) -> bool:
    """Make every rank ready for the same dual step, or raise a ValueError on all of them.

    Four numbers of each rank go round; only if they show that something differs, the ranks say what. The cost
    depends on the rows that were seen, not on how many there are.

    Args:
        stores: this rank's multipliers; those that only others have are added.
        store_like: makes a place for them.
        seen: whether this rank saw anything since the last step.
        fault: what is wrong on this rank, if anything is.
        group: the ranks.

    Returns:
        Whether any rank saw anything; then each knows what all of them saw.
    """
    faults = (store.fault() for store in stores.values())
    fault = fault or next((one for one in faults if one is not None), None)
    tables = {} if fault else _of(Indexed, stores)
    news = [one.news() for one in tables.values()]
    mine = torch.tensor(
        [SEEN * seen + FAULT * (fault is not None), parcel_size(news), dense_size(tables.values()), 0]
    )
    everyones = numbers(_signed(mine, stores, group), group)
    flags, sizes, dense, signs = zip(*everyones, strict=True)
    if any(one & FAULT for one in flags) or len(set(signs)) > 1:
        _settle(stores, store_like, fault, group)
        tables = _of(Indexed, stores)
    anybody = any(one & SEEN for one in flags)
    if not anybody:
        return False
    rest = {name: store for name, store in stores.items() if not isinstance(store, (Indexed, Sharded))}
    if tables:
        if 2 * len(sizes) * max(sizes) > max(dense):  # so many rows that sorting them costs more than adding all up
            rest |= tables
        else:
            parcel = parcelled(news, [len(one) for one in tables.values()])
            parcel = parcel.to(device_of(stores.values(), group))
            share_rows(list(tables.values()), everybodys(parcel, sizes, group))
    shards = list(_of(Sharded, stores).values())
    if shards:
        share_rows([one.own for one in shards], swapped(parcels_of(shards), group))
    if rest:
        add_up(rest, group)
    return True


def share_rows(tables: Sequence[Indexed], parcels: Sequence[Tensor]) -> None:
    """Replace what this rank saw by what every rank's parcel says."""
    like = [one.no_residual() for one in tables]
    lengths, news = zip(*(rows_in(parcel, like) for parcel in parcels), strict=True)
    for number, table in enumerate(tables):
        table.grow(max(theirs[number] for theirs in lengths))
        table.take_news(merged([theirs[number] for theirs in news]))


def parcels_of(shards: Sequence[Sharded]) -> list[Tensor]:
    """What this rank saw, a parcel for each owner; nothing at all for those that have none of it."""
    return [
        parcelled(news if any(len(one.which) for one in news) else (), [0] * len(news))
        for news in zip(*(one.outgoing() for one in shards), strict=True)
    ]


def dense_size(tables: Iterable[Indexed]) -> int:
    """Bytes of these tables' sums and counts in float64: what adding up all of them would send."""
    return sum(16 * shape_size(one.kind.residual_shape(one.value.shape)) for one in tables)


def add_up(stores: Mapping[str, Multipliers], group: dist.ProcessGroup | None) -> None:
    """Replace what each rank saw by the sum over all of them, with one message for all constraints."""
    names = sorted(stores)
    tables = _of(Indexed, stores)
    if tables:
        lengths = gathered({name: len(one) for name, one in tables.items()}, group)
        for name, one in tables.items():
            one.grow(max(theirs[name] for theirs in lengths))
    parts = [stores[name].sums() for name in names]
    flat = torch.cat([part.reshape(-1).double() for sums in parts for part in sums])
    sent = flat.to(wire(flat.device, group))
    dist.all_reduce(sent, group=group)
    pieces = iter(sent.to(flat.device).split([part.numel() for sums in parts for part in sums]))
    for name, sums in zip(names, parts, strict=True):
        stores[name].take_sums([next(pieces).view(part.shape) for part in sums])


# Whether ranks agree


def _signed(mine: Tensor, stores: Mapping[str, Multipliers], group: dist.ProcessGroup | None) -> Tensor:
    """``mine``, its last number one for names, layouts and values of all multipliers."""
    layouts = {name: layout_of(store) for name, store in sorted(stores.items())}
    sign = mine.new_tensor(zlib.crc32(json.dumps(layouts).encode())).to(device_of(stores.values(), group))
    for name, store in stores.items():
        sign = sign + store.fingerprint().to(sign.device) * (2 * zlib.crc32(name.encode()) + 1)
    return torch.cat([mine[:-1].to(sign.device), sign[None]])


def _settle(
    stores: dict[str, Multipliers],
    store_like: Callable[[str, Mapping[str, Any]], Multipliers],
    fault: str | None,
    group: dist.ProcessGroup | None,
) -> None:
    """Say what is wrong, on every rank; or, if only a rank had no data yet, give it a place for its multipliers."""
    layouts = {name: layout_of(store) | {"print": int(store.fingerprint())} for name, store in stores.items()}
    everyones = gathered({"fault": fault, "layouts": layouts}, group)
    why = disagreement(everyones)
    if why is not None:
        raise ValueError(fault or why)
    for theirs in everyones:
        for name, layout in theirs["layouts"].items():
            if name not in stores:
                store = store_like(name, layout)
                store.fit(*empty_like(layout, store.kind, device_of(stores.values(), group)), None)
                stores[name] = store


def disagreement(everyones: list[dict[str, Any]]) -> str | None:
    """Why the ranks cannot take a step together; the same words on each of them, None if they can."""
    for rank, theirs in enumerate(everyones):
        if theirs["fault"] is not None:
            return f"rank {rank} found a fault, so no rank takes this step: {theirs['fault']}"
    named = {rank: sorted(theirs["layouts"]) for rank, theirs in enumerate(everyones) if theirs["layouts"]}
    if len({tuple(names) for names in named.values()}) > 1:
        return f"the constraints differ between ranks: {named}. Give every constraint in every call"
    known: dict[str, tuple[int, Any]] = {}
    for rank, theirs in enumerate(everyones):
        for name, layout in theirs["layouts"].items():
            first, other = known.setdefault(name, (rank, layout))
            if {**other, "print": None} != {**layout, "print": None}:
                return (
                    f"the multipliers of '{name}' differ between ranks: {_shown(other)} on rank {first}, "
                    f"{_shown(layout)} on rank {rank}. With rows of its own on each rank, give index= (a row of "
                    "multipliers for each data point) or use shared=True"
                )
            if other["print"] != layout["print"]:
                return (
                    f"the multipliers of '{name}' are not the same on rank {first} and rank {rank}, as they always "
                    "are if every rank begins with the same: load the same state everywhere, build multiplier "
                    "networks from the same seed, and change multipliers by hand on all ranks alike"
                )
    return None


def device_of(stores: Iterable[Multipliers], group: dist.ProcessGroup | None) -> torch.device:
    """Where this rank computes; one that holds no tensor yet puts them where the others can reach them."""
    for store in stores:
        if store.ready:
            return store.value.device
    return wire(torch.device("cpu"), group)


def empty_like(layout: Mapping[str, Any], kind: Kind, device: torch.device) -> tuple[torch.Size, Tensor]:
    """The shape of another rank's residual, and a tensor of its dtype."""
    dtype = getattr(torch, layout["dtype"].removeprefix("torch."))
    shape = kind.residual_shape(torch.Size(layout["shape"]))
    rows = (1, *shape) if layout["kept"] == Indexed.code else shape
    return torch.Size(rows), torch.zeros((), dtype=dtype, device=device)


def layout_of(store: Multipliers) -> dict[str, Any]:
    """What must be the same on all ranks."""
    return {
        "kept": store.code,
        "sharded": store.ranks > 1,
        "kind": store.kind.code,
        "pair": store.pair,
        "has_rows": store.has_rows,
        "shape": store.size(),
        "dtype": str(store.value.dtype),
    }


def _of(way: type[Any], stores: Mapping[str, Multipliers]) -> dict[str, Any]:
    """The stores of one way, by name, in the same order on all ranks."""
    return {name: one for name, one in sorted(stores.items()) if isinstance(one, way)}


def _shown(layout: dict[str, Any]) -> str:
    kept = f"{layout['kept']}{', sharded' if layout['sharded'] else ''}"
    return f"{layout['kind']}, by {kept}, shape {layout['shape']} of {layout['dtype']}"
