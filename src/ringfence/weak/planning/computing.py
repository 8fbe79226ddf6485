"""The network, batches, and how long it is trained: as much as a device does in minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ringfence.weak.planning.choice import Choice, Device
from ringfence.weak.planning.fingerprint import Fingerprint
from ringfence.weak.training.settings import TrainingSettings

FEWEST: Final = 4
"""Times that a network halves a side, at least."""
HALVINGS: Final = 1 << FEWEST
"""Sides of patches are multiples of it."""
WIDER: Final = 1.5
"""Than nine of ten boxes: what tells where an object ends."""
SMALLEST: Final = 4
"""Pixels along the smallest map of a network that halves more often."""
RATES: Final = {32: 5e-4, 16: 1e-3, 8: 2e-3}
"""Learning rates by the network's width: those that the presets were found with."""
LARGE: Final = 128 * 128
"""Pixels of a slice, beyond which a CPU has half as many of them in a batch."""
STEPS: Final = {"cuda": 5600, "cpu": 800}
"""Of a training on slices; a CPU takes 400 for each class, if that is more: classes are found one after another."""
PIXELS: Final = STEPS["cpu"] * 8 * 256 * 256
"""That a CPU goes over in minutes: smaller slices are seen more often."""
MANY: Final = 2800
"""Steps of a CPU on the smallest slices."""
OF_VOLUMES: Final = 2800
"""Steps of a GPU on volumes, each of which has as many voxels as dozens of slices."""
FASTER: Final = 1.6
"""Times as many steps a CPU takes in bfloat16, if it multiplies that by itself (results/speed/bf16_cpu.md)."""


def network_choices(found: Fingerprint, device: Device, patch: Sequence[int] | None, faster: bool) -> list[Choice]:
    """The network, its rate, batches and steps: as much as a device does in minutes."""
    volumes, pixels = patch is not None, math.prod(found.size if patch is None else patch)
    width = 32 if device == "cuda" else 8 if volumes else 16
    longest = max(one.longest for one in found.classes)
    halvings = FEWEST if volumes else halvings_of(found.size, longest)
    features = [width, width, 2 * width, 4 * width, 8 * width, *[8 * width] * (halvings - FEWEST), width]
    arguments = {"features": features, "act": "relu", "norm": "batch", "upsample": "nontrainable"}
    where = "a GPU" if device == "cuda" else "a CPU"
    batch = 2 if volumes else 8 if device == "cpu" and pixels > LARGE else 16
    steps = OF_VOLUMES if device == "cuda" and volumes else STEPS[device]
    if device == "cpu":
        seen = min(MANY, round(PIXELS / (batch * pixels), -2))
        steps = int(max(steps, seen, 400 * len(found.classes)))
        steps = int(round(FASTER * steps, -2)) if faster else steps
    samples = found.cases if volumes else found.slices
    epochs = TrainingSettings(None, steps, batch).lasting(samples).length
    return [
        Choice(
            "network.class_path",
            "monai.networks.nets.BasicUNet" if halvings == FEWEST else "ringfence.weak.networks.unet.DeepUNet",
            f"halves {halvings} times: its smallest map sees {seen_by(halvings)} pixels across, and nine of ten "
            f"boxes are up to {longest:.0f}",
        ),
        Choice("network.init_args", arguments, f"as wide as {where} trains in minutes"),
        Choice("training.lr", RATES[width], "the narrower the network, the larger"),
        Choice(
            "training.batch_size",
            batch,
            "volumes: as little as batch norms can do with" if volumes else "slices, as many as train in minutes",
        ),
        *([Choice("training.precision", "bf16", "this processor multiplies bfloat16 by itself")] if faster else []),
        Choice("training.steps", steps, f"about {epochs} epochs of {samples} samples"),
        Choice("training.epochs", None, "as many as the steps take"),
    ]


def halvings_of(size: Sequence[int], longest: float) -> int:
    """As many as it takes to see an object and what is around it, while its smallest map has some pixels left.

    At least four; and what is around it is half as much again, as in a patch.
    """
    most = int(math.log2(min(size) / SMALLEST)) if min(size) >= SMALLEST else 0
    enough = next(number for number in range(FEWEST, 64) if seen_by(number) >= WIDER * longest)
    return max(FEWEST, min(enough, most))


def seen_by(halvings: int) -> int:
    """9 · 2ⁿ - 4: pixels across that one of the smallest map sees, by two 3 × 3 convolutions in each level."""
    return 9 * (1 << halvings) - 4


def whole_halvings(length: float) -> int:
    """The next length that the network can halve four times."""
    return max(1, math.ceil(length / HALVINGS)) * HALVINGS
