"""The dual step between processes: everyone agrees first, then the sums are added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import distributed as dist

from ringfence.methods.multipliers import Indexed, Multipliers
from ringfence.methods.multipliers.kinds import Kind


def several(group: dist.ProcessGroup | None) -> bool:
    """Whether there is anybody to agree with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def gathered(mine: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What each rank has to say."""
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    return everyones


def agree(
    stores: dict[str, Multipliers],
    store_like: Callable[[str, Mapping[str, Any]], Multipliers],
    seen: bool,
    fault: str | None,
    group: dist.ProcessGroup | None,
) -> bool:
    """Make every rank ready for the same dual step, or raise a ValueError on all of them.

    Args:
        stores: this rank's multipliers; those that only others have are added.
        store_like: makes a place for them.
        seen: whether this rank saw anything since the last step.
        fault: what is wrong on this rank, if anything is.
        group: the ranks.

    Returns:
        Whether any rank saw anything; then what they saw has been added up.
    """
    faults = (store.fault() for store in stores.values())
    fault = fault or next((one for one in faults if one is not None), None)
    layouts = {name: layout_of(store) for name, store in stores.items()}
    everyones = gathered({"fault": fault, "layouts": layouts, "seen": seen}, group)
    why = disagreement(everyones)
    if why is not None:
        raise ValueError(fault or why)
    for theirs in everyones:
        for name, layout in theirs["layouts"].items():
            if name not in stores:  # this rank had no data yet
                store = store_like(name, layout)
                store.fit(*empty_like(layout, store.kind, device_of(stores.values(), group)), None)
                stores[name] = store
    anybody = any(theirs["seen"] for theirs in everyones)
    if anybody:
        added_up(stores, group)
    return anybody


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
            if {**other, "sum": None} == {**layout, "sum": None}:
                if math.isclose(other["sum"], layout["sum"], rel_tol=1e-9) or math.isnan(layout["sum"]):
                    continue
                return (
                    f"the multipliers of '{name}' are not the same on rank {first} and rank {rank}, as they always "
                    "are if every rank begins with the same: load the same state everywhere, build multiplier "
                    "networks from the same seed, and change multipliers by hand on all ranks alike"
                )
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


def device_of(stores: Iterable[Multipliers], group: dist.ProcessGroup | None) -> torch.device:
    """Where this rank computes; one that holds no tensor yet puts them where the others can reach them."""
    for store in stores:
        if store.ready:
            return store.value.device
    gpu = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")


def empty_like(layout: Mapping[str, Any], kind: Kind, device: torch.device) -> tuple[torch.Size, torch.Tensor]:
    """The shape of another rank's residual, and a tensor of its dtype."""
    dtype = getattr(torch, layout["dtype"].removeprefix("torch."))
    shape = kind.residual_shape(torch.Size(layout["shape"]))
    rows = (1, *shape) if layout["kept"] == Indexed.code else shape
    return torch.Size(rows), torch.zeros((), dtype=dtype, device=device)


def layout_of(store: Multipliers) -> dict[str, Any]:
    """What must be the same on all ranks."""
    return {
        "kept": store.code,
        "kind": store.kind.code,
        "pair": store.pair,
        "has_rows": store.has_rows,
        "shape": store.size(),
        "dtype": str(store.value.dtype),
        # from what every λ began with, since tables may not be equally long yet
        "sum": (store.value.double() - store.initial).abs().sum().item(),
    }


def _shown(layout: dict[str, Any]) -> str:
    return f"{layout['kind']}, by {layout['kept']}, shape {layout['shape']} of {layout['dtype']}"
