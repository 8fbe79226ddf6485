"""What each rank does in test_sharded.py: importable by the processes that it starts."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

import ringfence as rf
from registry import METHODS
from ringfence.methods.multipliers import indexed, ranks

SAMPLES, EPOCHS = 22, 3
FENCES = {name: entry.make for name, entry in METHODS.items() if entry.by_rows} | {
    "capped, with restarts": partial(rf.Lagrangian, dual_lr=0.7, initial=0.2, max_multiplier=0.8, restart=True)
}


ON_FOUR = ("Lagrangian, samples declared", "Lagrangian by Adam", "augmented")
"""Of four ranks these, since starting and waiting for them takes most of the time."""


def names(world: int) -> tuple[str, ...]:
    """The fences that so many ranks try."""
    return ON_FOUR if world == 4 else tuple(FENCES)


def fence_of(name: str, **options: Any) -> Any:
    return FENCES[name](**({"initial": 0.3} | options))


def residuals(epoch: int, rows: Tensor, copy: Tensor) -> dict[str, Any]:
    """Two constraints of some data points, one of them ragged; ``copy`` tells repeated rows apart."""
    random = torch.Generator().manual_seed(epoch)
    wide = torch.randn(2, SAMPLES, 3, generator=random)[copy, rows].requires_grad_()
    mask = (torch.rand(SAMPLES, 3, generator=random) < 0.8)[rows]
    one = torch.randn(2, SAMPLES, generator=random)[copy, rows].requires_grad_()
    return {"size": rf.between(wide, -0.1, 0.3, mask=mask), "place": rf.equal(one, 0.2, tolerance=0.05)}


def batches(epoch: int) -> list[tuple[Tensor, Tensor]]:
    """Rows and which copy: of 7, 7, 7 and 1 data points, so that some ranks have none; some twice in a batch."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(100 + epoch))
    once = [(rows, torch.zeros_like(rows)) for rows in order.split(7)]
    return [(torch.cat([rows, rows[:2]]), torch.cat([copy, copy[:2] + 1])) for rows, copy in once[:3]] + once[3:]


def calls(fence: Any, epoch: int, rank: int, world: int, each: bool, only: slice = slice(None)) -> list[Tensor]:
    """One epoch of this rank's part, with a dual step at its end or after each call; its losses."""
    losses = []
    for rows, copy in batches(epoch)[only]:
        mine = rows[rank::world]
        losses.append(fence(index=mine, **residuals(epoch, mine, copy[rank::world])).detach())
        if each:
            fence.step()
    return losses


def all_duals(fence: Any, rank: int, world: int) -> dict[str, Tensor]:
    """Of every data point; each rank asks for as many as the others."""
    rows = torch.arange(SAMPLES)
    return fence.duals(index=rows, **residuals(9, rows, torch.zeros_like(rows)))


def trained(name: str, rank: int, world: int, sharded: bool, each: bool) -> dict[str, Any]:
    fence = fence_of(name, samples=SAMPLES, sharded=sharded)
    losses = []
    for epoch in range(1 if each else EPOCHS):
        losses += calls(fence, epoch, rank, world, each)
        if not each:
            fence.step()
    return {
        "losses": torch.stack(losses),
        "duals": all_duals(fence, rank, world),
        "summary": fence.summary(),
        "state": dict(fence.state_dict()),
        "bytes": held(fence),
        "rows": {key: len(one) for key, one in fence.multipliers.items()},
    }


