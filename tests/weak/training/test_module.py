"""The module: its loss and what it predicts, against what one computes by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from scipy import ndimage, special
from torch import nn
from torch.utils.data import DataLoader

import ringfence as rf
from ringfence.lightning import FenceCallback
from ringfence.weak import NetworkSettings, Samples, SegmentationData, SyntheticSettings, from_preset
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.networks.build import Tempered
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.samples import moved_targets
from ringfence.weak.tasks.settings import DiscSettings
from ringfence.weak.training.augmentation import Augmentation
from ringfence.weak.training.fit import make_data, make_module, quiet_lightning
from ringfence.weak.training.measures import overlap
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.module import WeakSegmentation, region_of
from ringfence.weak.training.settings import AugmentSettings
from ringfence.weak.training.variation import turns
from ringfence.weak.training.views import view_averaged, views_of

NETWORK = NetworkSettings("torch.nn.Conv2d", {"kernel_size": 5, "padding": 2})
TASK = disc_task(DiscSettings(size=24, train=6, validation=4), seed=3)


def module(fence: rf.Method | None, unit: str = "pixels", **options: object) -> WeakSegmentation:
    torch.manual_seed(0)
    network = Tempered(nn.Conv2d(1, 2, 5, padding="same"), prior=0.05)
    made = WeakSegmentation(network, TASK.constraints, fence, unit=unit, measure=TASK.measure, **options)
    made._trainer = SimpleNamespace(current_epoch=0)
    return made


@pytest.mark.parametrize("unit", ["pixels", "relative"])
def test_the_loss_is_the_barrier_of_sizes_and_centroids(unit: str) -> None:
    """Against float64 sums, scipy's centre of mass, and the formula of ψ_t written out."""
    t, rows = 2.0, torch.tensor([4, 1, 2])
    model = module(rf.LogBarrier(t, reduction="batchmean"), unit)
    batch = {name: tensor[rows] for name, tensor in TASK.train.items()} | {"index": rows}
    loss = model.training_step(batch, 0)

    def psi(z: float) -> float:
        return -math.log(-z) / t if z <= -1 / t**2 else t * z - math.log(1 / t**2) / t + 1 / t

    with torch.no_grad():
        logits = model(batch["image"]).double().numpy()
    expected = 0.0
    for row, number in zip(logits, rows.tolist(), strict=True):
        probability = special.softmax(row, axis=0)[1]
        truth = TASK.train["mask"][number, 0].numpy()
        size, slack = truth.sum(), 20 * 24 / 256
        scale = size if unit == "relative" else 1.0
        expected += psi((0.9 * size - probability.sum()) / scale) + psi((probability.sum() - 1.1 * size) / scale)
        scale = 10 * slack if unit == "relative" else 1.0
        for found, wanted in zip(ndimage.center_of_mass(probability), ndimage.center_of_mass(truth), strict=True):
            expected += psi((wanted - slack - found) / scale) + psi((found - wanted - slack) / scale)
    assert loss.item() == pytest.approx(expected / 3, rel=1e-4)


def test_full_supervision_is_cross_entropy() -> None:
    model = module(None, supervised=True)
    batch = TASK.train | {"index": torch.arange(6)}
    with torch.no_grad():
        log_softmax = special.log_softmax(model(batch["image"]).double().numpy(), axis=1)
    truth = batch["mask"][:, 0].numpy()
    expected = -np.where(truth, log_softmax[:, 1], log_softmax[:, 0]).mean()
    assert model.training_step(batch, 0).item() == pytest.approx(expected, rel=1e-5)


def test_dice_loss_is_its_formula_over_the_whole_batch() -> None:
    """Against NumPy; a slice with nothing in it does not count for itself."""
    batch = TASK.train | {"index": torch.arange(6), "mask": TASK.train["mask"].clone()}
    batch["mask"][0] = False
    plain, more = (module(None, supervised=True, dice_weight=weight) for weight in (0.0, 2.0))
    with torch.no_grad():
        probability = special.softmax(plain(batch["image"]).double().numpy(), axis=1)[:, 1]
    truth = batch["mask"][:, 0].numpy()
    expected = 2.0 * (1.0 - 2.0 * probability[truth].sum() / (probability.sum() + truth.sum()))
    added = more.training_step(batch, 0) - plain.training_step(batch, 0)
    assert added.item() == pytest.approx(expected, rel=1e-4)


