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
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.training.augmentation import augmented
from ringfence.weak.training.draws import keys
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.gpu.answers import Answers
from ringfence.weak.training.gpu.steps import record_steps
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


def trainer_of(batches: list[dict[str, torch.Tensor]], *optimisers: torch.optim.Optimizer) -> SimpleNamespace:
    """What recording asks a Trainer for."""
    return SimpleNamespace(
        precision="32-true",
        current_epoch=0,
        accumulate_grad_batches=1,
        gradient_clip_val=None,
        callbacks=[],
        optimizers=list(optimisers),
        datamodule=SimpleNamespace(train_dataloader=lambda: batches),
    )


def on_the_gpu(method: str, batches: list[dict[str, torch.Tensor]]) -> WeakSegmentation:
    module = make_module(settings(), disc_task(settings().data, 0), method, 0).to("cuda")
    module._trainer = trainer_of(batches)
    return module.train()


def stepped(module: WeakSegmentation, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """A step up to its gradients, as Lightning goes about it."""
    loss = module.training_step(batch, 0)
    module.zero_grad()
    module.backward(loss)
    return loss


@pytest.mark.parametrize("method", METHODS)
def test_a_replayed_step_is_the_plain_one(method: str) -> None:
    batches = list(Batches(disc_task(settings().data, 0).train, 4, seed=0, device=torch.device("cuda")))
    plain, graphed = on_the_gpu(method, batches), on_the_gpu(method, batches)
    before = {name: tensor.clone() for name, tensor in graphed.network.state_dict().items()}
    record_steps(graphed)
    for name, tensor in graphed.network.state_dict().items():
        assert torch.equal(tensor, before[name]), f"recording changed {name}"
    for batch in (batches[1], batches[2]):  # not the one that was recorded
        losses = [stepped(module, batch) for module in (plain, graphed)]
        assert graphed.recording.replaying
        torch.testing.assert_close(losses[1], losses[0].detach(), rtol=1e-3, atol=1e-5)
        for (name, one), other in zip(plain.network.named_parameters(), graphed.network.parameters(), strict=True):
            if one.grad is not None and other.grad is not None:
                scale = float(one.grad.abs().max())
                torch.testing.assert_close(other.grad, one.grad, rtol=1e-2, atol=1e-2 * scale, msg=name)
        if graphed.fence is not None:
            for module in (plain, graphed):
                module.fence.step()
            assert graphed.fence.summary() == pytest.approx(plain.fence.summary(), rel=1e-3, abs=1e-6)
    assert graphed.recording.replayed(batches[-1]) is None  # 18 images: the last batch has two


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_a_replayed_step_moves_the_weights_as_the_optimiser_does(kind: type[torch.optim.Optimizer]) -> None:
    """Two steps at one learning rate and two at another; what was recorded for it left no trace."""
    batches = list(Batches(disc_task(settings().data, 0).train, 4, seed=0, device=torch.device("cuda")))
    plain, graphed = on_the_gpu("log_barrier", batches), on_the_gpu("log_barrier", batches)
    mine, theirs = (kind(one.network.parameters(), lr=1e-3, fused=True) for one in (plain, graphed))
    graphed._trainer = trainer_of(batches, theirs)
    record_steps(graphed)
    assert graphed.recording.steps
    for number, batch in enumerate(batches[:4]):
        for optimiser in (mine, theirs):
            optimiser.param_groups[0]["lr"] = 1e-3 if number < 2 else 1e-4
        stepped(plain, batch)
        mine.step()
        stepped(graphed, batch)
    for (name, one), other in zip(plain.network.named_parameters(), graphed.network.parameters(), strict=True):
        if not name.endswith("conv.bias"):  # before batch norm: its gradient is rounding, of which Adam makes steps
            assert float((one - other).detach().norm()) < 0.02 * 4 * 1e-3 * one.numel() ** 0.5, name
    assert all(float(one["step"]) == 4.0 for one in theirs.state.values())


def test_a_replayed_step_on_boxes_is_the_plain_one(tmp_path: Path) -> None:
    make_prepared(tmp_path, cases=5, shape=(8, 32, 32), classes=2)
    asked = TrainSettings(data=BoxDataSettings(str(tmp_path)))
    task = box_task(asked.data, asked.constraints)
    batches = list(Batches(task.train, 8, seed=0, device=torch.device("cuda")))
    modules = []
    for _ in range(2):
        module = make_module(asked, task, "log_barrier", 0).to("cuda").train()
        module._trainer = trainer_of(batches)
        module.augmentation = None  # both must see the same images
        modules.append(module)
    record_steps(modules[1])
    losses = [stepped(module, batches[1]) for module in modules]
    torch.testing.assert_close(losses[1], losses[0].detach(), rtol=1e-3, atol=1e-3)
    plain, replayed = (
        torch.cat([weight.grad.flatten() for weight in module.network.parameters()]) for module in modules
    )
    # as a whole: a bias before batch norm has no gradient but rounding
    assert float((replayed - plain).norm()) < 1e-2 * float(plain.norm())


def prior_of(asked: TrainSettings) -> float:
    prior = asked.training.prior
    return 0.0 if prior is None else math.log(prior / (1.0 - prior))


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
                "training.calibrate": True,  # levels are set between recorded steps, which must not see them
            },
        )
        out = tmp_path / f"fast-{fast}"
        train(asked, out, console=Console(quiet=True))
        with (out / "metrics.csv").open() as lines:
            epochs = list(csv.DictReader(lines))
        found.append([float(row["train_loss"]) for row in epochs])
        level = 0.0 if method == "full_supervision" else float(epochs[-1]["level"])
        kept = read_model(out / "model.safetensors")[0].offset
        assert float(kept[1] - kept[0]) == pytest.approx(prior_of(asked) + level, rel=1e-4, abs=1e-6)
    assert found[0] == pytest.approx(found[1], rel=0.03, abs=0.03)


