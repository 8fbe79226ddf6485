"""PROMISE12 as a person would have it who drew boxes: a folder with images and boxes.csv; or images and masks.

Boxes are those around the masks, one for each connected part in each slice. The authors' ten patients are in
neither folder. Nothing of the data may be committed.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Final

import numpy as np

import generated_sets
from ringfence.weak.datasets.promise12 import VALIDATION
from ringfence.weak.volumes import Volume, read_volume, write_volume

NAME: Final = "promise12"
ABOUT: Final = "PROMISE12: prostates in MR, at 256 × 256; trained on 40 patients, tested on the authors' ten"


def write_folder(downloads: Path, made: Path) -> None:
    """``imagesTr``, ``labelsTr``, ``boxes.csv`` and ``dataset.json``; the ten in ``imagesTs`` and ``labelsTs``."""
    rows: list[tuple[object, ...]] = []
    names = sorted(file.stem for file in downloads.glob("Case*.mhd") if not file.stem.endswith("_segmentation"))
    for name in names:
        part = "Ts" if name in VALIDATION else "Tr"
        mask = read_volume(downloads / f"{name}_segmentation.mhd")
        _copy(read_volume(downloads / f"{name}.mhd"), made / f"images{part}/{name}_0000.mhd")
        _copy(mask, made / f"labels{part}/{name}.mhd")
        if part == "Tr":
            rows += [(name, *row) for row in generated_sets.boxes(mask.voxels, 1, np.random.default_rng(0))]
    with (made / "boxes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "slice", "class", "row_low", "row_high", "column_low", "column_high"))
        writer.writerows(rows)
    facts = {
        "channel_names": {"0": "T2"},
        "labels": {"background": 0, "class 1": 1},
        "numTraining": len(names) - len(VALIDATION),
        "file_ending": ".mhd",
    }
    (made / "dataset.json").write_text(json.dumps(facts, indent=2) + "\n")


def _copy(volume: Volume, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_volume(path, volume.voxels, volume)
