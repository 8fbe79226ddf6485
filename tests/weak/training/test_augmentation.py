"""Augmented images and their boxes go together: against boxes taken from the augmented masks themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ringfence.weak.annotations.from_masks import boxes_from_masks
from ringfence.weak.constraints.centroid import Centroid
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.size import Size
from ringfence.weak.training.augmentation import Augmentation, augmented
from ringfence.weak.training.loading.data import Batch
from ringfence.weak.training.loading.patches import Patches
from ringfence.weak.training.settings import AugmentSettings

EVEN: dict[str, float] = {"intensity": 0.0, "bias": 0.0, "noise": 0.0}
ALL: list[str] = ["slices", "up-down", "left-right"]
STILL = AugmentSettings(flip=[], shift=0.0, scale=0.0, **EVEN)
NONE: dict[str, Constraint] = {}
"""Boxes move by themselves, whatever is asked of them."""


def blobs(rows: int, space: tuple[int, ...], classes: int = 2) -> Batch:
    """Random solid blobs, one of a class: every line across their box meets them."""
    centres = torch.rand(rows, classes, len(space))
    radii = 0.1 + 0.15 * torch.rand(rows, classes, len(space))
    distance = torch.zeros(rows, classes, *space)
    for axis, length in enumerate(space):
        place = ((torch.arange(length) + 0.5) / length).view(
            *[-1 if one == axis else 1 for one in range(len(space))]
        )
        shape = (rows, classes, *[1] * len(space))
        distance += ((place - centres[..., axis].view(shape)) / radii[..., axis].view(shape)) ** 2
    masks = distance < 1.0
    box = boxes_from_masks(masks)
    image = (64 + 60 * masks.float().cumsum(1)[:, -1:]).to(torch.uint8)
    return {
        "image": image,
        "mask": masks,
        "box": box,
        "whole": torch.ones(box.shape[:-1], dtype=torch.bool),
        "uncut": torch.ones(box.shape[:2], dtype=torch.bool),
        "margin": torch.zeros(rows, len(space), dtype=torch.long),
    }


def lines(masks: Tensor, axis: int) -> Tensor:
    """How many voxels each line (plane) perpendicular to an axis has: ``[N, K, length]``."""
    return masks.sum(dim=[2 + other for other in range(masks.ndim - 2) if other != axis])


def test_nothing_asked_is_nothing_done() -> None:
    torch.manual_seed(0)
    batch = blobs(4, (30, 25))
    for name, tensor in augmented(batch, NONE, STILL).items():
        assert torch.equal(tensor, batch[name]), name


@pytest.mark.parametrize("space", [(32, 40), (12, 20, 16)])
def test_flipped_boxes_are_the_boxes_of_flipped_masks(space: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    batch = blobs(40, space)
    varied = augmented(batch, NONE, AugmentSettings(flip=ALL[-len(space) :], shift=0.0, scale=0.0, **EVEN))
    assert torch.equal(varied["box"], boxes_from_masks(varied["mask"]))
    assert not torch.equal(varied["box"], batch["box"])


@pytest.mark.parametrize("name", ALL)
def test_images_are_flipped_along_what_is_asked_alone(name: str) -> None:
    torch.manual_seed(7)
    batch = blobs(30, (8, 10, 12))
    varied = augmented(batch, NONE, AugmentSettings(flip=[name], shift=0.0, scale=0.0, **EVEN))
    axis = {"slices": 2, "up-down": 3, "left-right": 4}[name]
    as_it_was = [torch.equal(now, was) for now, was in zip(varied["image"], batch["image"], strict=True)]
    flipped = [torch.equal(now, was) for now, was in zip(varied["image"], batch["image"].flip(axis), strict=True)]
    assert all(one or other for one, other in zip(as_it_was, flipped, strict=True))
    assert 5 <= sum(flipped) <= 25


@pytest.mark.parametrize("space", [(64, 48), (16, 40, 32)])
def test_moved_and_scaled_boxes_hold_their_masks_tightly(space: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    batch = blobs(90, space)
    varied = augmented(
        batch, NONE, AugmentSettings(flip=ALL[-len(space) :], shift=0.3, scale=0.2, **EVEN | {"intensity": 0.2})
    )
    exact = boxes_from_masks(varied["mask"])[:, :, 0]
    there = varied["mask"].flatten(2).any(dim=-1)
    box = varied["box"][:, :, 0]
    assert bool(((box[..., 0] <= exact[..., 0]) & (box[..., 1] >= exact[..., 1]))[there].all()), (
        "something is outside"
    )
    uncut = varied["whole"][:, :, 0].all(dim=-1) & there
    assert int((box - exact)[uncut].abs().max()) <= 2  # a thin tip may fall between the sampled rows
    assert int(uncut.sum()) > 40


def test_strips_that_count_are_crossed_by_the_object_even_in_a_cut_box() -> None:
    """The promise behind ``whole``: lines within the box, along axes that count, all meet the object."""
    torch.manual_seed(3)
    batch = blobs(80, (40, 40))
    varied = augmented(batch, NONE, AugmentSettings(flip=ALL[1:], shift=0.5, scale=0.0, **EVEN))
    missed = 0
    for axis in (0, 1):
        count = lines(varied["mask"], axis)
        place = torch.arange(40)
        box = varied["box"][:, :, 0, axis]
        inside = (place >= box[..., :1]) & (place < box[..., 1:])
        asked = inside & varied["whole"][:, :, 0, axis, None]
        missed += int(((count == 0) & asked).sum())
        assert int(asked.sum()) > 500
    assert missed <= 2  # a rounded edge
    assert not bool(varied["whole"].all())


@pytest.mark.parametrize("size", [(6, 10, 12), (12, 20, 16)])
def test_patches_are_windows_with_what_is_left_of_the_boxes(size: tuple[int, int, int]) -> None:
    torch.manual_seed(4)
    volume = blobs(50, (12, 20, 16))
    tagged = volume | {"image": torch.arange(12 * 20 * 16).view(1, 1, 12, 20, 16).expand(50, 1, -1, -1, -1)}
    seen = Patches(size, NONE)(tagged)
    assert seen["image"].shape == (50, 1, *size)
    for row in range(50):
        whole = torch.arange(12 * 20 * 16).view(12, 20, 16)
        found = [
            (z, y, x)
            for z in range(12 - size[0] + 1)
            for y in range(20 - size[1] + 1)
            for x in range(16 - size[2] + 1)
            if torch.equal(whole[z : z + size[0], y : y + size[1], x : x + size[2]], seen["image"][row, 0])
        ]
        assert len(found) == 1
        z, y, x = found[0]
        mask = volume["mask"][row, :, z : z + size[0], y : y + size[1], x : x + size[2]]
        assert torch.equal(seen["mask"][row], mask)
        exact = boxes_from_masks(mask[None])[0, :, 0]
        box = seen["box"][row, :, 0]
        there = mask.flatten(1).any(dim=1)
        assert bool(((box[..., 0] <= exact[..., 0]) & (box[..., 1] >= exact[..., 1]))[there].all())
        for axis in range(3):
            count = lines(mask[None], axis)[0]
            place = torch.arange(size[axis])
            inside = (place >= box[:, axis, :1]) & (place < box[:, axis, 1:])
            assert not bool(((count == 0) & inside & seen["whole"][row, :, 0, axis, None]).any())


def test_bounds_and_margins_scale_with_the_image() -> None:
    torch.manual_seed(5)
    batch = blobs(30, (64, 64), classes=1)
    size = batch["mask"].flatten(2).sum(dim=-1).float()
    centre = torch.stack([one.nonzero()[:, 1:].float().mean(dim=0) for one in batch["mask"]])[:, None]
    batch |= {"size_low": size, "size_high": size, "margin": torch.full((30, 2), 2)}
    batch |= {"centroid_low": centre, "centroid_high": centre}
    constraints = {"size": Size(0.1), "centroid": Centroid(1.0)}
    varied = augmented(batch, constraints, AugmentSettings(flip=ALL[1:], shift=0.1, scale=0.3, **EVEN))
    uncut = varied["uncut"]
    assert torch.equal(uncut, varied["whole"].flatten(2).all(dim=-1))
    assert int(uncut.sum()) > 10
    now = varied["mask"].flatten(2).sum(dim=-1).float()
    torch.testing.assert_close(varied["size_low"][uncut], now[uncut], rtol=0.08, atol=4.0)
    for row in uncut[:, 0].nonzero().flatten().tolist():
        here = varied["mask"][row, 0].nonzero().float().mean(dim=0)
        assert float((varied["centroid_low"][row, 0] - here).abs().max()) < 0.6
    assert set(varied["margin"].flatten().tolist()) <= {2, 3}


def test_windows_are_mostly_where_boxes_are() -> None:
    """Two of three around a place within a box; the others anywhere, as all are of images without one."""
    torch.manual_seed(11)
    rows = 600
    batch = {"image": torch.zeros(rows, 1, 40, 40, dtype=torch.uint8)}
    box = torch.tensor([[[[[2, 5], [3, 6]], [[0, 0], [0, 0]]]]]).repeat(rows, 1, 1, 1, 1)
    batch |= {
        "box": box,
        "whole": torch.ones(rows, 1, 2, 2, dtype=torch.bool),
        "uncut": torch.ones(rows, 1, dtype=torch.bool),
        "margin": torch.zeros(rows, 2).long(),
    }
    seen = Patches((8, 8), NONE)(batch)["box"]
    hit = (seen[:, 0, 0, :, 1] > seen[:, 0, 0, :, 0]).all(dim=-1).float().mean()
    by_chance = (5 / 33) ** 2  # starts 0 to 4 of 0 to 32 along each axis
    assert float(hit) == pytest.approx(2 / 3 + by_chance / 3, abs=0.05)
    empty = batch | {"box": 0 * box, "image": torch.arange(1600).view(1, 1, 40, 40).expand(rows, -1, -1, -1)}
    first = Patches((8, 8), NONE)(empty)["image"][:, 0, 0, 0]
    for start in (first // 40, first % 40):
        assert (int(start.min()), int(start.max())) == (0, 32)
        assert float(start.float().mean()) == pytest.approx(16.0, abs=1.2)
    bare = Patches((40, 8), NONE)({"image": empty["image"]})
    assert bare["image"].shape == (rows, 1, 40, 8)
    assert set(bare) == {"image"}


def test_half_precision_does_not_move_masks_off_their_boxes() -> None:
    """Under autocast the sampling grid would be bfloat16: half a pixel of 256."""
    batch = blobs(8, (256, 256))
    found = []
    for enabled in (False, True):
        torch.manual_seed(10)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found.append(Augmentation(AugmentSettings(), NONE)(batch))
    for name, tensor in found[0].items():
        assert torch.equal(found[1][name], tensor), name


def test_brightness_changes_and_black_stays_black() -> None:
    torch.manual_seed(6)
    batch = blobs(20, (16, 16))
    batch["image"][:, :, :4] = 0
    varied = augmented(batch, NONE, AugmentSettings(flip=[], shift=0.0, scale=0.0, **EVEN | {"intensity": 0.2}))
    assert varied["image"].dtype == torch.uint8
    assert not bool(varied["image"][:, :, :4].any())
    assert not torch.equal(varied["image"], batch["image"])
    assert torch.equal(varied["mask"], batch["mask"])


@pytest.mark.parametrize("space", [(24, 30), (6, 24, 30)])
def test_bias_fields_are_smooth_and_each_channel_has_its_own(space: tuple[int, ...]) -> None:
    torch.manual_seed(8)
    batch = blobs(8, space)
    batch["image"] = torch.full((8, 2, *space), 120, dtype=torch.uint8)
    varied = augmented(batch, NONE, AugmentSettings(flip=[], shift=0.0, scale=0.0, **EVEN | {"bias": 0.3}))
    field = (varied["image"].float() / 120).log()
    together = torch.corrcoef(torch.stack([field[:, 0].flatten(), field[:, 1].flatten()]))[0, 1]
    assert abs(float(together)) < 0.3
    between = field.flatten(1).mean(dim=1).std()
    assert 0.1 < float(field.std()) < 0.4
    assert 0.0 < float(between) < 0.2
    steps = field.diff(dim=-1).abs()
    assert float(steps.max()) < 0.3  # of neighbours; the whole range is many times their mean
    assert float(field.amax() - field.amin()) > 10 * float(steps.mean())


def test_channels_are_changed_in_brightness_each_by_itself_and_the_first_as_if_it_were_alone() -> None:
    """Of images with one channel, nothing depends on there being more."""
    batch = blobs(20, (16, 16)) | {"key": torch.arange(20)}
    batch["image"] = torch.full((20, 3, 16, 16), 120, dtype=torch.uint8)
    only = AugmentSettings(flip=[], shift=0.0, scale=0.0)
    every = augmented(batch, NONE, only)["image"]
    alone = augmented(batch | {"image": batch["image"][:, :1]}, NONE, only)["image"]
    assert torch.equal(every[:, :1], alone)
    levels = every.float().flatten(2).mean(dim=2)
    assert float(torch.corrcoef(levels.T).fill_diagonal_(0.0).abs().max()) < 0.6


def test_noise_has_the_strength_asked_for() -> None:
    torch.manual_seed(9)
    batch = blobs(200, (24, 24))
    batch["image"] = torch.full((200, 1, 24, 24), 120, dtype=torch.uint8)
    varied = augmented(batch, NONE, AugmentSettings(flip=[], shift=0.0, scale=0.0, **EVEN | {"noise": 0.1}))
    spread = varied["image"].float().flatten(1).std(dim=1) / 255
    assert float(spread.max()) < 0.12
    assert float(spread.mean()) == pytest.approx(0.05, abs=0.01)  # uniform up to what was asked
