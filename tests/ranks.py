"""What each rank of the distributed tests does; the same code with one process is what it is compared with."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringfence as rf
from registry import METHODS
from ringfence.checks import Check

DATA, EPOCHS = 9, 4
# every rank has rows of its own, so multipliers by position have no place here
FENCES = {name: entry for name, entry in METHODS.items() if not entry.same_rows}


class Fenced(nn.Module):
    """A model with the fence and the monitor inside, as in a LightningModule: DDP sees all of it."""

    def __init__(self, fence: rf.Method) -> None:
        super().__init__()
        self.network = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2, affine=False)  # a real buffer, so that DDP broadcasts buffers
        self.fence, self.monitor = fence, rf.Monitor()

    def forward(self, x: Tensor) -> Tensor:
        self.norm(self.network(x).detach())
        return self.network(x)


def run(rank: int, world: int, folder: str) -> None:
    """Train with every method on this rank's share of the samples, and write down what came out."""
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.set_num_threads(1)
    results = {
        name: train(rank, world, entry.make(**({"initial": 1.0} if entry.shared else {})))
        for name, entry in FENCES.items()
    }
    results["late rank"] = late_rank(rank, world)
    results["late rank, shared"] = late_rank_of_every_kind(rank, world)
    results["empty monitor"] = empty_monitor(rank, world)
    results["different shapes"] = different_shapes(rank)
    results["uneven calls"] = uneven_calls(rank)
    results["a fault on one rank"] = fault_on_one_rank(rank)
    results["tables of different lengths"] = different_lengths(rank, world)
    results["network"] = network(rank, world)
    results["different names"] = different_names(rank)
    results["nothing seen"] = nothing_seen()
    results["one rank observes"] = one_rank_observes(rank, world)
    results["changed by hand"] = changed_by_hand(rank)
    results["changed in place"] = changed_in_place(rank)
    torch.save(results, Path(folder) / f"rank{rank}of{world}.pt")
    if world > 1:
        dist.destroy_process_group()


def train(rank: int, world: int, fence: rf.Method) -> dict[str, Any]:
    torch.manual_seed(0)
    module = Fenced(fence)
    x = torch.randn(DATA, 3)
    model = DistributedDataParallel(module) if world > 1 else module
    optimiser = torch.optim.SGD(module.network.parameters(), lr=0.05)
    losses, measures = [], []
    for epoch in range(EPOCHS):
        order = torch.randperm(DATA, generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(())
        for batch in order[: DATA - 1].split(4):  # the sample left out differs each epoch
            rows = batch[rank::world]
            loss = fence(size=rf.between(model(x[rows]), -0.1, 0.3), index=rows)
            total += loss.detach()
            optimiser.zero_grad()
            (world * loss).backward()  # DDP averages gradients, the objective is a sum
            optimiser.step()
        fence.step()
        if world > 1:
            dist.all_reduce(total)
        losses.append(total)
        with torch.no_grad():
            rows = order[rank::world]  # any sample on any rank, another one each epoch
            module.monitor.update(size=rf.between(module.network(x[rows]), -0.1, 0.3), index=rows)
        measures.append(module.monitor.compute())
        module.monitor.reset()
    return {
        "weights": module.network.weight.detach(),
        "losses": torch.stack(losses),
        "measures": measures,
        "multipliers": {name: one.clone() for name, one in getattr(fence, "multipliers", {}).items()},
    }


def late_rank(rank: int, world: int) -> Tensor:
    """Only rank 0 has any data in the first epoch; the others must still learn the multipliers."""
    fence = rf.Lagrangian(dual_lr=1.0, samples=4, initial=0.5)
    if rank == 0:
        fence(a=torch.tensor([[1.0], [2.0]], requires_grad=True), index=torch.tensor([1, 3]))
    fence.step()
    return fence.multipliers["a"]


def late_rank_of_every_kind(rank: int, world: int) -> dict[str, Tensor]:
    """The same for shared multipliers: scalars, two-sided ones and equalities."""
    fence = rf.Lagrangian(dual_lr=1.0, shared=True)
    if rank == 0:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        fence(one=rf.at_most(x, 0.5), two=rf.between(x, 0.0, 1.0), equal=rf.equal(x, 4.0))
    fence.step()
    return dict(fence.multipliers)


def different_shapes(rank: int) -> str:
    """Multipliers by position cannot be added up when ranks have different numbers of rows: an error everywhere."""
    fence = rf.Lagrangian(dual_lr=1.0, same_rows=True)
    fence(a=torch.ones(3 + rank, requires_grad=True) * 1.0)
    return message_of(fence)


def uneven_calls(rank: int) -> Tensor:
    """Rank 0 calls three times, rank 1 once; nobody waits for anybody before the step."""
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=1, growth=1, shared=True)
    for _ in range(3 if rank == 0 else 1):
        fence(a=torch.ones(2, requires_grad=True))
    fence.step()
    return fence.multipliers["a"].clone()


