"""On a real GPU: CUDA graphs give the loss and the gradient of plain launches, and every method trains there."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from prepared_sets import make_prepared
from ringfence.weak import (
    AugmentSettings,
    BoxDataSettings,
    SyntheticSettings,
    TrainSettings,
    compare,
    from_preset,
    train,
)
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.training.augmentation import augmented
from ringfence.weak.training.draws import keys
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.loading.data import Batches
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.module import WeakSegmentation

pytestmark = pytest.mark.gpu


def settings(**training: object) -> SyntheticSettings:
    small = from_preset(SyntheticSettings, "synthetic-small")
    return replace(
        small,
        data=replace(small.data, size=32, train=18, validation=5),
        training=replace(small.training, **{"epochs": 2, "batch_size": 4, "device": "cuda"} | training),
    )


def rows(folder: Path, method: str) -> list[dict[str, str]]:
    with (folder / "seed-0" / method / "metrics.csv").open() as lines:
        return list(csv.DictReader(lines))


def on_the_gpu(method: str) -> WeakSegmentation:
    module = make_module(settings(), disc_task(settings().data, 0), method, 0).to("cuda")
    module._trainer = SimpleNamespace(precision="32-true", current_epoch=0)
    return module.train()


@pytest.mark.parametrize("method", METHODS)
def test_a_replayed_step_is_the_plain_one(method: str) -> None:
    plain, graphed = on_the_gpu(method), on_the_gpu(method)
    batches = list(Batches(disc_task(settings().data, 0).train, 4, seed=0, device=torch.device("cuda")))
    before = {name: tensor.clone() for name, tensor in graphed.network.state_dict().items()}
    graphed._record(SimpleNamespace(train_dataloader=lambda: batches))
    for name, tensor in graphed.network.state_dict().items():
        assert torch.equal(tensor, before[name]), f"recording changed {name}"
    for batch in (batches[1], batches[2]):  # not the one that was recorded
        losses = [module.training_step(batch, 0) for module in (plain, graphed)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-5)
        for module, loss in zip((plain, graphed), losses, strict=True):
            module.zero_grad()
            if loss.requires_grad:
                loss.backward()
        for (name, one), other in zip(plain.network.named_parameters(), graphed.network.parameters(), strict=True):
            if one.grad is not None and other.grad is not None:
                scale = float(one.grad.abs().max())
                torch.testing.assert_close(other.grad, one.grad, rtol=1e-2, atol=1e-2 * scale, msg=name)
    assert graphed.recording.replayed(batches[-1]) is None  # 18 images: the last batch has two


def test_a_replayed_step_on_boxes_is_the_plain_one(tmp_path: Path) -> None:
    make_prepared(tmp_path, cases=5, shape=(8, 32, 32), classes=2)
    asked = TrainSettings(data=BoxDataSettings(str(tmp_path)))
    task = box_task(asked.data, asked.constraints)
    modules = []
    for _ in range(2):
        module = make_module(asked, task, "log_barrier", 0).to("cuda").train()
        module._trainer = SimpleNamespace(precision="32-true", current_epoch=0)
        module.augmentation = None  # both must see the same images
        modules.append(module)
    batches = list(Batches(task.train, 8, seed=0, device=torch.device("cuda")))
    modules[1]._record(SimpleNamespace(train_dataloader=lambda: batches))
    losses = [module.training_step(batches[1], 0) for module in modules]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-3)
    for loss in losses:
        loss.backward()
    plain, replayed = (
        torch.cat([weight.grad.flatten() for weight in module.network.parameters()]) for module in modules
    )
    # as a whole: a bias before batch norm has no gradient but rounding
    assert float((replayed - plain).norm()) < 1e-2 * float(plain.norm())


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_every_method_trains_from_graphs(tmp_path: Path, precision: str) -> None:
    folder = compare(settings(precision=precision), tmp_path / "run", console=Console(quiet=True)).path
    for method in METHODS:
        assert all(math.isfinite(float(row["train_loss"])) for row in rows(folder, method))


@pytest.mark.parametrize("method", ["log_barrier", "lagrangian", "full_supervision"])
def test_whole_steps_from_graphs_and_fused_kernels_train_as_plain_launches_do(tmp_path: Path, method: str) -> None:
    """Gathering, augmentation, network and constraints are recorded together: the first epochs are alike."""
    make_prepared(tmp_path / "set", cases=5, shape=(8, 32, 32))
    found = []
    for fast in (True, False):
        asked = from_preset(
            TrainSettings,
            "boxes-small",
            {
                "data.prepared": str(tmp_path / "set"),
                "method": method,
                "training.epochs": 2,
                "training.batch_size": 6,
                "training.precision": "32",
                "training.device": "cuda",
                "training.fused": fast,
                "training.cuda_graphs": fast,
            },
        )
        out = tmp_path / f"fast-{fast}"
        train(asked, out, console=Console(quiet=True))
        with (out / "metrics.csv").open() as lines:
            found.append([float(row["train_loss"]) for row in csv.DictReader(lines)])
    assert found[0] == pytest.approx(found[1], rel=0.03, abs=0.03)


def test_images_are_augmented_as_on_a_cpu() -> None:
    torch.manual_seed(0)
    batch = {
        "image": torch.randint(0, 256, (6, 2, 70, 90), dtype=torch.uint8),
        "mask": torch.rand(6, 2, 70, 90) > 0.5,
        "key": keys(1, 2, torch.arange(6)),
    }
    for asked in (AugmentSettings(), AugmentSettings(flip=["up-down", "left-right"], bias=0.0, noise=0.0)):
        here = augmented(batch, {}, asked)
        there = augmented({name: one.cuda() for name, one in batch.items()}, {}, asked)
        apart = (here["image"].int() - there["image"].cpu().int()).abs()
        assert int(apart.max()) <= 1
        assert float((apart > 0).float().mean()) < 0.01
        assert float((here["mask"] != there["mask"].cpu()).float().mean()) < 1e-3


def test_compile_is_an_option(tmp_path: Path) -> None:
    asked = replace(settings(compile=True), methods=["log_barrier"])
    folder = compare(asked, tmp_path / "run", console=Console(quiet=True)).path
    assert len(rows(folder, "log_barrier")) == 2
