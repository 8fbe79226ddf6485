"""The dual step between processes: everyone agrees first, then the sums are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import distributed as dist

from ringfence.methods.kinds import Kind
from ringfence.methods.multipliers import Indexed, Multipliers


def several(group: dist.ProcessGroup | None) -> bool:
    """Whether there is anybody to agree with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def gathered(mine: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What each rank has to say."""
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    return everyones


def disagreement(everyones: list[dict[str, Any]]) -> str | None:
    """Why the ranks cannot take a step together; the same words on each of them, None if they can."""
    for rank, theirs in enumerate(everyones):
        if theirs["fault"] is not None:
            return f"rank {rank} found a fault, so no rank takes this step: {theirs['fault']}"
    known: dict[str, tuple[int, Any]] = {}
    for rank, theirs in enumerate(everyones):
        for name, layout in theirs["layouts"].items():
            first, other = known.setdefault(name, (rank, layout))
            if other != layout:
                return (
                    f"the multipliers of '{name}' differ between ranks: {_shown(other)} on rank {first}, "
                    f"{_shown(layout)} on rank {rank}. With rows of its own on each rank, give index= (a row of "
                    "multipliers for each data point) or use shared=True"
                )
    return None


def added_up(stores: Mapping[str, Multipliers], group: dist.ProcessGroup | None) -> None:
    """Replace what each rank saw by what all of them saw, with one message for all constraints."""
    names = sorted(stores)
    lengths = gathered({n: len(s.value) for n, s in stores.items() if isinstance(s, Indexed)}, group)
    for name in names:
        store = stores[name]
        if isinstance(store, Indexed):
            store.grow(max(theirs[name] for theirs in lengths))
    parts = [stores[name].sums() for name in names]
    flat = torch.cat([part.reshape(-1).double() for sums in parts for part in sums])
    dist.all_reduce(flat, group=group)
    pieces = iter(flat.split([part.numel() for sums in parts for part in sums]))
    for name, sums in zip(names, parts, strict=True):
        stores[name].take_sums([next(pieces).view(part.shape) for part in sums])


def empty_like(
    layout: Mapping[str, Any], kind: Kind, stores: Iterable[Multipliers]
) -> tuple[torch.Size, torch.Tensor]:
    """The shape of another rank's residual, and a tensor of its dtype where this rank computes."""
    dtype = getattr(torch, layout["dtype"].removeprefix("torch."))
    made = [store.value.device for store in stores if store.ready]
    if made:
        device = made[0]
    else:  # a rank that holds no tensor yet must put one where the others can reach it
        gpu = dist.get_backend() == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    shape = kind.residual_shape(torch.Size(layout["shape"]))
    rows = (1, *shape) if layout["kept"] == Indexed.code else shape
    return torch.Size(rows), torch.zeros((), dtype=dtype, device=device)


def layout_of(store: Multipliers) -> dict[str, Any]:
    """What must be the same on all ranks."""
    dtype = str(store.value.dtype)
    return {"kept": store.code, "kind": store.kind.code, "pair": store.pair, "shape": store.size(), "dtype": dtype}


def _shown(layout: dict[str, Any]) -> str:
    return f"{layout['kind']}, by {layout['kept']}, shape {layout['shape']} of {layout['dtype']}"
