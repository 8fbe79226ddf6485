"""What each rank does in test_metrics.py: importable by the processes that it starts."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ringfence.weak.training.measures import Dice


def batches(cases: bool) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Four batches of three images; with ``cases``, the slices of a patient are in several of them."""
    random = torch.Generator().manual_seed(0)
    made = []
    for number in range(4):
        logits = torch.randn(3, 3, 6, 5, generator=random)
        batch = {"mask": torch.rand(3, 2, 6, 5, generator=random) < 0.4}
        if cases:
            batch["case"] = torch.tensor([0, 1 + number % 2, 3])
        made.append((logits, batch))
    return made


def run(rank: int, world: int, folder: str) -> None:
    """Count this rank's batches, and write down what comes out of all."""
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.set_num_threads(1)
    everything = batches(cases=True)
    results = {
        "by patient": computed(everything[rank::world]),
        "by image": computed(batches(cases=False)[rank::world]),
        "uneven": computed(everything if world == 1 else everything[:1] if rank == 0 else everything[1:]),
    }
    torch.save(results, Path(folder) / f"rank{rank}of{world}.pt")
    if world > 1:
        dist.destroy_process_group()


def computed(parts: list[tuple[Tensor, dict[str, Tensor]]]) -> dict[str, Tensor]:
    metric = Dice()
    for logits, batch in parts:
        metric.update(logits, batch)
    return metric.compute()
