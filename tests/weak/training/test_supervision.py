"""Learning from labels, some of which are missing: against sums over pixels, one by one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ringfence.weak.training.augmentation import augmented
from ringfence.weak.training.settings import AugmentSettings
from ringfence.weak.training.supervision import labels_of, supervised_loss
from ringfence.weak.training.together.global_batch import WHOLE, Portion, dice_loss


def batch_of(rows: int = 3, classes: int = 2, space: tuple[int, ...] = (5, 4)) -> tuple[Tensor, dict[str, Tensor]]:
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes + 1, (rows, *space), generator=random)
    logits = torch.randn(rows, 1 + classes, *space, generator=random, dtype=torch.float64)
    unsure = torch.rand(rows, 1, *space, generator=random) < 0.4
    mask = torch.stack([labels == number for number in range(1, 1 + classes)], dim=1) & ~unsure
    return logits, {"mask": mask, "unsure": unsure}


@pytest.mark.parametrize("dice_weight", [0.0, 0.7])
@pytest.mark.parametrize("space", [(5, 4), (2, 5, 4)])
def test_unsure_pixels_are_left_out(dice_weight: float, space: tuple[int, ...]) -> None:
    logits, batch = batch_of(space=space)
    logits.requires_grad_()
    loss = supervised_loss(logits, batch, WHOLE, dice_weight)
    loss.backward()
    unsure = batch["unsure"].expand_as(logits)
    assert logits.grad is not None
    assert bool((logits.grad[unsure] == 0).all() & (logits.grad[~unsure] != 0).all())
    s, labels, sure = (
        logits.detach().softmax(dim=1).movedim(1, -1),
        labels_of(batch["mask"]),
        ~batch["unsure"][:, 0],
    )
    places = sure.nonzero().tolist()
    expected = sum(-math.log(s[tuple(at)][labels[tuple(at)]]) for at in places) / sure.numel()
    if dice_weight:
        scores = []
        for number in range(1, s.shape[-1]):
            both = sum(float(s[tuple(at)][number]) for at in places if labels[tuple(at)] == number)
            total = sum(float(s[tuple(at)][number]) + float(labels[tuple(at)] == number) for at in places)
            scores.append(1 - (2 * both + 1e-5) / (total + 1e-5))
        expected += dice_weight * sum(scores) / len(scores)
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_with_all_pixels_sure_it_is_plain_supervision() -> None:
    logits, batch = batch_of()
    all_sure = batch | {"unsure": torch.zeros_like(batch["unsure"])}
    labels = labels_of(batch["mask"])
    expected = F.cross_entropy(logits, labels) + 0.5 * dice_loss(logits, labels)
    torch.testing.assert_close(supervised_loss(logits, all_sure, WHOLE, 0.5), expected)
    del all_sure["unsure"]
    torch.testing.assert_close(supervised_loss(logits, all_sure, WHOLE, 0.5), expected)


def test_nothing_sure_teaches_nothing() -> None:
    logits, batch = batch_of()
    batch["unsure"][:] = True
    batch["mask"][:] = False
    logits.requires_grad_()
    loss = supervised_loss(logits, batch, WHOLE, 1.0)
    loss.backward()
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())
    assert math.isfinite(loss.item())


def test_shares_of_a_batch_add_up() -> None:
    """Cross-entropy of 2 rows here and 1 there, as ranks have them, is that of all 3; whatever is unsure of them."""
    logits, batch = batch_of()
    parts = [slice(0, 2), slice(2, 3)]
    found = [
        supervised_loss(logits[part], {name: one[part] for name, one in batch.items()}, Portion(n, 3, 3, 2, 1))
        for part, n in zip(parts, (2, 1), strict=True)
    ]
    torch.testing.assert_close(sum(found) / 2, supervised_loss(logits, batch, WHOLE))


@pytest.mark.parametrize("space", [(12, 10), (4, 12, 10)])
def test_what_is_unsure_moves_with_the_masks(space: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(1)
    labels = torch.rand(6, 1, *space, generator=random) < 0.5
    batch = {
        "image": torch.full((6, 1, *space), 200, dtype=torch.uint8),
        "key": torch.arange(6),
        "mask": labels,
        "unsure": ~labels,
    }
    settings = AugmentSettings(["left-right"], shift=0.3, scale=0.2, intensity=0.0, bias=0.0, noise=0.0)
    found = augmented(batch, {}, settings)
    alone = augmented({name: one for name, one in batch.items() if name != "unsure"}, {}, settings)
    assert torch.equal(found["mask"], alone["mask"])
    assert not bool((found["mask"] & found["unsure"]).any())
    beyond = found["image"] == 0  # where there is no image, the background is
    assert bool(beyond.any())
    assert not bool(((found["mask"] | found["unsure"]) & beyond).any())
    inside = found["image"] == 200
    assert bool((found["mask"] | found["unsure"])[inside].all())


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_labels_are_those_of_argmax(classes: int) -> None:
    """Of a background that is where no mask is, and masks that overlap: the first of equals."""
    masks = torch.rand(3, classes, 9, 7, generator=torch.Generator().manual_seed(classes)) > 0.6
    layers = torch.cat([~masks.any(dim=1, keepdim=True), masks], dim=1)
    assert torch.equal(labels_of(masks), layers.int().argmax(dim=1))
