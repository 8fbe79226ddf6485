"""Training that diverges: what is stopped, what is remarked upon, what is kept; and that nothing else is."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from rich.console import Console
from safetensors import safe_open
from torch import Tensor, nn

import ringfence as rf
from prepared_sets import make_prepared
from ringfence.lightning import FenceCallback
from ringfence.weak import Constraint, SegmentationData, TrainSettings, compare, from_preset, train
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.settings import DiscSettings
from ringfence.weak.training.divergence import (
    BEHIND,
    FILE,
    Diverged,
    Step,
    Watch,
    check_strengths,
    largest_weight,
    samples_of,
)
from ringfence.weak.training.fit import quiet_lightning
from ringfence.weak.training.methods import METHODS, LogBarrier, Penalty, Setup
from ringfence.weak.training.module import WeakSegmentation

TASK = disc_task(DiscSettings(size=24, train=6, validation=4), seed=3)
TINY = {
    "network.class_path": "torch.nn.Conv2d",
    "network.init_args": {"kernel_size": 5, "padding": 2},
    "training.epochs": 2,
    "training.batch_size": 2,
    "training.device": "cpu",
    "augment.flip": [],
}


def step(loss: float, supervised: float = 0.0) -> Step:
    batch = {"image": torch.zeros(2, 1, 4, 4), "index": torch.tensor([5, 3])}
    return Step(1, 1, torch.tensor([loss, supervised]), batch, {})


@pytest.mark.parametrize(
    ("losses", "stopped"),
    [
        ([math.nan], True),
        ([1.0, math.inf], True),
        ([-math.inf], True),
        ([2e18], True),
        ([1e17, -1e17, 0.0], False),  # a barrier of t = 1e8 over ten million voxels has 1e15
    ],
)
def test_losses_that_mean_nothing(losses: list[float], stopped: bool) -> None:
    watch = Watch()
    assert any(watch.see(step(loss)) is not None for loss in losses) is stopped


def test_cross_entropy_may_grow_a_million_times() -> None:
    watch = Watch()
    assert not [loss for loss in [0.7] * 20 + [5e5, 9.9e5] if watch.see(step(loss, loss))]
    assert watch.see(step(1.1e6, 1.1e6)) is not None


def test_samples_are_named_and_the_broken_ones_alone_if_they_are_known() -> None:
    names = [f"slice {number} of P0" for number in range(6)]
    assert samples_of(step(1.0), names) == ["slice 5 of P0", "slice 3 of P0"]
    assert samples_of(step(1.0), []) == ["sample 5", "sample 3"]
    broken = rf.at_most(torch.tensor([1.0, math.nan]), 1.0)
    assert samples_of(replace(step(1.0), residuals={"size": broken}), names) == ["slice 3 of P0"]


class Explodes(Constraint):
    """Is not a number from the second epoch on."""

    calls = 0

    def residual(self, region: Any, targets: Any, unit: Any) -> rf.Residual:
        Explodes.calls += 1
        inside = region.probabilities.flatten(1).sum(dim=1)
        return rf.at_most(inside * (math.nan if Explodes.calls > 5 else 1.0), 1.0)


def settings(path: Path, **changes: Any) -> TrainSettings:
    return from_preset(TrainSettings, "boxes-small", TINY | {"data.prepared": str(path)} | changes)


def test_a_loss_that_is_no_number_stops_with_all_that_is_needed(tmp_path: Path) -> None:
    """Epoch, step, samples, constraint, t, what to do; the batch in a file; the checkpoint of the epoch before."""
    make_prepared(tmp_path / "set", cases=2)
    asked = settings(tmp_path / "set", constraints={"outside": {}, "own": Explodes()})
    Explodes.calls = 0
    with pytest.raises(Diverged) as caught:
        train(asked, tmp_path / "run", progress=False)
    said = str(caught.value)
    assert said.startswith(
        "training diverged in epoch 2, step 2: the loss is not finite (nan), and its largest term is constraints.own's"
    )
    assert "; t = " in said
    assert " of case0" in said
    assert f"The batch is in {tmp_path / 'run' / FILE}. Lower training.lr (it was " in said
    assert len(said.splitlines()) == 1
    assert (tmp_path / "run" / "last.ckpt").exists()
    with safe_open(tmp_path / "run" / FILE, "pt") as kept:
        facts = kept.metadata()
        index = kept.get_tensor("index")
        assert kept.get_tensor("image").shape == (2, 1, 24, 20)
        assert kept.get_tensor("residual/own").isnan().all()
    assert (facts["epoch"], facts["step"], facts["method"], facts["seed"]) == ("2", "2", "LogBarrier", "0")
    assert facts["samples"] == "[" + ", ".join(f'"slice {one} of case0"' for one in index.tolist()) + "]"
    Explodes.calls = -1000
    train(asked, tmp_path / "run", resume=True, progress=False)
    assert not (tmp_path / "run" / FILE).exists()


def test_a_learning_rate_of_a_million_is_remarked_upon(tmp_path: Path) -> None:
    """D13: it ended with exit 0 and without a word."""
    make_prepared(tmp_path / "set", cases=2)
    console = Console(record=True, width=400, file=io.StringIO())
    train(settings(tmp_path / "set", **{"training.lr": 1e6}), tmp_path / "run", console=console)
    said = [
        line for line in console.export_text().splitlines() if "training diverged: there are weights of" in line
    ]
    assert len(said) == 2  # when it was found, and at the end
    assert "Lower training.lr (it was 1e+06) or let t grow more slowly" in said[0]
    with pytest.warns(UserWarning, match="training diverged: there are weights of"):
        train(settings(tmp_path / "set", **{"training.lr": 1e6}), tmp_path / "quiet", progress=False)


@pytest.mark.parametrize("field", ["t", "final_t"])
def test_t_beyond_its_cap_is_refused(field: str) -> None:
    """D13: final_t 1e30 was silently capped at 1e8."""
    with pytest.raises(ValueError, match=rf"{field} 1e\+30 is above 1e\+08, which t never exceeds"):
        LogBarrier(**{"mu": None, "final_t": 1e30, field: 1e30})


def test_growth_beyond_the_cap_is_said_at_the_start() -> None:
    setup = Setup(10, 50)
    assert LogBarrier(t=1.0, mu=10.0).remarks(setup) == [
        "t would grow to 1e49 in 50 epochs, and stays at 1e+08: lower mu 10"
    ]
    assert Penalty(mu=2.0).remarks(setup) == ["γ would grow to 1e15 in 50 epochs, and stays at 1e+08: lower mu 2"]
    assert METHODS["augmented_lagrangian"](mu=2.0).remarks(setup)
    assert not [one for kind in METHODS.values() for one in kind().remarks(setup)]


def test_multipliers_beyond_float32_name_constraint_and_sample() -> None:
    fence = rf.Lagrangian(1.0, samples=3)
    fence(index=torch.arange(3), size=rf.at_most(torch.tensor([1.0, 2.0, 3.0], requires_grad=True), 0.0))
    fence.step()
    check_strengths(fence, 1, ["a", "b", "c"])
    fence.multipliers["size"] = torch.tensor([1.0, 1e17, 3.0])
    with pytest.raises(
        Diverged, match=r"epoch 4: .*size is .*e\+1[67], beyond .* \(b has the largest\)\. Lower training"
    ):
        check_strengths(fence, 4, ["a", "b", "c"])


def test_weights_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    """Not even where the loss of the last step was still sound."""

    class Breaks(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                next(pl_module.network.parameters()).data.fill_(math.inf)

    torch.manual_seed(0)
    module = WeakSegmentation.of(TASK, nn.Conv2d(1, 2, 3, padding=1), rf.LogBarrier(1.0))
    keeper = pl.callbacks.ModelCheckpoint(tmp_path, "last", save_on_train_epoch_end=True)
    with quiet_lightning():
        trainer = pl.Trainer(
            max_epochs=3,
            accelerator="cpu",
            callbacks=[FenceCallback(), Breaks(), keeper],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
            default_root_dir=tmp_path,
        )
        with pytest.raises(Diverged, match="epoch 2: there are weights that are not finite"):
            trainer.fit(module, datamodule=SegmentationData(TASK, 3))
    kept = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert all(bool(one.isfinite().all()) for one in kept["state_dict"].values() if isinstance(one, Tensor))


def test_a_comparison_goes_on_with_the_other_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that diverges does not take the others along; the exit is still an error."""
    from ringfence.weak.experiments import compare as module

    real = module.train_one

    def breaks(settings: Any, task: Any, method: str, *rest: Any) -> None:
        if method == "penalty":
            raise Diverged("training diverged in epoch 1")
        real(settings, task, method, *rest)

    monkeypatch.setattr(module, "train_one", breaks)
    changes = {name: value for name, value in TINY.items() if not name.startswith("augment")}
    changes |= {"data.size": 16, "data.train": 4, "data.validation": 2, "methods": ["penalty", "log_barrier"]}
    asked = from_preset(SyntheticSettings, "synthetic-small", changes)
    with pytest.raises(
        Diverged, match=r"1 of 2 trainings diverged; `ringfence report .*` shows the others:\n  seed 0, pen"
    ):
        compare(asked, tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "seed-0" / "log_barrier" / "result.json").exists()


