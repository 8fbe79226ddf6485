"""What each rank of the distributed tests does; the same code with one process is what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringfence as rf

SAMPLES, EPOCHS = 9, 4

FENCES = {
    "barrier": lambda: rf.LogBarrier(t=2.0, mu=1.5),
    "penalty": lambda: rf.Penalty(),
    "Lagrangian": lambda: rf.Lagrangian(dual_lr=0.5, samples=SAMPLES),
    "Lagrangian shared": lambda: rf.Lagrangian(dual_lr=0.5, shared=True, initial=1.0),
    "ReLU Lagrangian": lambda: rf.ReLULagrangian(dual_lr=0.5, interval=None),
    "ReLU Lagrangian by calls": lambda: rf.ReLULagrangian(dual_lr=0.5, interval=2, growth=1),
    "augmented": lambda: rf.AugmentedLagrangian(rho=0.5, samples=SAMPLES),
}


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
    results = {name: train(rank, world, FENCES[name]()) for name in FENCES}
    results["late rank"] = late_rank(rank, world)
    results["empty monitor"] = empty_monitor(rank, world)
    torch.save(results, Path(folder) / f"rank{rank}of{world}.pt")
    if world > 1:
        dist.destroy_process_group()


def train(rank: int, world: int, fence: rf.Method) -> dict[str, Any]:
    torch.manual_seed(0)
    module = Fenced(fence)
    x = torch.randn(SAMPLES, 3)
    model = DistributedDataParallel(module) if world > 1 else module
    optimiser = torch.optim.SGD(module.network.parameters(), lr=0.05)
    losses, measures = [], []
    for epoch in range(EPOCHS):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(())
        for batch in order[: SAMPLES - 1].split(4):  # the sample left out differs each epoch
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
        "multipliers": getattr(fence, "multipliers", {}),
    }


def late_rank(rank: int, world: int) -> Tensor:
    """Only rank 0 has any data in the first epoch; the others must still learn the multipliers."""
    fence = rf.Lagrangian(dual_lr=1.0, samples=4, initial=0.5)
    if rank == 0:
        fence(a=torch.tensor([[1.0], [2.0]], requires_grad=True), index=torch.tensor([1, 3]))
    fence.step()
    return fence.multipliers["a"]


def empty_monitor(rank: int, world: int) -> dict[str, Tensor]:
    """Only the last rank has anything to show; all must say the same."""
    monitor = rf.Monitor()
    if rank == world - 1:
        monitor.update(a=torch.tensor([-1.0, 1.0, 2.0]), index=torch.arange(3))
    return monitor.compute()
