"""The module: its loss and its Dice against what one computes by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from monai.metrics.meandice import compute_dice
from scipy import ndimage, special
from torch import nn

import ringfence as rf
from ringfence.weak.tasks.discs import synthetic_task
from ringfence.weak.training.module import WeakSegmentation, dice, overlap
from ringfence.weak.training.networks import Tempered
from ringfence.weak.training.settings import DataSettings

TASK = synthetic_task(DataSettings(size=24, train=6, validation=4), seed=3)


def module(fence: rf.Method | None, unit: str = "pixels", **options: object) -> WeakSegmentation:
    torch.manual_seed(0)
    network = Tempered(nn.Conv2d(1, 2, 5, padding="same"), prior=0.05)
    made = WeakSegmentation(network, fence, TASK.limits(unit), TASK.train, TASK.validation, **options)
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


def test_answers_are_means_over_mirror_images() -> None:
    """Against NumPy, turned by hand; and what is judged is that mean."""
    images = TASK.validation["image"]
    plain, mirrored = module(rf.Penalty()), module(rf.Penalty(), mirrors=(-1, -2))
    with torch.no_grad():
        turned = [
            np.flip(special.softmax(plain(images.flip(axes)).double().numpy(), axis=1), axes)
            for axes in ((), (-1,), (-2,), (-2, -1))
        ]
        found = mirrored.answer(images)
        assert torch.equal(plain.answer(images), plain(images))
    np.testing.assert_allclose(found.exp().numpy(), np.mean(turned, axis=0), rtol=1e-4)
    mirrored.validation_step(TASK.validation | {"index": torch.arange(4)}, 0)
    assert torch.equal(mirrored._overlaps[0], overlap(found, TASK.validation["mask"]))


def test_a_certain_answer_is_still_finite() -> None:
    certain = module(rf.Penalty(), mirrors=(-1,))
    with torch.no_grad():
        certain.network.temperature.fill_(1e-4)
        assert bool(certain.answer(TASK.validation["image"]).isfinite().all())


def test_masks_and_limits_add_up() -> None:
    batch = TASK.train | {"index": torch.arange(6)}
    limits = module(rf.Penalty()).training_step(batch, 0)
    masks = module(None, supervised=True).training_step(batch, 0)
    both = module(rf.Penalty(), supervised=True).training_step(batch, 0)
    torch.testing.assert_close(both, limits + masks)


def test_a_module_with_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to learn from: give a fence, or supervised=True"):
        module(None)


def test_dice_against_its_formula() -> None:
    logits = torch.randn(5, 3, 6, 7)
    labels = torch.randint(0, 3, (5, 6, 7))
    masks = torch.stack([labels == 1, labels == 2], dim=1)
    scores = dice(overlap(logits, masks))
    found = logits.argmax(dim=1)
    for row in range(5):
        for place, name in enumerate((1, 2)):
            p, y = (found[row] == name).numpy(), (labels[row] == name).numpy()
            assert scores[row, place].item() == pytest.approx(2 * (p & y).sum() / (p.sum() + y.sum()))


def test_dice_of_empty_masks() -> None:
    empty, full = torch.zeros(1, 1, 4, 4, dtype=torch.bool), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    nothing = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    assert dice(overlap(nothing, empty)).item() == 1.0
    assert dice(overlap(nothing, full)).item() == 0.0
    assert dice(overlap(nothing.flip(1), empty)).item() == 0.0


def test_dice_of_patients_is_that_of_their_whole_volumes() -> None:
    """Against MONAI's, on the stacked slices."""
    logits, masks = torch.randn(7, 3, 6, 5), torch.rand(7, 2, 6, 5) < 0.4
    case = torch.tensor([0, 0, 0, -2, 2, 2, 2])  # nobody judges the case of the fourth row
    judged = torch.rand(7, 6, 5) < 0.9
    scores = dice(overlap(logits, masks, judged), case)
    labels = logits.argmax(dim=1)
    assert len(scores) == 2
    for number, rows in ((0, slice(0, 3)), (1, slice(4, 7))):
        for place in (0, 1):
            found = ((labels[rows] == 1 + place) & judged[rows]).float()[None, None]
            true = (masks[rows, place] & judged[rows]).float()[None, None]
            assert scores[number, place].item() == pytest.approx(compute_dice(found, true).item(), rel=1e-6)


def test_masks_are_not_even_at_hand_without_supervision() -> None:
    assert "mask" not in next(iter(module(rf.Penalty()).train_dataloader()))
    assert "mask" in next(iter(module(None, supervised=True).train_dataloader()))
