"""Recorded steps without a GPU: a stand-in for CUDA graphs runs what would be recorded, and the training is the same."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from prepared_sets import make_prepared
from ringfence.weak import TrainSettings, from_preset
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.fit import make_callback, make_data, make_module, quiet_lightning
from ringfence.weak.training.gpu import recording
from ringfence.weak.training.history import History


class Stand:
    """In place of CUDA graphs: the same questions, and the measure itself as the answer."""

    replays = 0

    def __init__(self, network: Any, measure: Any, sample: Mapping[str, Tensor], dtype: Any) -> None:
        self.measure, self.shapes = measure, {name: one.shape for name, one in sample.items()}

    def fits(self, batch: Mapping[str, Tensor]) -> bool:
        return {name: one.shape for name, one in batch.items()} == self.shapes

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        Stand.replays += 1
        return dict(self.measure(batch))


def losses(folder: Path, method: str, recorded: bool) -> list[float]:
    asked = from_preset(
        TrainSettings,
        "boxes-small",
        {"data.prepared": str(folder / "set"), "method": method, "training.batch_size": 6},
    )
    task = box_task(asked.data, asked.constraints)
    module = make_module(asked, task, method, seed=0)
    if recorded:
        module.on_fit_start = lambda: module._record(module.trainer.datamodule)  # type: ignore[method-assign]
    out = folder / f"{method}-{recorded}"
    out.mkdir()
    with quiet_lightning():
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=2,
            callbacks=[make_callback(method), History(out)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=out,
        )
        data = make_data(asked, task, module, 0)
        trainer.fit(module, datamodule=data)
    assert not data.numbers_only
    assert module.recording.rows is None
    with (out / "metrics.csv").open() as lines:
        return [float(row["train_loss"]) for row in csv.DictReader(lines)]


@pytest.mark.parametrize("method", ["log_barrier", "penalty", "lagrangian", "full_supervision"])
def test_recorded_steps_train_as_plain_ones(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are gathered by their numbers, and augmented, within what is recorded; 20 images: the last batch has two."""
    monkeypatch.setattr(recording, "Graphed", Stand)
    make_prepared(tmp_path / "set", cases=5, shape=(5, 32, 32))
    Stand.replays = 0
    found = losses(tmp_path, method, recorded=True)
    assert Stand.replays == 2 * 4
    assert found == pytest.approx(losses(tmp_path, method, recorded=False), rel=1e-6)


def test_nothing_recorded_nothing_replayed() -> None:
    batch = {"image": torch.zeros(2, 1, 4, 4), "index": torch.arange(2)}
    empty = recording.Recording()
    assert empty.replayed(batch) is None
    assert empty.gathered(batch).keys() == batch.keys()
