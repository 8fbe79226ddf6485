"""Tiny prepared sets: bright ellipsoids on noise, as a new user's data would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ringfence.files import checksum
from ringfence.weak.prepared.prepared_set import Case, PreparedSet, Split
from ringfence.weak.prepared.preprocessing import Preprocessing


def make_prepared(
    folder: Path,
    *,
    cases: int = 4,
    shape: tuple[int, int, int] = (6, 24, 20),
    channels: int = 1,
    classes: int = 1,
    masked: bool = True,
    name: str = "ellipsoids",
    spacing: tuple[float, float, float] | None = (1.2, 1.0, 1.0),
    seed: int = 0,
) -> PreparedSet:
    """Write a set whose last case is for validation; class k is the k-th brightest ellipsoid."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    made = []
    for number in range(cases):
        split: Split = "validation" if number == cases - 1 else "train"
        labels = np.zeros(shape, np.uint8)
        for label in range(1, classes + 1):
            centre = [random.uniform(0.35, 0.65) * length for length in shape]
            centre[2] = shape[2] * (label - random.uniform(0.4, 0.6)) / classes
            radii = [0.3 * shape[0], 0.25 * shape[1], 0.35 * shape[2] / classes]
            grid = np.indices(shape) + 0.5
            labels[sum(((grid[a] - centre[a]) / radii[a]) ** 2 for a in range(3)) < 1] = label
        image = 60 + 150 * (labels[:, None] > 0) / np.maximum(labels[:, None], 1)
        image = np.repeat(image, channels, axis=1) + random.normal(0, 15, (shape[0], channels, *shape[1:]))
        file = f"case{number}.npz"
        arrays = {"image": image.clip(0, 255).astype(np.uint8)}
        has_mask = masked or split == "validation"
        np.savez(folder / file, **arrays, **({"mask": labels} if has_mask else {}))
        made.append(Case(f"case{number}", split, file, checksum(folder / file), shape, spacing, has_mask))
    prepared = PreparedSet(
        folder,
        name,
        Preprocessing(shape[1:]),
        tuple(f"channel {one}" for one in range(channels)),
        tuple(f"class {one}" for one in range(1, classes + 1)),
        tuple(made),
    )
    prepared.write_manifest()
    return prepared


def described_anew(prepared: PreparedSet) -> PreparedSet:
    """The set, with a manifest of its files as they are now: for tests that write cases of their own.

    A case that is not to have a mask loses it.
    """
    for case in prepared.cases:
        with np.load(prepared.path / case.file) as stored:
            arrays = dict(stored)
        if not case.masked and "mask" in arrays:
            np.savez(prepared.path / case.file, image=arrays["image"])
    cases = tuple(replace(case, sha256=checksum(prepared.path / case.file)) for case in prepared.cases)
    found = replace(prepared, cases=cases)
    found.write_manifest()
    return found
