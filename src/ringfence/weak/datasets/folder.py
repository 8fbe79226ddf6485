"""A folder with dataset.json, nnU-Net's or the Decathlon's: told by what that file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence.weak.datasets.dataset_json import FOLD, find_by_dataset_json
from ringfence.weak.datasets.decathlon import decathlon_cases
from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.nnunet import nnunet_cases
from ringfence.weak.datasets.source import Source


def find_folder(path: Path, validation: Sequence[str] | None = None, fold: int | None = None) -> Source:
    """The training cases of a folder in nnU-Net's or the Decathlon's layout.

    Args:
        path: the folder with dataset.json.
        validation: the cases for validation, instead of any other split.
        fold: which split of splits_final.json; default: the first.
    """
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
    description="nnU-Net v2 or Medical Segmentation Decathlon: a folder with dataset.json",
    find=find_folder,
    help="""Prepare a folder with dataset.json: nnU-Net v2 (imagesTr/CASE_0000.nii.gz, labelsTr/CASE.nii.gz) or
Medical Segmentation Decathlon (what it lists under 'training'), with any number of channels and classes. Slices are
those along the third axis. Cases without a mask are welcome, for training from boxes. The split is that of
splits_final.json if it is there; else every fifth of the cases with a mask, by name, is for validation.""",
    source="the folder that holds dataset.json",
    options=(FOLD,),
)
