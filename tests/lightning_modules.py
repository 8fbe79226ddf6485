"""The same small module for both Lightning namespaces, and a script that trains it on two ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.lightning import FenceCallback


def data(count: int = 16) -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    return TensorDataset(torch.arange(count), torch.randn(count, 3, generator=generator))


def loader() -> DataLoader[Any]:
    return DataLoader(data(), batch_size=4)


def module(pl: ModuleType, fence: rf.Method, scores: list[float] | None = None) -> Any:
    """A module of the given namespace; its logged score follows ``scores``, epoch by epoch."""

    class Fenced(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.network = nn.Linear(3, 1)
            self.fence, self.monitor = fence, rf.Monitor()
            self.t_seen: list[float] = []
            self.stable: list[float] = []

        def limits(self, x: Tensor) -> rf.Residual:
            return rf.between(self.network(x)[:, 0], -0.2, 0.4)

        def training_step(self, batch: list[Tensor]) -> Tensor:
            if isinstance(self.fence, rf.LogBarrier):
                self.t_seen.append(self.fence.t)
            return self.fence(size=self.limits(batch[1]), index=batch[0])

        def validation_step(self, batch: list[Tensor]) -> None:
            self.monitor.update(size=self.limits(batch[1]), index=batch[0])
            score = scores[self.current_epoch] if scores else 0.0
            self.log("score", score, sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    return Fenced()


def trainer(pl: ModuleType, folder: Path, callbacks: list[Any], epochs: int, **options: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    return pl.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=callbacks,
        **{**quiet, "enable_checkpointing": False, **options},
    )


def two_ranks(folder: str) -> None:
    """Train on two ranks and write down what rank 0 ended with."""
    import pytorch_lightning as pl

    keeper = FenceCallback(score="score", satisfaction=0.0, dirpath=folder)
    model = module(pl, rf.Lagrangian(dual_lr=0.5, samples=16), scores=[1.0, 3.0, 2.0])
    run = trainer(pl, Path(folder), [keeper], 3, strategy="ddp", devices=2)
    run.fit(model, loader(), loader())
    result = {
        "multipliers": model.fence.multipliers["size"].tolist(),
        "satisfaction": run.callback_metrics["fence/satisfaction"].item(),
        "stability": run.callback_metrics["fence/stability"].item(),
        "best": [keeper.best_score, Path(keeper.best_path).name],
    }
    Path(folder, f"rank{run.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    two_ranks(sys.argv[1])
