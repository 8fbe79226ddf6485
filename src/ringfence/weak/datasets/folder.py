"""A folder: with dataset.json nnU-Net's or the Decathlon's, as that file tells; without it, images and boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence.weak.datasets.box_table import table_beside
from ringfence.weak.datasets.dataset_json import DATASET, FOLD, SPLITS, find_by_dataset_json
from ringfence.weak.datasets.decathlon import decathlon_cases
from ringfence.weak.datasets.images import find_images
from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.nnunet import nnunet_cases
from ringfence.weak.datasets.source import Source


def find_folder(path: Path, validation: Sequence[str] | None = None, fold: int | None = None) -> Source:
    """The training cases of a folder in nnU-Net's or the Decathlon's layout, or of one with images and boxes.

    Args:
        path: the folder.
        validation: the cases for validation, instead of any other split.
        fold: which split of splits_final.json; default: the first.
    """
    if path.is_dir() and not (path / DATASET).exists() and (table := table_beside(path)) is not None:
        if fold is not None:
            raise FileNotFoundError(f"fold {fold}: there is no {SPLITS} without {DATASET}")
        return find_images(path, table, validation)
    return find_by_dataset_json(path, _cases, validation, fold)


def _cases(path: Path, facts: Mapping[str, Any]) -> Source:
    if "channel_names" in facts:
        return nnunet_cases(path, facts)
    if "training" in facts and "modality" in facts:
        return decathlon_cases(path, facts)
    raise ValueError(
        "neither 'channel_names' and 'file_ending' (nnU-Net v2) nor 'modality' and 'training' (Decathlon)"
    )


FOLDER: Final = Layout(
    name="folder",
    description="images and boxes.csv; or with dataset.json, nnU-Net v2 or Medical Segmentation Decathlon",
    find=find_folder,
    help="""Prepare a folder with images (CASE.nii.gz or CASE.png; or for each channel CASE_0000.nii.gz,
CASE_0001.nii.gz) and boxes.csv or boxes.json, perhaps with masks/CASE.nii.gz of some; or one with dataset.json, as
nnU-Net v2 (imagesTr/CASE_0000.nii.gz, labelsTr/CASE.nii.gz) or the Medical Segmentation Decathlon (what it lists
under 'training') have them. Any number of channels and classes; slices are those along the third axis. Cases
without a mask are welcome, for training from boxes. boxes.csv or boxes.json is kept with the set, and trained on.
The split is that of splits_final.json if it is there; else every fifth case with a mask, by name, is for
validation.""",
    source="the folder that holds boxes.csv or dataset.json",
    options=(FOLD,),
)
