"""Centroids: bounds around those of masks, against scipy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy import ndimage
from true_masks import batch_of, found, ready

import ringfence as rf
from prepared_sets import make_prepared
from ringfence.segmentation import Region
from ringfence.weak.constraints.centroid import Centroid, centroid_bounds
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.tasks.two_discs import two_discs


@pytest.mark.parametrize("space", [(9, 12), (5, 6, 8)], ids=str)
def test_bounds_are_around_the_masks_centre(space: tuple[int, ...]) -> None:
    masks = torch.rand(3, 2, *space) < 0.3
    bounds = centroid_bounds(masks, 2.5)
    for image in range(3):
        for class_ in range(2):
            expected = ndimage.center_of_mass(masks[image, class_].numpy())
            assert (bounds.low[image, class_] + 2.5).tolist() == pytest.approx(expected, rel=1e-5)
            assert (bounds.high[image, class_] - 2.5).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_perfect_prediction_satisfies_its_bounds() -> None:
    masks = two_discs(20, size=64).masks[:, None]
    assert rf.between(found(masks).centroid, *centroid_bounds(masks, 5.0)).satisfied().all()


def test_an_empty_mask_leaves_its_centre_free() -> None:
    bounds = centroid_bounds(torch.zeros(1, 1, 4, 4, dtype=torch.bool), 1.0)
    assert not rf.between(torch.zeros(1, 1, 2), *bounds).present.any()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="slack must be finite and not negative"):
        centroid_bounds(torch.ones(1, 1, 4, dtype=torch.bool), slack=-1.0)


def test_residuals_against_scipy_in_both_units() -> None:
    mask = torch.zeros(2, 1, 10, 12, dtype=torch.bool)
    mask[0, 0, 2:6, 3:8] = True
    centroid = ready({"centroid": {"slack": 2.0}}, 2, ["a"])["centroid"]
    logits = torch.randn(2, 2, 10, 12)
    batch = batch_of(mask, {"centroid": centroid})
    residual = centroid.residual(Region(logits), batch, "pixels")
    there = ndimage.center_of_mass(logits.double().softmax(dim=1)[0, 1].numpy())
    for axis, wanted in enumerate((3.5, 5.0)):
        expected = [wanted - 2.0 - there[axis], there[axis] - wanted - 2.0]
        assert residual.f[0, 0, axis].tolist() == pytest.approx(expected, abs=1e-4)
    assert not bool(residual.present[1].any())
    relative = centroid.residual(Region(logits), batch, "relative")
    torch.testing.assert_close(relative.f[0], residual.f[0] / 20.0)


@pytest.mark.parametrize(("scale", "shift"), [((1.0, -1.0), (2, 0)), ((-2.0, 1.0), (0, -3)), ((1.0, 0.5), (1, 1))])
def test_bounds_go_where_the_mask_does(scale: tuple[float, float], shift: tuple[int, int]) -> None:
    """The mean of the moved pixels' middles, in 64-bit."""
    size = (40, 44)
    mask = torch.zeros(1, 1, *size, dtype=torch.bool)
    mask[0, 0, 15:22, 20:27] = torch.rand(7, 7) < 0.5
    centroid = Centroid(0.5, boxed=False)
    motion = Motion.resampled(
        torch.tensor([scale]),
        torch.tensor([[step / length for step, length in zip(shift, size, strict=True)]]),
        size,
    )
    moved = centroid.moved(centroid.targets(_samples(mask)), motion)
    middles = mask[0, 0].nonzero().double() + 0.5
    for axis in (0, 1):
        middle = size[axis] / 2
        expected = float(((middles[:, axis] - middle) * scale[axis] + middle + shift[axis] - 0.5).mean())
        reach = 0.5 * abs(scale[axis])
        assert float(moved["centroid_low"][0, 0, axis]) == pytest.approx(expected - reach, abs=1e-4)
        assert float(moved["centroid_high"][0, 0, axis]) == pytest.approx(expected + reach, abs=1e-4)


def _samples(mask: torch.Tensor):
    from ringfence.weak import CaseSamples

    return CaseSamples(torch.zeros_like(mask, dtype=torch.uint8), mask)


def test_of_an_object_that_was_cut_nothing_is_asked() -> None:
    mask = torch.zeros(2, 1, 10, 12, dtype=torch.bool)
    mask[0, 0, 2:6, 3:8] = mask[1, 0, 4:, 3:8] = True
    centroid = ready({"centroid": {}}, 2, ["a"])["centroid"]
    batch = batch_of(mask, {"centroid": centroid})
    seen = batch | centroid.moved(batch, Motion.crop(torch.tensor([[3, 0]]), (10, 12), (7, 12)))
    residual = centroid.residual(found(mask[:, :, 3:]), seen, "pixels")
    assert residual.present.flatten(1).all(dim=1).tolist() == [False, True]


def test_masks_are_needed(tmp_path: Path) -> None:
    facts = TaskFacts(("class 1",), 2, make_prepared(tmp_path, masked=False))
    with pytest.raises(ValueError, match="centroids are those of masks, and no training case of .* has one"):
        Centroid().ready(facts)
