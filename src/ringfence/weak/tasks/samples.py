"""From a prepared set to samples: slices, or whole volumes and tiles of them, with the constraints' targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ringfence.options import inside
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.constraints.boxes import box_targets, moved_boxes
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.constraints.constraint import Constraint
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.prepared.prepared_set import Case, PreparedSet

Rows = dict[str, Tensor]
Patch = tuple[int, int, int]


@dataclass(frozen=True)
class Reader:
    """Reads the samples of a set's cases.

    Attributes:
        prepared: the set.
        constraints: whose targets are read.
        boxes: from a file of annotations; None where boxes are taken from the masks.
        margin: pixels by which boxes may be too wide on every side.
        smallest: pixels; smaller parts of a mask get no box.
        each: called after every case.
    """

    prepared: PreparedSet
    constraints: Mapping[str, Constraint]
    boxes: Sequence[BoxAnnotation] | None = None
    margin: int = 0
    smallest: int = 1
    each: Callable[[], None] = lambda: None

    def slices(self, cases: Sequence[Case]) -> Rows:
        """A sample for each slice: ``image``, ``mask``, ``case`` and targets."""
        return joined([self._rows(case, number, volume=False) for number, case in enumerate(cases)])

    def volumes(self, cases: Sequence[Case], patch: Patch) -> Rows:
        """A sample for each case, all padded to the same number of slices, and to no less than a patch."""
        rows = [self._rows(case, number, volume=True) for number, case in enumerate(cases)]
        shape = [max(patch[axis], *(one["image"].shape[2 + axis] for one in rows)) for axis in range(3)]
        for one in rows:
            for name in ("image", "mask"):
                one[name] = padded(one[name], shape)
        return joined(rows)

    def tiles(self, cases: Sequence[Case], patch: Patch) -> Rows:
        """Cases in tiles beside each other; ``judged`` is False where a tile is beyond its volume."""
        tiles: list[Rows] = []
        for number, case in enumerate(cases):
            volume = self._rows(case, number, volume=True)
            space = volume["image"].shape[2:]
            shape = [-(-length // size) * size for length, size in zip(space, patch, strict=True)]
            volume["judged"] = padded(torch.ones(1, 1, *space, dtype=torch.bool), shape)[:, 0]
            volume["image"], volume["mask"] = padded(volume["image"], shape), padded(volume["mask"], shape)
            starts = [range(0, length, size) for length, size in zip(shape, patch, strict=True)]
            for start in torch.cartesian_prod(*(torch.tensor(list(one)) for one in starts)):
                tiles.append(self._tile(volume, start, shape, patch))
        return joined(tiles)

    def _tile(self, volume: Rows, start: Tensor, shape: Sequence[int], patch: Patch) -> Rows:
        tile = volume | moved_targets(volume, self.constraints, Motion.crop(start[None], shape, patch))
        for axis, (first, size) in enumerate(zip(start.tolist(), patch, strict=True)):
            for name in ("image", "mask", "judged"):
                tile[name] = tile[name].narrow(tile[name].ndim - 3 + axis, first, size)
        return tile

    def _rows(self, case: Case, number: int, *, volume: bool) -> Rows:
        image, labels = self.prepared.load(case)
        pixels, mask = torch.from_numpy(image), _masks(labels, case, self.prepared)
        if volume:
            pixels, mask = pixels.transpose(0, 1)[None], mask.transpose(0, 1)[None]
        samples = CaseSamples(
            pixels,
            mask,
            case,
            self.prepared.size,
            case.masked,
            [one for one in self.boxes or () if one.case == case.name],
            self.margin,
            self.smallest,
        )
        rows = {"image": pixels, "mask": mask, "case": _numbers(case, number, len(pixels))}
        rows |= box_targets(samples)  # also where no constraint is about boxes: patches are aimed by them
        for name, one in self.constraints.items():
            with inside(f"constraints.{name}: "):
                _add(rows, one.targets(samples), samples)
        self.each()
        return rows


def _add(rows: Rows, targets: Mapping[str, Tensor], samples: CaseSamples) -> None:
    """Put a constraint's targets with the others; several may share one, as they do boxes, if it is the same."""
    for name, target in targets.items():
        if len(target) != len(samples.image):
            raise ValueError(f"{name} has {len(target)} rows, and {samples.name} has {len(samples.image)} samples")
        there = rows.setdefault(name, target)
        if there is not target and not torch.equal(there, target):
            raise ValueError(
                f"its target '{name}' of {samples.name} is there already, with other values: another constraint's, "
                "or the sample's own. Give it another name; a kind with targets of its own can be asked for once"
            )


def moved_targets(rows: Mapping[str, Tensor], constraints: Mapping[str, Constraint], motion: Motion) -> Rows:
    """The targets of all constraints after the images have moved."""
    moved = moved_boxes(rows, motion) if "box" in rows else {}
    for one in constraints.values():
        moved |= one.moved(rows, motion)
    return moved


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows one after another; where parts have fewer objects than others, zeros fill up: empty boxes, none cut."""
    return {name: _joined([part[name] for part in parts], filling=name == "whole") for name in parts[0]}


def _joined(parts: Sequence[Tensor], *, filling: bool = False) -> Tensor:
    largest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]

    def filled(part: Tensor) -> Tensor:
        missing = [most - there for most, there in zip(largest, part.shape[1:], strict=True)]
        widths = [width for one in reversed(missing) for width in (0, one)]
        return F.pad(part, widths, value=float(filling)) if any(missing) else part

    return torch.cat([filled(part) for part in parts])


def padded(volume: Tensor, shape: Sequence[int]) -> Tensor:
    """``[B, C, z, y, x]`` with zeros after the end of each axis of space: how a network learns what is beyond."""
    missing = [size - length for size, length in zip(shape, volume.shape[2:], strict=True)]
    return F.pad(volume, [width for pair in reversed(missing) for width in (0, pair)])


def check_memory(prepared: PreparedSet, free: int | None = None) -> None:
    """Refuse a set that memory cannot hold: a system that runs out of it ends the program without a word.

    Args:
        prepared: the set, all of which is read.
        free: bytes that can be had; default: asked from Linux, and not known elsewhere.
    """
    free = _available() if free is None else free
    pixels = sum(case.shape[0] for case in prepared.cases) * prepared.size[0] * prepared.size[1]
    needed = 2 * pixels * (len(prepared.channels) + len(prepared.classes))  # a byte each; twice while put together
    if free is not None and needed > free:
        raise ValueError(
            f"{prepared.path} needs about {needed / 1e9:.1f} GB of memory to train on, and {free / 1e9:.1f} GB can "
            "be had: prepare it with a smaller --size, or fewer cases"
        )


def _available() -> int | None:
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _numbers(case: Case, number: int, count: int) -> Tensor:
    """Which case each sample is part of; negative where there is no mask to judge by."""
    return torch.full((count,), number if case.masked else -1 - number)


def _masks(labels: NDArray[np.uint8] | None, case: Case, prepared: PreparedSet) -> Tensor:
    """bool ``[slices, classes, height, width]``; all False where there are none."""
    shape = (case.shape[0], len(prepared.classes), *prepared.size)
    if labels is None:
        return torch.zeros(shape, dtype=torch.bool)
    found = torch.from_numpy(labels)
    return torch.stack([found == number for number in range(1, 1 + shape[1])], dim=1)