def test_predictions_are_averaged_over_flips() -> None:
    """Against NumPy, turned by hand; and what is judged is that average."""
    images = TASK.validation["image"]
    plain, flipped = module(rf.Penalty()), module(rf.Penalty(), flips=(-1, -2))
    with torch.no_grad():
        turned = [
            np.flip(special.softmax(plain(images.flip(axes)).double().numpy(), axis=1), axes)
            for axes in ((), (-1,), (-2,), (-2, -1))
        ]
        found = flipped.predicted(images)
        assert torch.equal(plain.predicted(images), plain(images))
    np.testing.assert_allclose(found.exp().numpy(), np.mean(turned, axis=0), rtol=1e-4)
    flipped.validation_step(TASK.validation | {"index": torch.arange(4)}, 0)
    assert torch.equal(flipped.validation.measures["dice"].overlaps[0], overlap(found, TASK.validation["mask"]))


def test_training_asks_about_turned_images() -> None:
    """The loss is that of the answer turned back; validation's images are as they are."""
    plain = AugmentSettings([], shift=0.0, scale=0.0, intensity=0.0, bias=0.0, noise=0.0, turn=50.0)
    made = module(rf.Penalty(), augmentation=Augmentation.of(TASK, plain))
    batch = {name: one[:4] for name, one in TASK.train.items()} | {"key": torch.arange(4), "index": torch.arange(4)}
    angle = turns(batch["key"], 50.0)
    logits = rf.segmentation.answer_of_turned(made.network, batch["image"].float() / 255.0, angle)
    moved = moved_targets(
        batch, TASK.constraints, Motion.resampled(torch.ones(4, 2), torch.zeros(4, 2), (24, 24), angle)
    )
    expected = made.fence(**made.measure(region_of(logits, batch | moved), batch | moved))
    torch.testing.assert_close(made.training_step(batch, 0), expected)
    upright = made.fence(**made.measure(region_of(made(batch["image"]), batch), batch))
    assert not torch.allclose(upright, expected, rtol=1e-3)


def test_the_last_epochs_look_at_turned_images_too() -> None:
    """Ten of them, and whoever validates a trained network; before, flips alone."""
    images = TASK.validation["image"]
    turning, upright = (module(rf.Penalty(), flips=(-1,), turns=turns) for turns in ((-20.0, 20.0), ()))
    every = view_averaged(turning, images.float() / 255.0, views_of((-1,), (-20.0, 20.0))).log().detach()
    flips = upright.predicted(images).detach()
    assert not torch.allclose(every, flips, atol=1e-3)
    fitting, validating = (SimpleNamespace(fn=fn) for fn in (TrainerFn.FITTING, TrainerFn.VALIDATING))
    for epoch, state, expected in (
        (0, fitting, flips),
        (1, fitting, flips),
        (2, fitting, every),
        (0, validating, every),
    ):
        turning._trainer = SimpleNamespace(current_epoch=epoch, max_epochs=12, state=state)
        torch.testing.assert_close(turning.predicted(images).detach(), expected, rtol=1e-4, atol=1e-5)
    turning._trainer = None
    torch.testing.assert_close(turning.predicted(images).detach(), every, rtol=1e-4, atol=1e-5)


def test_a_certain_prediction_is_still_finite() -> None:
    certain = module(rf.Penalty(), flips=(-1,))
    with torch.no_grad():
        certain.network.temperature.fill_(1e-4)
        assert bool(certain.predicted(TASK.validation["image"]).isfinite().all())


def test_masks_and_constraints_add_up() -> None:
    batch = TASK.train | {"index": torch.arange(6)}
    constraints = module(rf.Penalty()).training_step(batch, 0)
    masks = module(None, supervised=True).training_step(batch, 0)
    both = module(rf.Penalty(), supervised=True).training_step(batch, 0)
    torch.testing.assert_close(both, constraints + masks)


def test_a_module_with_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to learn from: give a fence, or supervised=True"):
        module(None)


