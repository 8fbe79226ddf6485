"""Data sets that nobody has seen, to try `ringfence plan` on: images, boxes as a person would draw them, and masks.

    python benchmarks/generated_sets.py organs downloads/organs

Writes a folder as nnU-Net v2 has them (``imagesTr``, ``dataset.json``) and ``boxes.csv``; ``labelsTr`` has masks of
the cases for validation alone (``--masks``: of all), so that training has nothing but boxes. ``imagesTs`` and
``labelsTs`` hold cases for a last test. The same seed gives the same voxels.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

TRAIN, VALIDATION, TEST = 16, 4, 4
"""Cases of each set, unless it says otherwise."""

Scene: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int16], tuple[float, float, float]]
"""A case: labels, image, and spacing."""


@dataclass(frozen=True)
class Kind:
    """One kind of set.

    Attributes:
        about: in a line.
        shape: slices, rows and columns of a volume.
        spacing: millimetres along the same.
        diameters: of each class, in pixels: the least and the most.
        contrast: what each class adds to each channel, in units of the noise.
        objects: how many of each class there are in a volume.
        scene: how the objects lie: ``apart``, ``nested``, or ``halves`` of one (the first class: its first rows).
        bumps: how far outlines are from ellipses, as a fraction of the radius.
        aspect: how many times as long as wide objects are, which then lie at any angle in their slices.
        rough: of each class, how much rougher it is than what is around it, in units of the noise.
        blur: pixels by which a boundary is blurred.
        cases: for training; default: 16.
        zoom: each case's rows and columns are this many times as far apart, between the least and the most, and its
            objects as many times smaller in pixels.
    """

    about: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    diameters: tuple[tuple[float, float], ...]
    contrast: tuple[tuple[float, ...], ...]
    objects: int = 1
    scene: str = "apart"
    bumps: float = 0.12
    aspect: float = 1.0
    rough: tuple[float, ...] = ()
    blur: float = 0.7
    cases: int = TRAIN
    zoom: tuple[float, float] = (1.0, 1.0)

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.diameters)


KINDS: Final = {
    "bricks": Kind(
        "two classes, 10 pixels across, small isotropic volumes",
        (36, 48, 36),
        (1, 1, 1),
        ((9, 13), (8, 11)),
        ((2.5,), (-2.5,)),
    ),
    "cells": Kind(
        "two classes, 8 to 18 pixels, many in each image, three channels, single images",
        (1, 96, 96),
        (1, 0.5, 0.5),
        ((12, 18), (8, 12)),
        ((3.0, 0.5, -1.0), (-1.0, 2.0, 3.0)),
        objects=4,
        cases=96,
    ),
    "grains": Kind(
        "one class, 8 pixels across, isotropic", (16, 48, 48), (1, 1, 1), ((7, 10),), ((3.0,),), objects=3
    ),
    "organs": Kind(
        "four classes, 12 to 32 pixels, two channels, three times as thick slices",
        (12, 96, 96),
        (3, 1, 1),
        ((26, 32), (18, 24), (14, 20), (12, 16)),
        ((3.0, 1.0), (1.0, 3.0), (-2.5, 1.5), (2.5, -2.5)),
    ),
    "slabs": Kind(
        "one class, 60 to 120 pixels across, eight times as thick slices",
        (6, 160, 160),
        (8, 1, 1),
        ((60, 120),),
        ((2.0,),),
        cases=24,
    ),
    "targets": Kind(
        "a ring, the disc within it, and a crescent beside them",
        (10, 64, 64),
        (2, 1, 1),
        ((28, 36), (16, 20), (16, 20)),
        ((2.5,), (-2.0,), (1.2,)),
        scene="nested",
    ),
    "zooms": Kind(
        "two classes that differ in nothing but their size, 12 and 20 mm, in images of different zoom",
        (8, 64, 64),
        (3, 1, 1),
        ((18, 22), (10, 13)),
        ((2.5,), (2.5,)),
        zoom=(0.6, 1.2),
    ),
    "rods": Kind(
        "one class, 30 to 44 pixels long and a fifth as wide, at any angle",
        (10, 80, 80),
        (3, 1, 1),
        ((30, 44),),
        ((2.5,),),
        objects=2,
        aspect=5.0,
    ),
    "drops": Kind(
        "one class of 8 to 60 pixels, two in a volume",
        (10, 96, 96),
        (3, 1, 1),
        ((8, 60),),
        ((2.5,),),
        objects=2,
    ),
    "grit": Kind(
        "one class, 24 to 40 pixels, as bright as what is around it, but rougher",
        (8, 80, 80),
        (3, 1, 1),
        ((24, 40),),
        ((0.0,),),
        rough=(1.5,),
    ),
    "shades": Kind(
        "one class, 40 to 70 pixels, faint, with a blurred boundary, single images",
        (1, 112, 112),
        (1, 0.5, 0.5),
        ((40, 70),),
        ((-3.0,),),
        blur=3.0,
        cases=80,
    ),
    "twins": Kind(
        "two classes, the halves of one object of 16 to 22 pixels, small isotropic volumes",
        (24, 48, 40),
        (1, 1, 1),
        ((16, 22), (16, 22)),
        ((2.4,), (2.0,)),
        scene="halves",
    ),
    "sands": Kind(
        "two classes, 24 to 34 and 16 to 22 pixels, as bright as what is around them, rougher and rougher still",
        (10, 80, 80),
        (3, 1, 1),
        ((24, 34), (16, 22)),
        ((0.0,), (0.0,)),
        rough=(1.3, 3.0),
    ),
    "slivers": Kind(
        "two classes, 16 to 20 and 24 to 30 pixels long and a third as wide, at any angle, two channels",
        (16, 96, 96),
        (3, 1, 1),
        ((16, 20), (24, 30)),
        ((-2.4, 3.0), (2.8, 1.5)),
        aspect=3.0,
    ),
}
"""By name; the place of a kind is part of its seed, so that new ones come last."""


class About(Protocol):
    """A kind of set, of whatever generator."""

    @property
    def about(self) -> str:
        """In a line."""


def main(kinds: Mapping[str, About], write_set: Callable[..., None]) -> None:
    """Write a set of one of the kinds: ``write_set(name, folder, seed, masks=, jitter=, loose=)``."""
    parser = argparse.ArgumentParser(description="Write a generated data set.")
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("folder", type=Path, help="where to; it must not be there yet")
    parser.add_argument("--masks", action="store_true", help="write the masks of all cases")
    parser.add_argument(
        "--jitter", type=float, default=0.0, help="move each side of a box by up to this × its side"
    )
    parser.add_argument("--loose", type=float, default=0.0, help="make boxes larger by this × their sides")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.folder.exists():
        parser.error(f"{asked.folder} is there already: name a new folder")
    write_set(asked.kind, asked.folder, asked.seed, masks=asked.masks, jitter=asked.jitter, loose=asked.loose)
    print(f"{asked.folder}: {kinds[asked.kind].about}")


def write_set(name: str, folder: Path, seed: int = 0, **more: Any) -> None:
    """Write the set of this name; ``more`` as for ``write_folder``."""
    kind = KINDS[name]

    def draw(random: np.random.Generator) -> Scene:
        one = kind if kind.zoom[0] == kind.zoom[1] else zoomed(kind, random.uniform(*kind.zoom))
        return (*scene(one, random), one.spacing)

    write_folder(folder, draw, kind.classes, kind.cases, [seed, list(KINDS).index(name)], **more)


def write_folder(
    folder: Path,
    draw: Callable[[np.random.Generator], Scene],
    classes: int,
    cases: int,
    seed: list[int],
    masks: bool = False,
    jitter: float = 0.0,
    loose: float = 0.0,
    tests: int = TEST,
) -> None:
    """Write a set of cases that ``draw`` makes: so many of them for training."""
    random, hand = np.random.default_rng(seed), np.random.default_rng(seed[0])
    count = cases + VALIDATION
    rows = []
    channels = 0
    for number in range(count + tests):
        part, case = ("Tr", f"case_{number:03}") if number < count else ("Ts", f"test_{number - count:03}")
        labels, image, spacing = draw(random)
        channels = len(image)
        for channel, voxels in enumerate(image):
            write(folder / f"images{part}" / f"{case}_{channel:04}.nii.gz", voxels, spacing)
        if masks or number >= cases:
            write(folder / f"labels{part}" / f"{case}.nii.gz", labels, spacing)
        if part == "Tr":
            rows += [(case, *row) for row in boxes(labels, classes, hand, jitter, loose)]
    facts = {
        "channel_names": {str(one): f"channel {one}" for one in range(channels)},
        "labels": {"background": 0} | {f"class {one}": one for one in range(1, 1 + classes)},
        "numTraining": count,
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(facts, indent=2) + "\n")
    names = [f"case_{number:03}" for number in range(count)]
    split = [{"train": names[:cases], "val": names[cases:]}]
    (folder / "splits_final.json").write_text(json.dumps(split) + "\n")
    with (folder / "boxes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "slice", "class", "row_low", "row_high", "column_low", "column_high"))
        writer.writerows(rows)


def zoomed(kind: Kind, factor: float) -> Kind:
    """The same objects in millimetres, in pixels so many times as large."""
    depth, height, width = kind.spacing
    diameters = tuple((least / factor, most / factor) for least, most in kind.diameters)
    return replace(kind, spacing=(depth, height * factor, width * factor), diameters=diameters)


def scene(kind: Kind, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Labels ``[slices, rows, columns]`` and an image ``[channels, ...]`` with texture, a bias field and noise."""
    labels = np.zeros(kind.shape, np.uint8)
    if kind.scene == "nested":
        _nested(kind, labels, random)
    elif kind.scene == "halves":
        _halves(kind, labels, random)
    else:
        taken = np.zeros(kind.shape, bool)
        for number in np.repeat(np.arange(kind.classes), kind.objects):
            blob = _placed(kind, taken, kind.diameters[number], random)
            labels[blob] = number + 1
            taken |= ndimage.binary_dilation(blob, iterations=2)
    image = []
    for channel in range(len(kind.contrast[0])):
        levels = np.array([0.0, *(one[channel] for one in kind.contrast)])
        clean = ndimage.gaussian_filter(levels[labels], (0.0, kind.blur, kind.blur))  # a voxel sees its neighbours
        texture = _smooth(random, kind, 4.0) * 0.5 + _smooth(random, kind, 16.0) * 0.7
        field = np.exp(0.15 * _smooth(random, kind, max(kind.shape[1:]) / 2.0))
        noise = random.normal(0.0, 1.0, kind.shape)
        if kind.rough:
            noise += np.array([0.0, *kind.rough])[labels] * random.normal(0.0, 1.0, kind.shape)
        image.append(((10.0 + clean + texture) * field + noise) * 40.0)
    return labels, np.stack(image).astype(np.int16)


