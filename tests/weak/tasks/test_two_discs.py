"""The two-disc images: what the paper describes, drawn again pixel by pixel, and no leak between splits."""

from __future__ import annotations

import math

import pytest
import torch

from ringfence.weak.tasks.two_discs import two_discs


def fingerprints(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_no_image_is_drawn_twice_within_or_between_splits() -> None:
    """The authors' generator repeats its training images in validation; a noise-free pair would show it, too."""
    train, validation = two_discs(400, size=64), two_discs(200, split="validation", size=64)
    assert len(fingerprints(train.images) | fingerprints(validation.images)) == 600
    assert len(fingerprints(train.masks) & fingerprints(validation.masks)) <= 10  # 52² places on a grid: few meet


def test_drawing_again_is_bit_identical_and_does_not_depend_on_the_count() -> None:
    torch.manual_seed(123)
    first = two_discs(130, size=48, seed=5)
    torch.manual_seed(456)
    torch.rand(7)
    again, fewer = two_discs(130, size=48, seed=5), two_discs(70, size=48, seed=5)
    for name in ("images", "masks", "noise"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert torch.equal(getattr(first, name)[:70], getattr(fewer, name))
    assert not torch.equal(first.images, two_discs(130, size=48, seed=6).images)


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    two_discs(3, size=32)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("size", "radius"), [(64, None), (40, 7.5), (256, 25)])
def test_the_mask_is_a_disc_of_that_radius(size: int, radius: float | None) -> None:
    discs = two_discs(6, size=size, radius=radius)
    expected = radius or size * 25 / 256
    for mask in discs.masks:
        rows, columns = (place.double() for place in mask.nonzero(as_tuple=True))
        assert rows.min() >= 0
        centre = (rows.mean(), columns.mean())
        assert len(rows) == pytest.approx(math.pi * expected**2, rel=0.12)
        farthest = ((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2).sqrt().max()
        assert farthest == pytest.approx(expected, abs=1.0)


def test_intensities_are_the_papers() -> None:
    discs = two_discs(400, size=32)
    quiet = discs.noise == 0
    assert quiet.any()
    for image, mask in zip(discs.images[quiet], discs.masks[quiet], strict=True):
        assert set(image.unique().tolist()) <= {0, 125, 255}
        assert (image[0][mask] == 125).all()  # the target is drawn over the distractor
    inside = torch.stack(
        [image[0][mask].float().mean() for image, mask in zip(discs.images, discs.masks, strict=True)]
    )
    assert inside[discs.noise < 30].mean().item() == pytest.approx(125, abs=3)


def test_noise_has_the_level_it_says_from_0_to_99() -> None:
    discs = two_discs(600, size=32)
    assert discs.noise.min() >= 0
    assert discs.noise.max() <= 99
    assert discs.noise.float().mean().item() == pytest.approx(49.5, abs=4)
    for image, mask, level in zip(discs.images, discs.masks, discs.noise.tolist(), strict=True):
        if 10 <= level <= 35:  # enough to measure, too little to be clipped around 125
            assert image[0][mask].float().std().item() == pytest.approx(level, rel=0.6)


def test_places_fill_the_image() -> None:
    centres = torch.stack([mask.nonzero().double().mean(dim=0) for mask in two_discs(500, size=64).masks])
    assert centres.min().item() < 9
    assert centres.max().item() > 54
    assert centres.mean().item() == pytest.approx(31.5, abs=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 32, "radius": 16}, "a disc of radius 16 does not fit an image of 32×32 pixels"),
        ({"radius": 0}, "a disc of radius 0 does not fit"),
        ({"count": 0}, "count and size must be at least 1, got count=0"),
    ],
)
def test_bad_input(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        two_discs(**{"count": 2, **options})
