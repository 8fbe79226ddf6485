"""How voxels become what a network reads: grey values between two percentiles, slices of one size or one spacing.

The one place that knows it: a prepared set is made by it, says so in its manifest, and a model carries it along, so
that new images are treated as those it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ringfence.hints import hint, shown
from ringfence.numbers import is_number
from ringfence.weak.prepared.frame import Frame
from ringfence.weak.volumes.geometry import LARGEST as LONGEST
from ringfence.weak.volumes.geometry import SMALLEST as SHORTEST

AT_ONCE: Final = 16
"""Slices that are resized at a time: as floats they take four times the room."""
PERCENTILES: Final = (0.5, 99.5)
"""What becomes 0 and 255 by default: a few very bright voxels would otherwise darken all others."""
VERSION: Final = 2
"""Of what is described; 1, which had no spacing, is written where there is none: earlier ringfences read it."""
MULTIPLE: Final = 16
"""Of which a chosen size is one: a U-Net of four levels halves it four times."""
LARGEST: Final = 65_536
"""Pixels along a side."""


@dataclass(frozen=True)
class Preprocessing:
    """grey = round(255 · clip((v - p_low) / (p_high - p_low), 0, 1)), then slices resized to ``size``.

    p_low and p_high are percentiles of the volume's own voxels, over all its slices. With a ``spacing``, slices are
    resized to pixels of that many millimetres instead, whatever their own, and lie in the middle of ``size``, with
    zeros around them. Slices stay slices: nothing is resampled across them.

    Attributes:
        size: height and width of every slice.
        percentiles: those that become 0 and 255, 0 <= low < high <= 100.
        spacing: millimetres between rows, and between columns; None: slices fill ``size``.
    """

    size: tuple[int, int]
    percentiles: tuple[float, float] = PERCENTILES
    spacing: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _size(self.size))
        object.__setattr__(self, "percentiles", _percentiles(self.percentiles))
        object.__setattr__(self, "spacing", checked_spacing(self.spacing))

    def frame(
        self, native: tuple[int, int], spacing: Sequence[float] | None = None, *, grow: bool = False
    ) -> Frame:
        """Where a volume's slices go.

        Args:
            native: their height and width.
            spacing: millimetres between their rows and between their columns; None if unknown.
            grow: where they are larger than ``size``, let prepared ones be larger, too; else they are refused.
        """
        if self.spacing is None:
            return Frame(native, self.size, (0, 0), self.size)
        if spacing is None:
            raise ValueError(
                f"its spacing is not known (a header's 1 1 1 says nothing), and pixels of {self.spacing:g} mm are "
                "needed: write it into the header"
            )
        inner = size_at(native, spacing, self.spacing)
        pixels = "{} × {} pixels of {:g} mm".format(*inner, self.spacing)
        if max(inner) > LARGEST or (not grow and (inner[0] > self.size[0] or inner[1] > self.size[1])):
            raise ValueError(
                "its slices take {}, and there is room for {} × {}: a larger --size or a larger --spacing is "
                "needed".format(pixels, *self.size)
            )
        height, width = (
            max(side, up(length)) if length > side else side for side, length in zip(self.size, inner, strict=True)
        )
        start = (height - inner[0]) // 2, (width - inner[1]) // 2
        return Frame(native, inner, start, (height, width))

    def image(self, voxels: NDArray[Any], spacing: Sequence[float] | None = None) -> NDArray[np.uint8]:
        """One channel of a volume ``[slices, height, width]`` as a network reads it: uint8 ``[slices, *size]``."""
        return framed(normalised(voxels, self.percentiles), self._frame(voxels, spacing))

    def labels(self, labels: NDArray[Any], spacing: Sequence[float] | None = None) -> NDArray[Any]:
        """A mask ``[slices, height, width]`` in the same grid, ``[slices, *size]``."""
        frame = self._frame(labels, spacing)
        return _surrounded(resized_labels(labels, frame.size), frame)

    def _frame(self, voxels: NDArray[Any], spacing: Sequence[float] | None) -> Frame:
        return self.frame((voxels.shape[-2], voxels.shape[-1]), spacing)

    def to_facts(self) -> dict[str, Any]:
        """All of it as plain values, for JSON: :meth:`from_facts` makes the same one of them."""
        facts = {"size": list(self.size), "percentiles": list(self.percentiles)}
        if self.spacing is None:
            return {"version": 1, **facts}
        return {"version": VERSION, **facts, "spacing": self.spacing}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Preprocessing:
        """What :meth:`to_facts` described; that of a newer version of ringfence is refused."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"preprocessing is {shown(facts)}; names and values are needed")
        version = facts.get("version", 1)
        if type(version) is not int or not 1 <= version <= VERSION:
            raise ValueError(
                f"preprocessing has version {shown(version)}, and this ringfence knows 1 to {VERSION}: update "
                "ringfence"
            )
        known = ["version", "size", "percentiles", *(["spacing"] if version > 1 else [])]
        if unknown := [str(name) for name in facts if name not in known]:
            raise ValueError(
                f"preprocessing has {shown(unknown[0])}, which this ringfence does not know: "
                f"{hint(unknown[0], known)} If a newer ringfence wrote it, update this one"
            )
        if missing := [name for name in known[1:] if name not in facts]:
            raise ValueError(f"preprocessing has no {' and no '.join(missing)}")
        return cls(facts["size"], facts["percentiles"], facts.get("spacing"))