def _smooth(random: np.random.Generator, kind: Kind, width: float) -> NDArray[np.float64]:
    """Smooth numbers of mean 0 and deviation 1; ``width`` in pixels, as far in millimetres across slices."""
    sigma = (width * kind.spacing[1] / kind.spacing[0], width, width)
    field = ndimage.gaussian_filter(random.normal(size=kind.shape), sigma, mode="wrap")
    return np.asarray((field - field.mean()) / max(float(field.std()), 1e-9))


def _placed(
    kind: Kind, taken: NDArray[np.bool_], diameters: tuple[float, float], random: np.random.Generator
) -> NDArray[np.bool_]:
    """A blob where nothing is yet; the smallest overlap there was after many tries, cut to what is free."""
    best: tuple[int, NDArray[np.bool_]] | None = None
    for _ in range(60):
        blob = _blob(kind, random.uniform(*diameters), random)
        overlap = int((blob & taken).sum())
        if best is None or overlap < best[0]:
            best = overlap, blob
        if overlap == 0:
            break
    assert best is not None
    return best[1] & ~taken


def _blob(
    kind: Kind, diameter: float, random: np.random.Generator, centre: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """A bumpy ellipsoid, as thick in millimetres as it is wide where there is room."""
    radius = diameter / 2.0
    ratio = kind.spacing[1] / kind.spacing[0]
    depth = min(radius * ratio, 0.45 * kind.shape[0]) if kind.shape[0] > 1 else 1.0
    radii = np.array([max(depth, 0.6), radius * random.uniform(0.85, 1.15), radius * random.uniform(0.85, 1.15)])
    if centre is None:
        low = np.minimum(radii * 1.1 + 1.0, np.array(kind.shape) / 2.0)
        low[0] = min(low[0], kind.shape[0] / 2.0)
        centre = random.uniform(low, np.array(kind.shape) - low)
    place = np.indices(kind.shape) + 0.5 - centre[:, None, None, None]
    if kind.aspect != 1.0:
        turn = random.uniform(0.0, np.pi)
        rows, columns = place[1].copy(), place[2].copy()
        place[1] = (rows * np.cos(turn) - columns * np.sin(turn)) * kind.aspect
        place[2] = rows * np.sin(turn) + columns * np.cos(turn)
    place /= radii[:, None, None, None]
    if kind.shape[0] == 1:
        place[0] = 0.0
    angle, phases = np.arctan2(place[1], place[2]), random.uniform(0.0, 2.0 * np.pi, 3)
    bumps = sum(np.sin((n + 2) * angle + phases[n]) / (n + 1) for n in range(3))
    return np.asarray((place**2).sum(axis=0) < (1.0 + kind.bumps * bumps / 1.5) ** 2)


def _nested(kind: Kind, labels: NDArray[np.uint8], random: np.random.Generator) -> None:
    """A ring (1) around a disc (2), and a crescent (3) that touches the ring from one side."""
    outer, inner, beside = (random.uniform(*one) for one in kind.diameters)
    shape = np.array(kind.shape)
    middle = shape / 2.0 + random.uniform(-1.0, 1.0, 3) * np.array([0.5, 6.0, 4.0])
    direction = random.choice([-1.0, 1.0])
    middle[2] -= direction * beside * 0.3
    off = middle + np.array([0.0, random.uniform(-3.0, 3.0), direction * (outer / 2.0 + beside * 0.15)])
    ring = _blob(kind, outer, random, middle)
    labels[_blob(kind, beside, random, off) & ~ring] = 3
    labels[ring] = 1
    labels[_blob(kind, inner, random, middle + random.uniform(-2.0, 2.0, 3) * [0, 1, 1]) & ring] = 2


def _halves(kind: Kind, labels: NDArray[np.uint8], random: np.random.Generator) -> None:
    """One blob, whose rows up to somewhere in its middle are the first class, and the others the second."""
    blob = _blob(kind, random.uniform(*kind.diameters[0]), random)
    rows = np.flatnonzero(blob.any(axis=(0, 2)))
    cut = rows[0] + round(random.uniform(0.4, 0.6) * len(rows))
    labels[:, :cut][blob[:, :cut]] = 1
    labels[:, cut:][blob[:, cut:]] = 2


def boxes(
    labels: NDArray[np.uint8], classes: int, hand: np.random.Generator, jitter: float = 0.0, loose: float = 0.0
) -> Iterator[tuple[object, ...]]:
    """Rows of boxes.csv: one for each connected part in each slice, by an unsteady or a careful hand."""
    for number, plane in enumerate(labels):
        for label in range(1, 1 + classes):
            parts, _ = ndimage.label(plane == label, structure=np.ones((3, 3)))
            for rows, columns in ndimage.find_objects(parts):
                ends = []
                for side, limit in ((rows, plane.shape[0]), (columns, plane.shape[1])):
                    length = side.stop - side.start
                    off = hand.uniform(-jitter, jitter, 2) * length + np.array([-loose, loose]) * length / 2.0
                    low, high = np.round([side.start + off[0], side.stop + off[1]]).astype(int)
                    low = max(0, min(low, limit - 1))
                    ends += [low, min(max(low + 1, high), limit)]
                yield number, f"class {label}", *ends


def write(path: Path, voxels: NDArray[np.generic], spacing: tuple[float, float, float]) -> None:
    """A NIfTI file of slices, rows and columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([spacing[2], spacing[1], spacing[0], 1.0])
    nib.Nifti1Image(voxels.transpose(2, 1, 0), affine).to_filename(path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(KINDS, write_set)