def fault_on_one_rank(rank: int) -> str:
    """A check that waits (as on a GPU) and fails on one rank alone must not leave the others in the all-reduce."""
    fence = rf.Lagrangian(dual_lr=1.0)
    fence(a=torch.ones(2, requires_grad=True), index=torch.arange(2))
    if rank == 0:
        fence._ledger.add = lambda *_: None  # not read yet
        with mock.patch.object(Check, "on_cpu", False):
            fence._ledger.__class__.add(
                fence._ledger, "constraint 'a'", rf.at_most(torch.tensor([torch.nan]), 0.0).all_checks()[0]
            )
    return message_of(fence)


def different_lengths(rank: int, world: int) -> Tensor:
    """Each rank has seen other data points, so that their tables are not equally long."""
    fence = rf.Lagrangian(dual_lr=1.0)
    for step in range(2):
        if rank == 0 or world == 1:
            fence(a=torch.full((2,), 1.0, requires_grad=True), index=torch.tensor([0, 2]))
        if rank == 1 or world == 1:
            fence(a=torch.full((1,), 3.0, requires_grad=True), index=torch.tensor([40 + step]))
        fence.step()
    return fence.multipliers["a"].clone()


def network(rank: int, world: int) -> list[Tensor]:
    """Multipliers by a network: its weights are the same everywhere, as if one process had seen all rows."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 1), nn.Softplus())
    fence = rf.Lagrangian(multiplier=module, dual_optimiser=partial(torch.optim.Adam, lr=0.1))
    x, f = torch.randn(8, 2), torch.randn(8)
    for _ in range(3):
        fence(a=f[rank::world].clone().requires_grad_(), index=x[rank::world])
        fence.step()
    return [one.detach().clone() for one in module.parameters()]


def different_names(rank: int) -> str:
    fence = rf.Lagrangian(dual_lr=1.0, shared=True)
    fence(**{f"limit{rank}": torch.ones(1, requires_grad=True)})
    return message_of(fence)


def nothing_seen() -> list[str]:
    fence = rf.Lagrangian(dual_lr=1.0, shared=True).eval()
    fence(a=torch.ones(1, requires_grad=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fence.step()
    return [str(one.message) for one in caught]


def one_rank_observes(rank: int, world: int) -> Tensor:
    """Before its interval is over: the others must come along."""
    fence = rf.ReLULagrangian(dual_lr=1.0, interval=3, shared=True)
    x = torch.ones(2, requires_grad=True)
    fence(a=x)
    if rank == 0:
        fence.observe(a=x)
    fence.step()
    return fence.multipliers["a"].clone()


def changed_by_hand(rank: int) -> str:
    """λ that differ from rank to rank would stay so for ever."""
    fence = rf.Lagrangian(dual_lr=1.0)
    fence(a=torch.ones(2, requires_grad=True), index=torch.arange(2))
    fence.multipliers["a"] = torch.full((2,), 1.0 + rank)
    return message_of(fence)


def changed_in_place(rank: int) -> str:
    """A fault that is found at the step, on one rank alone."""
    fence = rf.Lagrangian(dual_lr=1.0, same_rows=True)
    f = torch.ones(2**22, requires_grad=True) * 1.0
    fence(a=f)
    if rank == 0:
        f.detach().mul_(2.0)
    return message_of(fence)


def message_of(fence: rf.Method) -> str:
    try:
        fence.step()
    except ValueError as error:
        return str(error)
    return "no error"


def empty_monitor(rank: int, world: int) -> dict[str, Tensor]:
    """Only the last rank has anything to show; all must say the same."""
    monitor = rf.Monitor()
    if rank == world - 1:
        monitor.update(a=torch.tensor([-1.0, 1.0, 2.0]), index=torch.arange(3))
    return monitor.compute()