def normalised(voxels: NDArray[Any], percentiles: tuple[float, float] = PERCENTILES) -> NDArray[np.uint8]:
    """A volume's voxels as 0..255: linear between two percentiles of its own, cut off beyond them."""
    least, most = float(voxels.min()), float(voxels.max())
    if not math.isfinite(most - least):  # Python's own numbers overflow without a warning
        raise ValueError(f"values from {least:g} to {most:g} are too far apart to compute with: rescale them")
    low, high = np.percentile(voxels, percentiles)
    if high <= low:  # mostly one value: use the whole range
        low, high = least, most
    grey: NDArray[np.uint8] = np.empty(voxels.shape, np.uint8)
    for place, part in zip(grey, voxels, strict=True):  # as floats, a slice takes eight times the room
        unit = (np.clip(part, low, high) - low) / max(float(high - low), 1e-12)
        place[...] = np.round(255.0 * np.clip(unit, 0.0, 1.0))
    return grey


def size_at(native: tuple[int, int], spacing: Sequence[float], wanted: float) -> tuple[int, int]:
    """Height and width in pixels of ``wanted`` millimetres: whole ones, so that theirs is that to half a pixel."""
    height, width = (max(1, round(length * step / wanted)) for length, step in zip(native, spacing, strict=True))
    return height, width


def up(length: float) -> int:
    """The next multiple of 16."""
    return max(1, math.ceil(length / MULTIPLE)) * MULTIPLE


def framed(grey: NDArray[np.uint8], frame: Frame) -> NDArray[np.uint8]:
    """Slices ``[..., *native]`` as they are in prepared ones: ``[..., *canvas]``."""
    return _surrounded(resized(grey, frame.size), frame)


def _surrounded(maps: NDArray[Any], frame: Frame) -> NDArray[Any]:
    if frame.full:
        return maps
    around: NDArray[Any] = np.zeros((*maps.shape[:-2], *frame.canvas), maps.dtype)
    rows, columns = frame.inside
    around[..., rows, columns] = maps
    return around


def resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Slices ``[..., height, width]`` at another in-plane size: bilinear, with antialiasing."""
    if image.shape[-2:] == tuple(size):
        return image
    flat = torch.from_numpy(np.ascontiguousarray(image)).reshape(-1, 1, *image.shape[-2:])
    scaled = [
        F.interpolate(some.float(), size, mode="bilinear", antialias=True).round_().clamp_(0, 255).to(torch.uint8)
        for some in flat.split(AT_ONCE)
    ]
    return torch.cat(scaled).reshape(*image.shape[:-2], *size).numpy()


def resized_labels(labels: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Labels ``[..., height, width]`` at another in-plane size: that of the nearest voxel.

    A class of a slice that none of the sampled places meets would be gone, and its slice would teach that it is not
    there: it is put where its own voxels are.
    """
    if labels.shape[-2:] == tuple(size):
        return labels
    slices = np.ascontiguousarray(labels).reshape(-1, *labels.shape[-2:])
    nearest = [
        F.interpolate(some.float(), size, mode="nearest-exact").squeeze(1).numpy().astype(labels.dtype)
        for some in torch.from_numpy(slices).unsqueeze(1).split(AT_ONCE)
    ]
    small: NDArray[Any] = np.concatenate(nearest)
    for label in np.unique(slices[slices > 0]):
        lost = (slices == label).any(axis=(1, 2)) & ~(small == label).any(axis=(1, 2))
        for place in np.flatnonzero(lost):
            inside = np.nonzero(slices[place] == label)
            scaled = [
                (2 * one + 1) * new // (2 * old)
                for one, new, old in zip(inside, size, slices.shape[1:], strict=True)
            ]
            small[place][tuple(scaled)] = label
    return small.reshape(*labels.shape[:-2], *size)


def _size(values: Sequence[Any]) -> tuple[int, int]:
    if (
        not isinstance(values, (tuple, list))
        or len(values) != 2
        or not all(isinstance(value, Integral) and not isinstance(value, bool) for value in values)
        or not all(1 <= value <= LARGEST for value in values)
    ):
        raise ValueError(
            f"size is {shown(values)}; height and width are needed, whole numbers between 1 and {LARGEST}"
        )
    return int(values[0]), int(values[1])


def _percentiles(values: Sequence[Any]) -> tuple[float, float]:
    if (
        not isinstance(values, (tuple, list))
        or len(values) != 2
        or not all(map(is_number, values))
        or not 0 <= values[0] < values[1] <= 100
    ):
        raise ValueError(f"percentiles are {shown(values)}; two are needed, the lower first, between 0 and 100")
    return float(values[0]), float(values[1])


def checked_spacing(value: Any) -> float | None:
    """Millimetres, or None."""
    if value is None:
        return None
    if not is_number(value) or not SHORTEST <= value <= LONGEST:
        raise ValueError(f"spacing is {shown(value)}; a number of millimetres above 0 is needed")
    return float(value)
