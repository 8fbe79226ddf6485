"""Recorded steps without a GPU: a stand-in for CUDA graphs runs what would be recorded, and the training is the same."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from prepared_sets import make_prepared
from ringfence.weak import TrainSettings, from_preset
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.fit import make_callback, make_data, make_module, quiet_lightning
from ringfence.weak.training.gpu import recording, steps
from ringfence.weak.training.history import History
from ringfence.weak.training.methods import METHODS


class Stand:
    """In place of CUDA graphs: the same questions, and the step itself as the answer."""

    replays = 0

    def __init__(
        self,
        network: nn.Module,
        losses: Any,
        sample: Mapping[str, Tensor],
        dtype: Any,
        optimiser: Any,
        touched: Sequence[Tensor],
        before: Any,
    ) -> None:
        self.network, self.losses, self.optimiser = network, losses, optimiser
        self.shapes = {name: one.shape for name, one in sample.items()}
        self.gradients: list[Tensor | None] = []
        kept = [*network.parameters(), *network.buffers(), *touched]
        saved = [one.detach().clone() for one in kept]
        if optimiser is not None:
            with optimiser.recorded():
                self(sample)
        else:
            self(sample)
        Stand.replays -= 1
        with torch.no_grad():
            for one, value in zip(kept, saved, strict=True):
                one.copy_(value)

    def fits(self, batch: Mapping[str, Tensor]) -> bool:
        as_recorded = self.optimiser is None or self.optimiser.as_recorded()
        return as_recorded and {name: one.shape for name, one in batch.items()} == self.shapes

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        Stand.replays += 1
        self.network.zero_grad()
        loss, rest = self.losses(batch)
        loss.backward()
        told = rest()
        self.gradients = [one.grad for one in self.network.parameters()]
        if self.optimiser is not None:
            self.optimiser.step()
        self.network.zero_grad()
        return told.clone()


class OnTheGPU:
    """Records as on a GPU; the stand-in needs none."""

    @staticmethod
    def begin(module: Any) -> None:
        module.on_fit_start = lambda: steps.take_numbers(module)
        module.on_train_start = lambda: steps.record_steps(module)


class Looks(pl.Callback):
    """Wants to see gradients before they are used."""

    seen = 0

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        Looks.seen += any(one.grad is not None for one in pl_module.network.parameters())


def trained(folder: Path, method: str, recorded: bool, name: str = "", **more: Any) -> tuple[list[float], Any]:
    asked = from_preset(
        TrainSettings,
        "boxes-small",
        {"data.prepared": str(folder / "set"), "method": method, "training.batch_size": 6, **more.pop("set", {})},
    )
    task = box_task(asked.data, asked.constraints)
    module = make_module(asked, task, method, seed=0)
    if recorded:
        module.cuda_graphs = True
        OnTheGPU.begin(module)
    out = folder / f"{method}-{recorded}{name}"
    out.mkdir()
    with quiet_lightning():
        trainer = pl.Trainer(
            accelerator="cpu",
            precision="64-true",  # what differs is a fault, not rounding
            max_epochs=more.pop("epochs", 2),
            callbacks=[make_callback(method), History(out), *more.pop("callbacks", [])],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=out,
        )
        data = make_data(asked, task, module, 0)
        trainer.fit(module, datamodule=data, weights_only=True, **more)
        trainer.save_checkpoint(out / "last.ckpt")
    assert not data.numbers_only
    assert module.recording.rows is None
    with (out / "metrics.csv").open() as lines:
        return [float(row["train_loss"]) for row in csv.DictReader(lines)], module


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recording, "Graphed", Stand)
    make_prepared(tmp_path / "set", cases=5, shape=(5, 32, 32))
    Stand.replays = 0
    return tmp_path


def same_weights(one: Any, other: Any) -> None:
    expected = other.state_dict()
    assert one.state_dict().keys() == expected.keys()
    for name, mine in one.state_dict().items():
        # the gradient of a bias before batch norm is rounding alone, which Adam makes steps of
        if isinstance(mine, Tensor) and not name.endswith("conv.bias"):
            assert mine.dtype == expected[name].dtype
            assert torch.allclose(mine, expected[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_train_as_plain_ones(stand_in: Path, method: str) -> None:
    """Samples are gathered by number, and augmented, within what is recorded; 20 images: the last batch has two.

    Weights, the optimiser's moments and all that the fence keeps are the same afterwards.
    """
    found, module = trained(stand_in, method, recorded=True)
    assert Stand.replays == 2 * 4
    expected, plain = trained(stand_in, method, recorded=False)
    assert found == pytest.approx(expected, rel=1e-6)
    same_weights(module, plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimiser.class_path": "torch.optim.SGD", "optimiser.init_args": {"momentum": 0.9}},
        {"optimiser.class_path": "torch.optim.AdamW", "optimiser.init_args": {"weight_decay": 0.1}},
        {  # also moves the first of the betas, which no graph reads anew
            "schedule.class_path": "torch.optim.lr_scheduler.OneCycleLR",
            "schedule.init_args": {"max_lr": 0.01},
        },
    ],
    ids=["no graph can hold it", "weight decay", "betas that change"],
)
def test_other_optimisers_and_schedules(stand_in: Path, changes: dict[str, Any]) -> None:
    found, module = trained(stand_in, "log_barrier", recorded=True, set=changes, epochs=3)
    expected, plain = trained(stand_in, "log_barrier", recorded=False, set=changes, epochs=3)
    assert found == pytest.approx(expected, rel=1e-6)
    same_weights(module, plain)


def test_who_looks_at_gradients_sees_them(stand_in: Path) -> None:
    Looks.seen = 0
    found, module = trained(stand_in, "penalty", recorded=True, callbacks=[Looks()])
    assert Stand.replays == Looks.seen == 2 * 4
    expected, plain = trained(stand_in, "penalty", recorded=False)
    assert found == pytest.approx(expected, rel=1e-6)
    same_weights(module, plain)


@pytest.mark.parametrize("method", ["lagrangian", "relu_lagrangian", "augmented_lagrangian", "log_barrier"])
def test_a_recorded_training_is_resumed_as_it_was(stand_in: Path, method: str) -> None:
    """Graphs are made of what a checkpoint had: weights, moments, multipliers."""
    length = {"schedule.class_path": None}
    whole, expected = trained(stand_in, method, recorded=True, set=length, epochs=3)
    trained(stand_in, method, recorded=True, name="-first", set=length, epochs=2)
    checkpoint = stand_in / f"{method}-True-first" / "last.ckpt"
    found, module = trained(
        stand_in, method, recorded=True, name="-second", set=length, epochs=3, ckpt_path=checkpoint
    )
    assert found == pytest.approx(whole, rel=1e-6)
    same_weights(module, expected)


def test_nothing_recorded_nothing_replayed() -> None:
    batch = {"image": torch.zeros(2, 1, 4, 4), "index": torch.arange(2)}
    empty = recording.Recording()
    assert empty.replayed(batch) is None
    assert empty.gathered(batch).keys() == batch.keys()