def test_no_method_alarms_anybody(tmp_path: Path) -> None:
    """All of them, with the settings they have, on a tiny comparison: warnings are errors here."""
    changes = {
        "data.size": 32,
        "data.train": 16,
        "data.validation": 4,
        "training.epochs": 5,
        "training.device": "cpu",
    }
    asked = from_preset(SyntheticSettings, "synthetic-small", changes)
    console = Console(record=True, width=300, file=io.StringIO())
    compare(asked, tmp_path / "run", console=console)
    assert "diverged" not in console.export_text()
    assert "would grow" not in console.export_text()


def test_the_heaviest_weight() -> None:
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, -7.0], [2.0, 3.0]]))
        network.bias.zero_()
    assert largest_weight(network) == 7.0
    assert BEHIND >= 1


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [False, True])
def test_a_gpu_finds_the_very_step_without_waiting(tmp_path: Path, graphs: bool) -> None:
    """The loss is known steps later; batch and residuals are those of its step, also when replayed from graphs."""
    task = disc_task(DiscSettings(size=32, train=160, validation=4), seed=0)
    poisoned = {name: tensor.clone() for name, tensor in task.train.items()}
    poisoned["size_low"][77] = math.nan
    task = replace(task, train=poisoned, names=tuple(f"image {number}" for number in range(160)))
    fence = rf.LogBarrier(1.0, reduction="batchmean", validate=False)
    module = WeakSegmentation.of(task, nn.Conv2d(1, 2, 3, padding=1), fence, seed=0, cuda_graphs=graphs)
    with quiet_lightning():
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cuda",
            devices=1,
            callbacks=[FenceCallback()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
            default_root_dir=tmp_path,
        )
        with pytest.raises(Diverged, match=r"constraints\.size's \(nan\).* Samples: image 77\. "):
            trainer.fit(module, datamodule=SegmentationData(task, 8))
    with safe_open(tmp_path / FILE, "pt") as kept:
        assert 77 in kept.get_tensor("index").tolist()
        assert kept.get_tensor("residual/size").isnan().any()
        assert not kept.get_tensor("residual/centroid").isnan().any()
