"""Random numbers that depend on what they are for alone: on seed, epoch and sample, not on who asks, or when.

So a sample is augmented in the same way by whichever process has it, on a CPU or a GPU, in a run that was resumed.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

GOLDEN: Final = 0x9E3779B97F4A7C15 - 2**64
"""2^64 over the golden ratio: steps that never come close to each other. Numbers are int64, and wrap around."""
FIRST: Final = 0xBF58476D1CE4E5B9 - 2**64
SECOND: Final = 0x94D049BB133111EB - 2**64
"""The multipliers of SplitMix64 (Steele, Lea and Flood 2014)."""
PATCH: Final = 1 << 20
"""From here on, numbers are for where a patch is cut; those before are for augmentation."""
FIELD: Final = 1 << 16
"""From here on, numbers are for smooth fields."""
TURN: Final = 1 << 18
"""This one is for how far an image is turned."""
NOISE: Final = 1 << 32
"""From here on, one for each pixel."""


def keys(seed: int, epoch: int | Tensor, index: Tensor) -> Tensor:
    """A number for each sample in each epoch, from which its random numbers follow: int64, like ``index``.

    Args:
        seed: of the training.
        epoch: from 0; a tensor, where a CUDA graph must read it anew.
        index: int64 ``[rows]``, the samples' numbers.
    """
    of_epoch = mixed(torch.as_tensor(epoch, device=index.device) + seed * 1_000_003)
    return mixed(of_epoch + index * GOLDEN)


def uniform(key: Tensor, count: int, first: int = 0) -> Tensor:
    """Numbers in [0, 1), float32 ``[rows, count]``: the same on every device.

    Args:
        key: int64 ``[rows]``, of ``keys``.
        count: how many for each sample.
        first: others are different numbers: what they are for.
    """
    place = torch.arange(first + 1, first + 1 + count, device=key.device)
    return ((mixed(key[:, None] + place * GOLDEN) >> 40) & 0xFFFFFF) * 2.0**-24


def bell(key: Tensor, count: int, first: int = NOISE) -> Tensor:
    """Almost normal numbers, of mean 0 and variance 1, float32 ``[rows, count]``: sums of four uniform ones.

    They are between ±3.47. What is lost is the tails; what is won is exactness on every device.
    """
    place = torch.arange(first + 1, first + 1 + count, device=key.device)
    bits = mixed(key[:, None] + place * GOLDEN)
    total = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + ((bits >> 48) & 0xFFFF)
    scaled: Tensor = (total - 131_070).float() * (3.0**0.5 / 65_536)
    return scaled


def mixed(number: Tensor) -> Tensor:
    """SplitMix64's output function: every bit of the result depends on every bit of ``number``, int64."""
    number = (number ^ ((number >> 30) & ((1 << 34) - 1))) * FIRST
    number = (number ^ ((number >> 27) & ((1 << 37) - 1))) * SECOND
    return number ^ ((number >> 31) & ((1 << 33) - 1))
