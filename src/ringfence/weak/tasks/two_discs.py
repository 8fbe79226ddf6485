"""The paper's synthetic images: a dark disc to find, a bright one to be misled by, and noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

DISTRACTOR, TARGET, BACKGROUND = 255.0, 125.0, 0.0
LARGEST_NOISE: Final = 99
SMALLEST_RADIUS: Final = 0.5**0.5
"""Half a pixel's diagonal: any larger disc covers the centre of a pixel wherever it is."""
IMAGES_AT_ONCE: Final = 64
"""Drawn together: enough to be vectorised, few enough to stay in the processor's cache."""


@dataclass(frozen=True)
class Discs:
    """A set of images in memory.

    Attributes:
        images: uint8 ``[count, 1, size, size]``.
        masks: bool ``[count, size, size]``: the target disc.
        noise: int64 ``[count]``: the standard deviation of each image's noise.
    """

    images: Tensor
    masks: Tensor
    noise: Tensor

    def __len__(self) -> int:
        return len(self.images)


def two_discs(
    count: int, *, split: str = "train", size: int = 256, radius: float | None = None, seed: int = 0
) -> Discs:
    """Images of two discs of one radius: the distractor (255) first, the darker target (125) over it, on black.

    Gaussian noise of a standard deviation drawn from 0..99 for each image is added, and the sum clipped to 0..255.
    Both discs lie within the image, anywhere; the target may cover the distractor.

    Every image has a random stream of its own, named by ``seed``, ``split`` and its number: image 7 of a split is
    the same however many are drawn, and no image of one split is in another. (The authors' generator shares one
    stream between forked workers, so that its validation images are training images, too.)

    Args:
        count: how many images.
        split: any name; each has images of its own.
        size: pixels along each side.
        radius: pixels; default: 25 at size 256, and in proportion.
        seed: another seed, another data set.

    Returns:
        The set, bit for bit the same each time.
    """
    radius = size * 25.0 / 256.0 if radius is None else float(radius)
    if count < 1 or size < 1:
        raise ValueError(f"count and size must be at least 1, got count={count}, size={size}")
    if not 0.0 < 2.0 * radius <= size - 1:
        raise ValueError(f"a disc of radius {radius:g} does not fit an image of {size}×{size} pixels")
    if radius < SMALLEST_RADIUS:
        raise ValueError(f"a disc of radius {radius:g} may lie between pixels: give at least {SMALLEST_RADIUS:.3f}")
    images = torch.empty(count, 1, size, size, dtype=torch.uint8)
    masks = torch.empty(count, size, size, dtype=torch.bool)
    noise = torch.empty(count, dtype=torch.int64)
    grid = torch.arange(size, dtype=torch.float32)
    for numbers in torch.arange(count).split(IMAGES_AT_ONCE):
        places, levels, grain = _random(numbers, split, size, seed)
        centres = radius + places * (size - 1 - 2.0 * radius)  # [images, (distractor, target), (row, column)]
        rows = (grid - centres[..., 0, None]).square()
        columns = (grid - centres[..., 1, None]).square()
        discs = rows[..., :, None] + columns[..., None, :] <= radius**2
        clean = torch.where(discs[:, 0], DISTRACTOR, BACKGROUND)
        clean = torch.where(discs[:, 1], TARGET, clean)
        noisy = clean + levels[:, None, None] * grain
        images[numbers, 0] = noisy.round_().clamp_(0.0, 255.0).to(torch.uint8)
        masks[numbers] = discs[:, 1]
        noise[numbers] = levels
    return Discs(images, masks, noise)


def _random(numbers: Tensor, split: str, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places in 0..1, noise levels and unit noise of these images, each from its own stream."""
    places = torch.empty(len(numbers), 2, 2)
    levels = torch.empty(len(numbers), dtype=torch.int64)
    grain = torch.empty(len(numbers), size, size)
    for position, number in enumerate(numbers.tolist()):
        name = hashlib.blake2b(f"two discs/{seed}/{split}/{number}".encode(), digest_size=8).digest()
        stream = torch.Generator().manual_seed(int.from_bytes(name, "little") >> 1)
        torch.rand(2, 2, generator=stream, out=places[position])
        levels[position] = torch.randint(0, LARGEST_NOISE + 1, (), generator=stream)
        torch.randn(size, size, generator=stream, out=grain[position])
    return places, levels, grain
