"""Lightning: learn from intervals alone. Every data point says "between low and high", none says the answer.

The fence and the monitor are attributes of the module, so they move and are saved with it; FenceCallback steps the
one, logs the other, and keeps the best checkpoint among the epochs in which nearly all constraints held.

    python examples/lightning_loop.py [--epochs 20] [--out runs/lightning_loop]
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.lightning import FenceCallback

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def intervals(count: int, seed: int) -> TensorDataset:
    """Index, x in the unit square, the bounds of an interval of width 0.4 that holds the truth, and the truth."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 2, generator=generator)
    truth = torch.sin(4.0 * x[:, 0]) * x[:, 1]
    low = truth - 0.4 * torch.rand(count, generator=generator)
    return TensorDataset(torch.arange(count), x, low, low + 0.4, truth)


class IntervalRegression(pl.LightningModule):
    """A small network whose only loss is the fence's."""

    def __init__(self, fence: rf.Method) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.fence = fence
        self.monitor = rf.Monitor()

    def training_step(self, batch: Batch) -> Tensor:
        """The fence's call."""
        index, x, low, high, _ = batch
        loss: Tensor = self.fence(interval=rf.between(self.network(x)[:, 0], low, high), index=index)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Batch) -> None:
        """The monitor's update, and a score that the training never sees."""
        index, x, low, high, truth = batch
        output = self.network(x)[:, 0]
        self.monitor.update(interval=rf.between(output, low, high), index=index)
        self.log("val_error", (output - truth).abs().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, as ever."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    """Train, and say what was kept."""
    parser = argparse.ArgumentParser(description="A Lightning module under hard limits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning_loop"))
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(0, verbose=False)
    keeper = FenceCallback(score="val_error", mode="min", satisfaction=0.95, dirpath=options.out)
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        accelerator="cpu",
        callbacks=[keeper],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=options.out,
    )
    trainer.fit(
        IntervalRegression(rf.LogBarrier(t=5.0, mu=1.1, reduction="batchmean")),
        DataLoader(intervals(1000, seed=0), batch_size=32, shuffle=True),
        DataLoader(intervals(200, seed=1), batch_size=100),
    )
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    print("after the last epoch:")
    for name in ("val_error", "fence/satisfaction", "fence/stability", "fence/worst", "fence/t"):
        print(f"  {name:<20} {logged[name]:.4f}")
    if keeper.best_path:
        print(f"best feasible model: {keeper.best_path} (val_error {keeper.best_score:.4f})")
    else:
        print(f"no epoch reached a satisfaction of {keeper.satisfaction:.0%}: train longer (--epochs)")


if __name__ == "__main__":
    main()
