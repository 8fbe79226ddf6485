"""Bounds from masks against scipy, and that the mask itself satisfies them."""

from __future__ import annotations

import pytest
import scipy.ndimage
import torch

import ringfence as rf
from ringfence.weak.constraints.bounds import centroid_bounds, size_bounds
from ringfence.weak.tasks.two_discs import two_discs


@pytest.mark.parametrize("space", [(9, 12), (5, 6, 8)], ids=str)
def test_bounds_are_around_the_masks_size_and_centre(space: tuple[int, ...]) -> None:
    masks = torch.rand(3, 2, *space) < 0.3
    size, centre = size_bounds(masks, 0.1), centroid_bounds(masks, 2.5)
    for image in range(3):
        for class_ in range(2):
            mask = masks[image, class_].numpy()
            assert size.low[image, class_].item() == pytest.approx(0.9 * mask.sum())
            assert size.high[image, class_].item() == pytest.approx(1.1 * mask.sum())
            expected = scipy.ndimage.center_of_mass(mask)
            assert (centre.low[image, class_] + 2.5).tolist() == pytest.approx(expected, rel=1e-5)
            assert (centre.high[image, class_] - 2.5).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_perfect_prediction_satisfies_its_bounds() -> None:
    masks = two_discs(20, size=64).masks[:, None]
    logits = torch.where(torch.cat([~masks, masks], dim=1), 30.0, -30.0)
    region = rf.segmentation.Region(logits, classes=[1])
    assert rf.between(region.size, *size_bounds(masks)).satisfied().all()
    assert rf.between(region.centroid, *centroid_bounds(masks, 5.0)).satisfied().all()


def test_an_empty_mask_bounds_its_size_and_leaves_its_centre_free() -> None:
    masks = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    assert size_bounds(masks).high.item() == 0.0
    bounds = centroid_bounds(masks, 1.0)
    assert not rf.between(torch.zeros(1, 1, 2), *bounds).present.any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: size_bounds(torch.ones(2, 1, 4, 4)),
            r"masks must be bool \[batch, classes, \*space\], got torch.float32",
        ),
        (
            lambda: size_bounds(torch.ones(1, 1, 4, dtype=torch.bool), slack=2.0),
            "slack is a share from 0 to 1, got 2.0",
        ),
        (
            lambda: centroid_bounds(torch.ones(1, 1, 4, dtype=torch.bool), slack=-1.0),
            "slack must be finite and not negative",
        ),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