def held(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes of all tensors that an object holds, wherever they are in it; each storage once."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        storage = thing.untyped_storage()
        new = storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        return storage.nbytes() if new else 0
    if isinstance(thing, dict):
        return sum(held(one, seen) for one in thing.values())
    if isinstance(thing, (list, tuple)):
        return sum(held(one, seen) for one in thing)
    inside = getattr(thing, "__dict__", None)
    return 0 if inside is None or type(thing).__module__.startswith("torch") else held(inside, seen)


def run(rank: int, world: int, folder: str) -> None:
    """Everything once, and what came out of it in a file."""
    early = fence_of("Lagrangian", samples=SAMPLES, sharded=True)
    early(index=torch.arange(2), a=torch.ones(2, requires_grad=True))
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet{world}", rank=rank, world_size=world)
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        f"{name}, {'each' if each else 'epoch'}, {'sharded' if sharded else 'replicated'}": trained(
            name, rank, world, sharded, each
        )
        for name in names(world)
        for each in (False, True)
        for sharded in (False, True)
    }
    results["saved"] = saved(rank, world, Path(folder), {1: (1,), 2: (1, 2), 4: (1, 2)}[world])
    results["memory"] = memory()
    results["begun too early"] = message(early, index=torch.arange(2), a=torch.ones(2, requires_grad=True))
    results["other constraints"] = other_constraints(rank)
    results["the state of another rank"] = state_of_another(rank)
    results["sent"] = {samples: sent(rank, world, samples) for samples in (1_000, 100_000)}
    results["sent, sharded"] = {samples: sent(rank, world, samples, sharded=True) for samples in (1_000, 100_000)}
    results["changed later"] = changed_later(rank)
    results["everybody sees everything"] = everything(rank, world)
    results["moved"] = moved(rank, world)
    results["observed"] = observed(rank, world)
    torch.save(results, Path(folder) / f"rank{rank}of{world}.pt")
    if world > 1:
        dist.destroy_process_group()


def saved(rank: int, world: int, folder: Path, others: tuple[int, ...]) -> dict[str, Any]:
    """Save at an epoch's end and in the middle of one; then go on from the states of other numbers of ranks."""
    found: dict[str, Any] = {}
    for name in names(world):
        fence = fence_of(name, samples=SAMPLES, sharded=True)
        calls(fence, 0, rank, world, each=False)
        fence.step()
        after = fence.state_dict()
        calls(fence, 1, rank, world, each=False, only=slice(2))
        middle = fence.state_dict()
        calls(fence, 1, rank, world, each=False, only=slice(2, None))
        fence.step()
        found[name] = fence.state_dict()
        if rank == 0:
            for what, state in (("after", after), ("middle", middle)):
                torch.save(state, folder / f"{name} {what} of {world}.pt")
        for before in (one for one in others if name in names(one)):
            if world > 1:
                dist.barrier()
            for what in ("after", "middle"):
                state = torch.load(folder / f"{name} {what} of {before}.pt", weights_only=True)
                for sharded in (True, False):
                    if what == "middle" and not sharded and world > 1:
                        continue  # unsharded ranks would each believe to have seen it all
                    fence = fence_of(name, samples=SAMPLES, sharded=sharded)
                    fence.load_state_dict(state)
                    calls(fence, 1, rank, world, each=False, only=slice(2 if what == "middle" else 0, None))
                    fence.step()
                    found[f"{name}, {what} of {before}, {sharded}"] = fence.state_dict()
    return found


def memory() -> dict[str, int]:
    """Bytes that a fence by Adam holds after a step, for many data points."""
    fence = rf.Lagrangian(dual_optimiser=partial(torch.optim.Adam, lr=0.1), samples=40_000, sharded=True)
    fence(index=torch.arange(4), a=torch.ones(4, 2, requires_grad=True))
    fence.step()
    return {"held": held(fence), "rows": len(fence.multipliers["a"])}


def other_constraints(rank: int) -> str:
    fence = rf.Lagrangian(samples=4, sharded=True)
    return message(fence, index=torch.arange(2), **{f"limit{rank}": torch.ones(2, requires_grad=True)})


def state_of_another(rank: int) -> str:
    fence = rf.Lagrangian(samples=4, sharded=True)
    fence(index=torch.arange(2), a=torch.ones(2, requires_grad=True))
    state = fence.state_dict()
    try:
        rf.Lagrangian(samples=4, sharded=True).load_state_dict(state)
    except RuntimeError as error:
        return str(error)
    return "no error"


