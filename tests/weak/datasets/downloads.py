"""Files as downloads have them, all empty: finding cases reads no volume."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)


def case(folder: Path, number: int) -> None:
    stems = (f"Case{number:02}", f"Case{number:02}_segmentation")
    touch(*(folder / f"{stem}{ending}" for stem in stems for ending in (".mhd", ".raw")))


def pack(archive: Path, folder: Path, under: str = "") -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(folder.iterdir()):
            opened.write(file, f"{under}{file.name}")


def names(source: Any) -> list[str]:
    return [one.name for one in source.cases]


NNUNET: dict[str, Any] = {
    "channel_names": {"0": "T2", "1": "ADC"},
    "labels": {"background": 0, "PZ": 1, "TZ": 2},
    "numTraining": 3,
    "file_ending": ".nii.gz",
}


def nnunet(folder: Path, facts: dict[str, Any] = NNUNET, masks: str = "abc") -> Path:
    for name in "abc":
        touch(*(folder / f"imagesTr/{name}_{channel:04}.nii.gz" for channel in (0, 1)))
    touch(*(folder / f"labelsTr/{name}.nii.gz" for name in masks))
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder


DECATHLON: dict[str, Any] = {
    "name": "PROSTATE",
    "modality": {"0": "T2", "1": "ADC"},
    "labels": {"0": "background", "2": "TZ", "1": "PZ"},
    "training": [{"image": f"./imagesTr/p_{n}.nii.gz", "label": f"./labelsTr/p_{n}.nii.gz"} for n in (0, 1)],
}


def decathlon(folder: Path, facts: dict[str, Any] = DECATHLON) -> Path:
    touch(*(folder / f"{kind}Tr/p_{n}.nii.gz" for n in (0, 1) for kind in ("images", "labels")))
    (folder / "dataset.json").write_text(json.dumps(facts))
    return folder
