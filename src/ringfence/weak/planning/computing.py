"""What is trained, and how long: slices or patches of volumes, the network, batches and steps, for a device."""

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
VOXELS: Final = {"cuda": 128**3, "cpu": 32 * 64 * 64}
"""Of a patch, at most."""
HALF: Final = 0.5
"""Of a volume, which a patch must hold for volumes to be chosen."""
ROOM: Final = PIXELS // (2 * MANY)
"""Of a patch, at least, as far as volumes have as many: what a CPU goes over in all steps; smaller ones lost."""
DEEP: Final = 0.5
"""Slices of an object for each pixel across it, from which on it is found better in volumes."""


def in_space(found: Fingerprint, device: Device) -> bool:
    """Whether to train on volumes, if nobody says: where boxes are in 3-D alone, or slices are close to each other.

    So they are if objects go through at least half as many slices as nine of ten have pixels across. A patch must
    hold these whole, and half of a volume: of what is around objects, small patches see too little. And classes
    that do not show are better found in slices, where a second network learns.
    """
    if not found.tight:
        return True
    deep = all(one.depth >= max(2.0, DEEP * one.longest) and not one.hidden for one in found.classes)
    whole, volume = math.prod(_whole_patch(found)), found.depths[1] * math.prod(found.size)
    return deep and whole <= VOXELS[device] and math.prod(patch_of(found, VOXELS[device])) >= HALF * volume


def space_choices(
    found: Fingerprint, device: Device, patch: Sequence[int] | None, asked: bool = False, sized: bool = False
) -> list[Choice]:
    """Slices, or patches of volumes that are larger than the boxes.

    Args:
        found: the fingerprint.
        device: what trains.
        patch: slices, rows and columns; None: slices.
        asked: whether slices or volumes were asked for.
        sized: and patches of this size.
    """
    apart = found.flatness
    known = "of unknown spacing" if apart is None else f"{apart:.1f} times as far apart as rows"
    if patch is None:
        what = "images of one slice" if found.depths[2] == 1 else f"slices ({known})"
        why = "as asked for" if asked else "each has boxes of its own, and they say most there"
        return [
            Choice("data.volumes", False, f"{what}: {why}"),
            Choice("data.patch", None, "slices are trained on whole"),
        ]
    if sized:
        return [
            Choice("data.volumes", True, f"volumes ({known}), as asked for"),
            Choice("data.patch", list(patch), "as asked for"),
        ]
    deep, longest, _ = _extent(found)
    most = found.depths[2]
    filled = (
        f"; the network halves slices four times, too, and up to {most} of them are filled up to {patch[0]}"
        if most < patch[0]
        else ""
    )
    if asked:
        why = ", as asked for"
    elif found.tight:
        why = ": objects are about as deep in slices as wide in pixels, so that neighbouring slices help each other"
    else:
        why = ": boxes are in 3-D, and speak of whole objects alone"
    return [
        Choice("data.volumes", True, f"volumes ({known}){why}"),
        Choice(
            "data.patch",
            list(patch),
            f"half as large again as objects ({deep:.0f} slices of up to {longest:.0f} pixels), or as much more of "
            f"a volume as {ROOM:,} voxels have room for; {VOXELS[device]:,} at most{filled}",
        ),
    ]


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


def patch_of(found: Fingerprint, most: int) -> list[int]:
    """Whole objects and half as much again, or more of the volume if that is little.

    What is too much is taken from the side that has most to spare; what is too little, added to that which sees the
    least of a volume.
    """
    sides, extent = _whole_patch(found), _extent(found)
    volume = (found.depths[2], *found.size)
    while shorter := [axis for axis in range(3) if sides[axis] < volume[axis]]:
        axis = min(shorter, key=lambda one: (sides[one] / volume[one], -one))
        if math.prod(sides) // sides[axis] * (sides[axis] + HALVINGS) > ROOM:
            break
        sides[axis] += HALVINGS
    while math.prod(sides) > most and max(sides) > HALVINGS:
        spare = [side / length if side > HALVINGS else 0.0 for side, length in zip(sides, extent, strict=True)]
        sides[spare.index(max(spare))] -= HALVINGS
    return sides


def _whole_patch(found: Fingerprint) -> list[int]:
    limits = (found.depths[2], *found.size)
    return [
        min(whole_halvings(limit), whole_halvings(WIDER * length))
        for limit, length in zip(limits, _extent(found), strict=True)
    ]


def _extent(found: Fingerprint) -> tuple[float, float, float]:
    """Slices (the median), rows and columns (nine of ten boxes) of objects of the largest class along each.

    They tell how flat objects are, whatever the spacing.
    """
    longest = max(one.longest for one in found.classes)
    return max(one.depth for one in found.classes), longest, longest


def whole_halvings(length: float) -> int:
    """The next length that the network can halve four times."""
    return max(1, math.ceil(length / HALVINGS)) * HALVINGS
