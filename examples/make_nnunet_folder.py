"""A small data set as nnU-Net v2 has them, to try ringfence on: three bright ellipsoids, two channels, no patient.

    python examples/make_nnunet_folder.py data/ellipsoids
    ringfence prepare folder data/ellipsoids prepared/ellipsoids

Writes ``imagesTr`` and ``labelsTr`` (two channels and a mask of each case), ``imagesTs`` and ``labelsTs`` (one case
that is for nobody to train on), ``dataset.json``, and ``boxes.csv`` with the boxes that an annotator would draw.
The same seed gives the same voxels.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

CLASSES: Final = ("bright", "middle", "faint")
CHANNELS: Final = ("first", "second")
CONTRAST: Final = np.array([[160.0, 100.0, 40.0], [40.0, 100.0, 160.0]])
"""What each class adds to each channel, over noise of 15: one channel alone hardly shows the fainter one."""
SPACING: Final = (0.8, 0.8, 3.0)
"""Millimetres along columns, rows and slices, as NIfTI has them."""


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description="Write a small nnU-Net-like data set with three classes.")
    parser.add_argument("folder", type=Path, help="where to; it must not be there yet")
    parser.add_argument("--cases", type=int, default=8, help="for training and validation (default: 8)")
    parser.add_argument(
        "--shape", type=int, nargs=3, default=[12, 48, 40], metavar=("Z", "Y", "X"), help="slices, rows, columns"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} is there already: name a new folder")
    if options.cases < 2 or min(options.shape) < 8:
        parser.error("at least two cases, and 8 voxels along each axis")
    random = np.random.default_rng(options.seed)
    rows = []
    for number in range(options.cases + 1):
        part, name = ("Tr", f"case_{number:02}") if number < options.cases else ("Ts", "unseen")
        labels = ellipsoids(random, tuple(options.shape))
        write(options.folder / f"labels{part}" / f"{name}.nii.gz", labels)
        present = labels == np.arange(1, 1 + len(CLASSES), dtype=np.uint8)[:, None, None, None]
        for channel, contrast in enumerate(CONTRAST):
            image = 300.0 + np.tensordot(contrast, present, axes=1) + random.normal(0.0, 15.0, labels.shape)
            write(options.folder / f"images{part}" / f"{name}_{channel:04}.nii.gz", image.astype(np.int16))
        if part == "Tr":
            rows += [(name, *row) for row in boxes(labels)]
    facts = {
        "channel_names": {str(number): name for number, name in enumerate(CHANNELS)},
        "labels": {"background": 0} | {name: number for number, name in enumerate(CLASSES, start=1)},
        "numTraining": options.cases,
        "file_ending": ".nii.gz",
    }
    (options.folder / "dataset.json").write_text(json.dumps(facts, indent=2) + "\n")
    with (options.folder / "boxes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "slice", "class", "row_low", "row_high", "column_low", "column_high"))
        writer.writerows(rows)
    print(f"{options.folder}: {options.cases} cases, and imagesTs/unseen_0000.nii.gz, unseen_0001.nii.gz")


def ellipsoids(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Labels ``[slices, rows, columns]``: one ellipsoid a class, each in a corner of its own."""
    place = (np.indices(shape) + 0.5) / np.array(shape)[:, None, None, None]
    labels = np.zeros(shape, np.uint8)
    corners = [(0.28, 0.28), (0.28, 0.72), (0.72, 0.5)]
    for label, corner in zip(range(1, 1 + len(CLASSES)), random.permutation(corners), strict=True):
        centre = np.array([0.5, *corner]) + random.uniform(-0.05, 0.05, 3)
        radii = random.uniform([0.28, 0.14, 0.14], [0.38, 0.2, 0.2])
        distance = ((place - centre[:, None, None, None]) / radii[:, None, None, None]) ** 2
        labels[distance.sum(axis=0) < 1.0] = label
    return labels


def boxes(labels: NDArray[np.uint8]) -> Iterator[tuple[int, str, int, int, int, int]]:
    """The tight box of every class in every slice that has it: first row, one past the last, columns likewise."""
    for number, plane in enumerate(labels):
        for label, name in enumerate(CLASSES, start=1):
            found = np.argwhere(plane == label)
            if len(found):
                low, high = found.min(axis=0), found.max(axis=0) + 1
                yield number, name, int(low[0]), int(high[0]), int(low[1]), int(high[1])


def write(path: Path, voxels: NDArray[np.uint8] | NDArray[np.int16]) -> None:
    """``[slices, rows, columns]`` as NIfTI, whose axes are the other way round."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels.T, np.diag([*SPACING, 1.0])), path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
