"""What an epoch measured, row by row: kept in the checkpoint, so that a resumed run has its whole past."""

from __future__ import annotations

import csv
import io
import math
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from ringfence.files import write_text
from ringfence.weak.training.run_folder import METRICS

FENCE = "fence/"


class History(pl.Callback):
    """Writes ``metrics.csv`` anew after each epoch: one row an epoch, everything that was logged in it.

    Lightning's CSVLogger deletes what an interrupted run had written; this one's rows travel in the checkpoint. Put
    it after the FenceCallback: the seconds of an epoch include the dual update. Validation is timed apart.

    Args:
        folder: where the file goes.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.rows: list[dict[str, float]] = []
        self.length: int | None = None
        self._began = self._validating = self._validated = self._rate = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock; the learning rate that the epoch has is gone when it ends."""
        self._validated, self._rate = 0.0, trainer.optimizers[0].param_groups[0]["lr"]
        self._began = _now(pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is timed apart."""
        self._validating = _now(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is timed apart."""
        self._validated += _now(pl_module) - self._validating

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the epoch's row and write the file."""
        seconds = _now(pl_module) - self._began - self._validated
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append(
            {"epoch": trainer.current_epoch + 1, "lr": self._rate}
            | {name.removeprefix(FENCE): value for name, value in sorted(logged.items())}
            | {"seconds_train": seconds, "seconds_validation": self._validated}
        )
        self.length = trainer.max_epochs
        if trainer.is_global_zero:
            write_text(self.folder / METRICS, as_csv(self.rows))

    def state_dict(self) -> dict[str, Any]:
        """The rows so far, and how many there will be."""
        return {"rows": self.rows, "length": self.length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the rows of the run that is resumed."""
        self.rows = [dict(row) for row in state_dict["rows"]]


def as_csv(rows: list[dict[str, float]]) -> str:
    """Rows as CSV with every column that any of them has; nothing where a value is missing or undefined."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({column: _number(value) for column, value in row.items()})
    return text.getvalue()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _now(pl_module: pl.LightningModule) -> float:
    if pl_module.device.type == "cuda":
        torch.cuda.synchronize()  # twice an epoch: what was launched belongs to what launched it
    return time.perf_counter()