@pytest.mark.parametrize(("turn", "neighbours"), [(0.0, 0.0), (40.0, 0.25)])
def test_recorded_answers_are_those_of_the_moment(tmp_path: Path, turn: float, neighbours: float) -> None:
    """Recorded before there were levels and turns: the last epoch's Dice is that of the model, which has both."""
    make_prepared(tmp_path / "set", cases=5, shape=(8, 32, 32))
    changes = {"data.prepared": str(tmp_path / "set"), "training.epochs": 13, "training.precision": "32"}
    changes |= {"training.device": "cuda", "training.calibrate": True}
    changes |= {"augment.turn": turn, "training.neighbours": neighbours}
    asked = from_preset(TrainSettings, "boxes-small", changes)
    train(asked, tmp_path / "run", console=Console(quiet=True))
    with (tmp_path / "run" / "metrics.csv").open() as lines:
        last = list(csv.DictReader(lines))[-1]
    network, card = read_model(tmp_path / "run" / "model.safetensors")
    assert card.levels[0] == pytest.approx(float(last["level"]), abs=1e-5)
    assert card.flips
    assert (card.turns, card.neighbours) == ((-turn / 4, turn / 4) if turn else (), neighbours)
    task = box_task(asked.data, asked.constraints)
    answers = Predictor(network, card, device="cuda")(task.validation["image"].numpy(), card.preprocessing.size)
    found, truth = torch.cat(list(answers)).argmax(dim=1).cpu() == 1, task.validation["mask"][:, 0].bool()
    dice = 2 * (found & truth).sum() / (found.sum() + truth.sum())  # there is one case
    assert float(last["dice"]) == pytest.approx(float(dice), abs=0.01)


def test_answers_are_replayed_with_the_weights_of_the_moment() -> None:
    batches = list(Batches(disc_task(settings().data, 0).train, 4, seed=0, device=torch.device("cuda")))
    module = on_the_gpu("log_barrier", batches).eval()
    answers = Answers(module.predicted, torch.bfloat16)
    with torch.inference_mode():
        for batch in (*batches[:3], batches[-1], batches[1]):  # the last batch has two
            with torch.autocast("cuda", torch.bfloat16):
                expected = module.predicted(batch["image"])
            torch.testing.assert_close(answers(batch["image"]), expected, rtol=1e-2, atol=1e-2)
            with torch.inference_mode(False), torch.no_grad():
                for weight in module.network.parameters():
                    weight.mul_(1.1)


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


@pytest.mark.parametrize("space", [(256, 256), (70, 90), (5, 130)])
def test_bias_fields_within_the_kernel_are_torchs_bicubic_ones(space: tuple[int, int]) -> None:
    """Images of one grey, which stay where they are: what is left is the field, up to a rounding."""
    batch = {"image": torch.full((6, 2, *space), 120, dtype=torch.uint8), "key": keys(1, 2, torch.arange(6))}
    asked = AugmentSettings(flip=[], shift=0.0, scale=0.0, intensity=0.0, noise=0.0, bias=0.3)
    here = augmented(batch, {}, asked)["image"].int()
    there = augmented({name: one.cuda() for name, one in batch.items()}, {}, asked)["image"].cpu().int()
    assert int(here.amax() - here.amin()) > 50
    assert int((here - there).abs().max()) <= 1
    assert float((here != there).float().mean()) < 0.005


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch, of itself
def test_compile_is_an_option(tmp_path: Path) -> None:
    asked = replace(settings(compile=True), methods=["log_barrier"])
    folder = compare(asked, tmp_path / "run", console=Console(quiet=True)).path
    assert len(rows(folder, "log_barrier")) == 2
