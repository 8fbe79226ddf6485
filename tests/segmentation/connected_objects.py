"""Connected objects of all sorts, as masks of pixels, and the boxes around them."""

from __future__ import annotations

import itertools

import numpy as np
import scipy.ndimage
import torch
from torch import Tensor

Mask = np.ndarray


def grown(generator: np.random.Generator, space: tuple[int, ...], pixels: int) -> Mask:
    """A blob: face-neighbours added at random."""
    mask = np.zeros(space, dtype=bool)
    mask[tuple(generator.integers(0, length) for length in space)] = True
    for _ in range(pixels):
        rim = np.argwhere(scipy.ndimage.binary_dilation(mask) & ~mask)
        if len(rim):
            mask[tuple(generator.choice(rim))] = True
    return mask


def walked(generator: np.random.Generator, space: tuple[int, ...], steps: int) -> Mask:
    """A thin one: a random walk through faces, which rather keeps its direction."""
    mask, place = np.zeros(space, dtype=bool), np.array([generator.integers(0, length) for length in space])
    step = np.zeros(len(space), dtype=int)
    for _ in range(steps):
        mask[tuple(place)] = True
        if generator.random() < 0.5 or not step.any():
            step = np.zeros(len(space), dtype=int)
            step[generator.integers(len(space))] = generator.choice([-1, 1])
        place = np.clip(place + step, 0, np.array(space) - 1)
    return mask


def percolated(generator: np.random.Generator, space: tuple[int, ...]) -> Mask:
    """The largest piece of noise: full of holes, and often at the border."""
    labels, _ = scipy.ndimage.label(generator.random(space) < 0.65)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return labels == sizes.argmax()


def spiral(side: int) -> Mask:
    mask, place, step = np.zeros((side, side), dtype=bool), np.array([0, 0]), np.array([0, 1])
    for length in [side - 1, *itertools.chain.from_iterable((n, n) for n in range(side - 1, 1, -2))]:
        for _ in range(length):
            mask[tuple(place)] = True
            place = place + step
        step = np.array([step[1], -step[0]])
    mask[tuple(place)] = True
    return mask


def named_shapes() -> dict[str, Mask]:
    filled = np.ones((9, 13), dtype=bool)
    ell, you, cross = (np.zeros((14, 11), dtype=bool) for _ in range(3))
    ell[:, 0] = ell[-1, :] = True
    you[:, 0] = you[:, -1] = you[-1, :] = True
    cross[7, :] = cross[:, 4] = True
    staircase = np.zeros((12, 12), dtype=bool)
    for i in range(12):
        staircase[i, max(i - 1, 0) : i + 1] = True
    tube = np.zeros((9, 8, 7), dtype=bool)
    tube[:, 0, 0] = tube[-1, :, 0] = tube[-1, -1, :] = True
    return {"filled": filled, "L": ell, "U": you, "cross": cross, "staircase": staircase, "tube": tube,
            "spiral": spiral(13), "one pixel": np.ones((1, 1), dtype=bool)}  # fmt: skip


def tight_box(mask: Mask) -> Tensor:
    """``[1, 1, axes, 2]``."""
    (found,) = scipy.ndimage.find_objects(mask.astype(int))
    return torch.tensor([[[[side.start, side.stop] for side in found]]])


def hard_logits(mask: Mask) -> Tensor:
    """``[1, 1, *space]``: probabilities of exactly 0 and 1, in float64."""
    return torch.where(torch.from_numpy(mask), 1000.0, -1000.0).double()[None, None]
