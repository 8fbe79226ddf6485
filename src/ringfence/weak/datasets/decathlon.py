"""The Medical Segmentation Decathlon's layout: ``dataset.json`` lists images and masks under ``training``.

An image of several modalities is one NIfTI with four axes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence.hints import one_line, shown
from ringfence.weak.datasets.dataset_json import (
    FOLD,
    file_inside,
    find_by_dataset_json,
    name_of,
    names_by,
    needed,
    numbered,
)
from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.source import Source, SourceCase, SourceVolume, check_classes
from ringfence.weak.volumes.formats import volume_name


def find_decathlon(path: Path, validation: Sequence[str] | None = None, fold: int | None = None) -> Source:
    """The training cases of a folder of the Decathlon.

    Args:
        path: the folder with dataset.json.
        validation: the cases for validation, instead of any other split.
        fold: which split of splits_final.json; default: the first.
    """
    return find_by_dataset_json(path, decathlon_cases, validation, fold)


def decathlon_cases(path: Path, facts: Mapping[str, Any]) -> Source:
    """The cases of ``path``, whose dataset.json holds ``facts``; not yet split."""
    modalities = numbered(names_by(facts, "modality"), "modality")
    if not modalities:
        raise ValueError("'modality' names no channel")
    labels: dict[int, str] = {}
    for label, name in names_by(facts, "labels").items():
        labels = check_classes(labels, label, str(name))
    cases: dict[str, SourceCase] = {}
    problems: dict[str, str] = {}
    for image, label in _training(facts):
        file = file_inside(path, image, "training")
        name = volume_name(file)
        if name is None:
            raise ValueError(f"{shown(image)} in 'training' is not a volume")
        if name in cases or name in problems:
            raise ValueError(f"'training' lists {one_line(name)} more than once")
        mask = file_inside(path, label, "training") if label is not None else None
        if mask is not None and volume_name(mask) is None:
            raise ValueError(f"{shown(label)} in 'training' is not a volume")
        missing = [str(one) for one in (file, mask) if one is not None and not os.path.exists(one)]
        if missing:
            old = file.with_name(f"{name}_0000{file.name[len(name) :]}")
            hint = f" (but {old.name} is: that is nnU-Net v1; convert it to v2)" if os.path.exists(old) else ""
            problems[name] = f"{' and '.join(missing)}, listed in dataset.json, is not there{hint}"
            continue
        cases[name] = SourceCase(name, (SourceVolume(file),), SourceVolume(mask) if mask else None)
    if not cases and not problems:
        raise ValueError("'training' lists no case")
    return Source(
        kind="Decathlon",
        name=name_of(facts, path),
        channels=tuple(modalities[number] for number in sorted(modalities)),
        classes=tuple(name for _, name in sorted(labels.items())),
        labels=tuple(sorted(labels)),
        cases=tuple(cases[name] for name in sorted(cases)),
        validation=frozenset(),
        split="",
        problems=problems,
    )


def _training(facts: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Image and label of each entry; None where there is no label."""
    entries = needed(facts, "training")
    if not isinstance(entries, list):
        raise ValueError(f"'training' is {shown(entries)}; a list is needed")
    for number, entry in enumerate(entries):
        if isinstance(entry, dict):
            if "image" not in entry:
                raise ValueError(f"'training'[{number}]: 'image' is missing")
            yield entry["image"], entry.get("label") or None
        else:
            yield entry, None


DECATHLON: Final = Layout(
    name="decathlon",
    description="Medical Segmentation Decathlon: dataset.json lists images and masks under 'training'",
    find=find_decathlon,
    help="""Prepare a task of the Medical Segmentation Decathlon: the cases that dataset.json lists under
'training'; the channels of an image are the NIfTI's fourth axis. Slices are those along the third axis. Cases
without a label are welcome, for training from boxes. The split is that of splits_final.json if it is there; else
every fifth of the cases with a mask, by name, is for validation.""",
    source="the folder that holds dataset.json",
    options=(FOLD,),
)