def sent(rank: int, world: int, samples: int, sharded: bool = False) -> dict[str, int]:
    """Bytes that this rank hands over, and table entries that it reads for the comparison, in a later step."""
    fence = rf.Lagrangian(samples=samples, sharded=sharded)
    rows = torch.arange(8) * 7 + rank
    taken = {"bytes": 0, "entries": 0}
    with mock.patch.multiple(
        dist,
        all_gather=partial(counted, dist.all_gather, taken, 1),
        all_reduce=partial(counted, dist.all_reduce, taken, 0),
        all_to_all_single=partial(counted, dist.all_to_all_single, taken, 1),
    ):
        for step in range(3):
            if step == 2:
                taken["bytes"] = 0
            reads = mock.patch.object(
                indexed, "fingerprint", partial(read, plain_fingerprint, taken if step == 2 else {"entries": 0})
            )
            with reads:
                fence(index=rows, a=torch.ones(8, requires_grad=True))
                fence.step()
    return taken


plain_fingerprint = indexed.fingerprint


def counted(function: Any, taken: dict[str, int], position: int, *arguments: Any, **options: Any) -> Any:
    taken["bytes"] += arguments[position].nbytes
    return function(*arguments, **options)


def read(function: Any, taken: dict[str, int], values: Tensor, *arguments: Any) -> Tensor:
    taken["entries"] += values.numel()
    return function(values, *arguments)


def changed_later(rank: int) -> str:
    """After some steps, on one rank and in place: the comparison keeps up."""
    fence = rf.Lagrangian(samples=50)
    for step in range(4):
        fence(index=torch.arange(3) + 10 * rank, a=torch.ones(3, requires_grad=True))
        if step == 3 and rank == 1:
            fence.multipliers["a"][40] = 1e-3
        try:
            fence.step()
        except ValueError as error:
            return f"{step}: {error}"
    return "no error"


def everything(rank: int, world: int) -> Tensor:
    """Every rank sees every data point: whole tables are added up."""
    fence = rf.Lagrangian(samples=40)
    with mock.patch.object(ranks, "merged", side_effect=AssertionError):
        for _ in range(2):
            fence(index=torch.arange(40), a=torch.full((40, 2), 1.0 + rank, requires_grad=True))
            fence.step()
    return fence.multipliers["a"].clone()


def observed(rank: int, world: int) -> Tensor:
    """The paper's pass over the data waits for nobody: ranks may observe unlike numbers of batches, or none."""
    fence = rf.Lagrangian(samples=12, sharded=True)
    fence(index=torch.arange(rank, 12, world), a=torch.ones(len(range(rank, 12, world)), requires_grad=True))
    batches = [torch.arange(12)] if world == 1 else torch.arange(12).split(5) if rank == 0 else []
    for rows in batches:
        with torch.inference_mode():
            fence.observe(index=rows, a=rows.float())
    fence.step()
    return fence.multipliers["a"].clone()


def moved(rank: int, world: int) -> Tensor:
    """``.to()`` in the middle of an epoch, and a copy, talk to nobody and lose nothing."""
    import copy

    fence = rf.Lagrangian(samples=6, sharded=True)
    fence(index=torch.arange(3) + 3 * (rank % 2), a=torch.ones(3, requires_grad=True))
    if rank == 0:
        fence = copy.deepcopy(fence.to("cpu").half())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fence.step()
    return fence.multipliers["a"].clone()


def message(fence: Any, **call: Any) -> str:
    try:
        fence(**call)
    except ValueError as error:
        return str(error)
    return "no error"


def run_on_a_gpu(rank: int, world: int, folder: str) -> None:
    """Residuals on a GPU, ranks that talk through the CPU; the same with all of it on the CPU."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-gpu", rank=rank, world_size=world)
    found: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        for sharded in (False, True):
            fence = rf.Lagrangian(dual_optimiser=partial(rf.NuPI, lr=0.3, kp=2.0), samples=30, sharded=sharded)
            losses = []
            for step in range(6):
                random = torch.Generator().manual_seed(step)
                index = torch.randperm(30, generator=random)[: 9 - step].tensor_split(world)[rank].to(device)
                f = torch.randn(30, 3, generator=random).to(device)[index].requires_grad_()
                losses.append(fence(a=rf.at_most(f, 0.0), index=index).detach().cpu())
                fence.step()
            state = {key: one.cpu() for key, one in fence.state_dict().items()}
            found[f"{device}, {sharded}"] = {"losses": torch.stack(losses), "state": state}
    torch.save(found, Path(folder) / f"gpu-rank{rank}.pt")
    dist.destroy_process_group()
