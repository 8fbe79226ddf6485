"""A prepared set: every case as small arrays of the same in-plane size, and a manifest that says what they are.

    manifest.json     format, name, size, channels, classes, the classes' labels in the source, and for each case:
                      file, checksum, split, native shape, spacing where known, whether it has a mask
    CASE.npz          image uint8 [slices, channels, height, width]; mask uint8 [slices, height, width] if it has
                      one, 0 for background and k for the k-th of the classes

Nothing in it is pickled: what somebody else prepared is safe to read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ringfence.files import write_text

MANIFEST: Final = "manifest.json"
FORMAT: Final = "ringfence prepared set 1"
PERCENTILES: Final = (0.5, 99.5)
"""What becomes 0 and 255: a few very bright voxels would otherwise darken all others."""

Split: TypeAlias = Literal["train", "validation"]


@dataclass(frozen=True)
class Case:
    """One patient.

    Attributes:
        name: as in the source's file names.
        split: what it is for.
        file: its arrays, in the set's folder.
        sha256: of that file.
        shape: of the source's volume: slices, height, width.
        spacing: millimetres between voxels along z, y, x in the source; None if nobody knows.
        masked: whether it has a mask.
    """

    name: str
    split: Split
    file: str
    sha256: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    masked: bool


@dataclass(frozen=True)
class PreparedSet:
    """What ``ringfence prepare`` wrote.

    Attributes:
        path: its folder.
        name: of the data set.
        size: height and width of every slice.
        channels: names of the images' channels.
        classes: names of the foreground classes; the k-th is k in the prepared masks.
        cases: all of them.
        labels: the classes' values in the source's masks, in the same order; 1, 2, ... unless given.
    """

    path: Path
    name: str
    size: tuple[int, int]
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    cases: tuple[Case, ...]
    labels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", checked_labels(self.labels, self.classes))

    def of(self, split: Split) -> tuple[Case, ...]:
        """The cases of a split."""
        return tuple(case for case in self.cases if case.split == split)

    def load(self, case: Case) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
        """A case's image ``[slices, channels, height, width]`` and its mask ``[slices, height, width]``, if any."""
        path = self.path / case.file
        try:
            with np.load(path, allow_pickle=False) as arrays:
                image, mask = arrays["image"], arrays["mask"] if case.masked else None
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} is missing: prepare the set again") from None
        except Exception as error:  # zipfile's, zlib's, NumPy's own
            raise ValueError(f"{path} is damaged ({type(error).__name__}): prepare the set again") from None
        expected = (case.shape[0], len(self.channels), *self.size)
        if image.shape != expected or (mask is not None and mask.shape != (expected[0], *self.size)):
            raise ValueError(f"{path}: an image {list(image.shape)}, but {MANIFEST} says {list(expected)}")
        if mask is not None and int(mask.max(initial=0)) > len(self.classes):
            raise ValueError(
                f"{path}: label {mask.max()} in its mask, and {len(self.classes)} classes in {MANIFEST}"
            )
        return image, mask

    def write_manifest(self) -> None:
        """Write the manifest, last of all: a folder without one is not a prepared set."""
        facts = asdict(self) | {"format": FORMAT}
        del facts["path"]
        write_text(self.path / MANIFEST, json.dumps(facts, indent=1) + "\n")


def read_prepared(path: str | Path) -> PreparedSet:
    """Read the manifest of a prepared set; its arrays are read by ``load``."""
    path = Path(path)
    if path.name == MANIFEST and path.is_file():  # it was meant so
        path = path.parent
    file = path / MANIFEST
    if not file.exists():
        raise FileNotFoundError(
            f"{path} is no prepared set: there is no {MANIFEST} in it. Make one with `ringfence prepare`"
        )
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is '{facts['format']}', this version reads '{FORMAT}'")
        prepared = PreparedSet(
            path,
            str(facts["name"]),
            _pair(facts["size"]),
            tuple(map(str, facts["channels"])),
            tuple(map(str, facts["classes"])),
            tuple(_case(one) for one in facts["cases"]),
            tuple(facts.get("labels", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} cannot be used: {type(error).__name__}: {error}") from None
    _check_split(file, prepared)
    return prepared


def checked_labels(labels: Sequence[int], classes: Sequence[str]) -> tuple[int, ...]:
    """The classes' values in masks: 1, 2, ... unless given; what is no such values is refused."""
    found = tuple(labels) or tuple(range(1, 1 + len(classes)))
    if (
        len(found) != len(classes)
        or len(set(found)) != len(found)
        or not all(type(label) is int and 1 <= label <= 255 for label in found)
    ):
        raise ValueError(f"labels {list(found)}: each of {', '.join(classes)} has one of its own, from 1 to 255")
    return found


def normalised(voxels: NDArray[Any]) -> NDArray[np.uint8]:
    """A volume's voxels as 0..255: linear between two percentiles of its own, cut off beyond them."""
    least, most = float(voxels.min()), float(voxels.max())
    if not math.isfinite(most - least):  # Python's own numbers overflow without a warning
        raise ValueError(f"values from {least:g} to {most:g} are too far apart to compute with: rescale them")
    low, high = np.percentile(voxels, PERCENTILES)
    if high <= low:  # mostly one value: use the whole range
        low, high = least, most
    unit = (np.clip(voxels, low, high) - low) / max(float(high - low), 1e-12)
    grey: NDArray[np.uint8] = np.round(255.0 * np.clip(unit, 0.0, 1.0)).astype(np.uint8)
    return grey


def resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Slices ``[..., height, width]`` at another in-plane size, linearly and without aliasing."""
    if image.shape[-2:] == tuple(size):
        return image
    flat = torch.from_numpy(np.ascontiguousarray(image)).reshape(-1, 1, *image.shape[-2:]).float()
    scaled = F.interpolate(flat, size, mode="bilinear", antialias=True).round_().clamp_(0, 255)
    return scaled.to(torch.uint8).reshape(*image.shape[:-2], *size).numpy()


def resized_labels(labels: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Labels ``[..., height, width]`` at another in-plane size: the nearest one.

    An object that falls between the places that are looked at would be gone, and its slice would teach that it is
    not there: it is put where its own voxels are.
    """
    if labels.shape[-2:] == tuple(size):
        return labels
    slices = np.ascontiguousarray(labels).reshape(-1, *labels.shape[-2:])
    nearest = F.interpolate(torch.from_numpy(slices).unsqueeze(1).float(), size, mode="nearest-exact")
    small: NDArray[Any] = nearest.squeeze(1).numpy().astype(labels.dtype)
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


def _pair(values: Any) -> tuple[int, int]:
    height, width = (int(value) for value in values)
    return height, width


def _case(facts: Any) -> Case:
    if facts["split"] not in ("train", "validation"):
        raise ValueError(f"case {facts['name']} is in split '{facts['split']}': train or validation")
    name = Path(str(facts["file"]))
    if name.name != str(name):
        raise ValueError(f"case {facts['name']}: its file '{name}' should be in the set's own folder")
    slices, height, width = (int(value) for value in facts["shape"])
    spacing = None
    if facts["spacing"] is not None:
        depth, row, column = (float(value) for value in facts["spacing"])
        spacing = (depth, row, column)
    return Case(
        str(facts["name"]),
        facts["split"],
        str(name),
        str(facts["sha256"]),
        (slices, height, width),
        spacing,
        bool(facts["masked"]),
    )


def _check_split(file: Path, prepared: PreparedSet) -> None:
    names = [case.name for case in prepared.cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{file}: {', '.join(twice)} is there more than once; no patient may be in both splits")
