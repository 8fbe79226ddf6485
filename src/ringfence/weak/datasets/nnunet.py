"""nnU-Net v2's raw layout: ``imagesTr/CASE_0000.nii.gz`` a channel, ``labelsTr/CASE.nii.gz``, ``dataset.json``.

A PNG in colour is all channels of its case: ``CASE_0000.png`` alone. Cases without a file in labelsTr have no mask:
they can be trained on from boxes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence.hints import listed, shown
from ringfence.weak.datasets.dataset_json import FOLD, find_by_dataset_json, name_of, names_by, needed, numbered
from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.source import Source, SourceCase, SourceVolume, check_classes
from ringfence.weak.volumes.formats import ENDINGS, PNG


def find_nnunet(path: Path, validation: Sequence[str] | None = None, fold: int | None = None) -> Source:
    """The training cases of a folder in nnU-Net v2's raw layout.

    Args:
        path: the folder with dataset.json.
        validation: the cases for validation, instead of any other split.
        fold: which split of splits_final.json; default: the first.
    """
    return find_by_dataset_json(path, nnunet_cases, validation, fold)


def nnunet_cases(path: Path, facts: Mapping[str, Any]) -> Source:
    """The cases of ``path``, whose dataset.json holds ``facts``; not yet split."""
    if "dataset" in facts:
        raise ValueError("it lists its files under 'dataset'; only imagesTr and labelsTr are read")
    asked = needed(facts, "file_ending")
    ending = asked.lower() if isinstance(asked, str) else ""
    if ending not in ENDINGS:
        raise ValueError(f"file_ending {shown(asked)} is not read; {', '.join(ENDINGS)} are")
    channels = _channels(names_by(facts, "channel_names"))
    labels = _labels(names_by(facts, "labels"))
    images = _images(path / "imagesTr", ending)
    masks = {file.name[: -len(ending)]: file for file in _files(path / "labelsTr", ending)}
    cases: list[SourceCase] = []
    problems: dict[str, str] = {}
    for name, found in sorted(images.items()):
        if sorted(found) == list(range(len(channels))) or (ending in PNG and list(found) == [0]):
            mask = SourceVolume(masks[name]) if name in masks else None
            cases.append(SourceCase(name, tuple(SourceVolume(found[one]) for one in sorted(found)), mask))
        else:
            there = ", ".join(f"_{one:04}" for one in sorted(found))
            wanted = ", ".join(f"_{one:04}" for one in range(len(channels)))
            problems[name] = f"imagesTr holds its channels {there}; channel_names asks for {wanted}"
    problems |= {name: f"imagesTr has no image for {masks[name]}" for name in sorted(masks.keys() - images)}
    if not images and not masks:
        raise ValueError(f"there is no CASE_0000{ending} in {path / 'imagesTr'}")
    promised = facts.get("numTraining")
    if isinstance(promised, int) and promised != len(images):
        problems["dataset.json"] = f"numTraining is {shown(promised)}, and imagesTr holds {len(images)} cases"
    return Source(
        kind="nnU-Net",
        name=name_of(facts, path),
        channels=channels,
        classes=tuple(labels.values()),
        labels=tuple(labels),
        cases=tuple(cases),
        validation=frozenset(),
        split="",
        problems=problems,
    )


def _channels(names: Mapping[str, Any]) -> tuple[str, ...]:
    found = numbered(names, "channel_names")
    if not found or sorted(found) != list(range(len(found))):
        raise ValueError(f"channel_names should be numbered 0, 1, ...; they are {listed(names)}")
    return tuple(found[number] for number in sorted(found))


def _labels(names: Mapping[str, Any]) -> dict[int, str]:
    """The foreground classes by label."""
    labels: dict[int, str] = {}
    for name, label in names.items():
        if isinstance(label, (list, tuple)):
            raise ValueError(
                f"label {shown(name)} is a region of several ({shown(label)}); a class must have one label"
            )
        if name == "ignore":
            raise ValueError(f"label 'ignore' ({shown(label)}): voxels to ignore are not supported")
        labels = check_classes(labels, label, name)
    return dict(sorted(labels.items()))


def _images(folder: Path, ending: str) -> dict[str, dict[int, Path]]:
    """The channels' files by case."""
    images: dict[str, dict[int, Path]] = {}
    for file in _files(folder, ending):
        if match := re.fullmatch(r"(.+)_(\d{4})", file.name[: -len(ending)]):
            images.setdefault(match[1], {})[int(match[2])] = file
    return images


def _files(folder: Path, ending: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        file for file in folder.iterdir() if file.name.lower().endswith(ending) and not file.name.startswith(".")
    )


NNUNET: Final = Layout(
    name="nnunet",
    description="nnU-Net v2's raw layout: imagesTr/CASE_0000.nii.gz, labelsTr/CASE.nii.gz, dataset.json",
    find=find_nnunet,
    help="""Prepare a folder in nnU-Net v2's raw layout, with any number of channels and classes; NIfTI,
MetaImage or PNG (one in colour has three channels). Slices are those along the third axis. Cases without a file in
labelsTr are welcome, for training from boxes. The split is that of splits_final.json if it is there; else every
fifth of the cases with a mask, by name, is for validation.""",
    source="the folder that holds dataset.json",
    options=(FOLD,),
)