def test_masks_are_not_even_at_hand_without_supervision() -> None:
    assert "mask" not in next(iter(SegmentationData(TASK).train_dataloader()))
    assert "mask" in next(iter(SegmentationData(TASK, masks=True).train_dataloader()))


@pytest.mark.parametrize("method", METHODS)
def test_only_full_supervision_is_given_masks(method: str) -> None:
    settings = replace(from_preset(SyntheticSettings, "synthetic-small"), network=NETWORK)
    made = make_module(settings, TASK, method, 0)
    batch = next(iter(make_data(settings, TASK, made, 0).train_dataloader()))
    assert ("mask" in batch) == made.supervised == (method == "full_supervision")


def test_every_epoch_has_random_numbers_of_its_own_and_always_the_same() -> None:
    """So that no two epochs are augmented alike, and a resumed run is as it would have been."""
    drawn = {}
    for seed, epoch in [(0, 0), (0, 1), (1, 0), (0, 1)]:
        made = module(rf.Penalty(), seed=seed)
        made._trainer = SimpleNamespace(current_epoch=epoch, max_epochs=3)
        made.on_train_epoch_start()
        numbers = tuple(torch.rand(3).tolist())
        assert drawn.setdefault((seed, epoch), numbers) == numbers
    assert len(set(drawn.values())) == 3
    torch.manual_seed(5)
    expected = torch.rand(3)
    made = module(rf.Penalty())  # without a seed, the generator is left alone
    made._trainer = SimpleNamespace(current_epoch=1, max_epochs=3)
    torch.manual_seed(5)
    made.on_train_epoch_start()
    assert torch.equal(torch.rand(3), expected)


def test_images_are_bytes_or_floats_up_to_one() -> None:
    images = TASK.train["image"]
    made = module(rf.Penalty())
    torch.testing.assert_close(made(images), made(images.float() / 255.0))


def trained(tmp_path: Path, fence: rf.Method, **data: object) -> dict[str, float]:
    """Two epochs in a Trainer of one's own, with the callback and nothing else of ours."""
    torch.manual_seed(0)
    made = WeakSegmentation(nn.Conv2d(1, 2, 5, padding="same"), TASK.constraints, fence, seed=0)
    with quiet_lightning():
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=2,
            callbacks=[FenceCallback()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
            default_root_dir=tmp_path,
        )
        trainer.fit(made, **data)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers")
def test_ones_own_loader_and_trainer_do_as_well(tmp_path: Path) -> None:
    """A plain DataLoader of ``Samples``, a plain network, no DataModule: the same numbers as with ours, unshuffled."""
    fence = rf.Lagrangian(0.1, samples=6, reduction="batchmean")
    loaders = {
        "train_dataloaders": DataLoader(Samples(TASK.train), batch_size=3),
        "val_dataloaders": DataLoader(Samples(TASK.validation), batch_size=4),
    }
    found = trained(tmp_path, fence, **loaders)
    assert {"train_loss", "dice", "fence/satisfaction", "fence/satisfaction/size", "temperature"} <= found.keys()
    assert fence.multipliers["size"].shape[0] == 6
    assert float(fence.multipliers["size"].max()) > 0.0  # it was stepped
    data = SegmentationData(TASK, batch_size=3)
    ordered = data.train_dataloader()
    ordered.order = replace(ordered.order, seed=None)
    data.train_dataloader = lambda: ordered
    ours = trained(tmp_path, rf.Lagrangian(0.1, samples=6, reduction="batchmean"), datamodule=data)
    assert ours == pytest.approx(found, rel=1e-4, nan_ok=True)


def test_a_measure_that_nobody_updated_logs_nothing() -> None:
    made = module(rf.Penalty())
    logged: dict[str, torch.Tensor] = {}
    alone = {"state": SimpleNamespace(fn="fit"), "world_size": 1, "loggers": [], "callback_metrics": logged}
    made._trainer = SimpleNamespace(**alone)
    made.on_validation_epoch_end()
    assert logged == {}
    batch = {name: tensor for name, tensor in TASK.validation.items() if name != "mask"}
    made.validation_step(batch | {"index": torch.arange(4)}, 0)  # somebody has no masks at all
    made.on_validation_epoch_end()
    assert "dice" not in logged
    assert "fence/mean_multiplier/size" in logged
