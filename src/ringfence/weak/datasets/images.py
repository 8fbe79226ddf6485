"""Images and a table of boxes, without dataset.json: ``CASE.nii.gz`` and ``boxes.csv`` in a folder.

Images may lie in ``images/``. Of several channels, each is a file: ``CASE_0000.nii.gz``, ``CASE_0001.nii.gz``. Some
cases, or all, may have a mask: ``masks/CASE.nii.gz``. Classes are those that the table names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringfence.hints import listed
from ringfence.weak.datasets.boxes_beside import classes_in
from ringfence.weak.datasets.source import (
    Source,
    SourceCase,
    SourceVolume,
    check_classes,
    every_fifth,
    with_validation,
)
from ringfence.weak.volumes.formats import volume_name

IMAGES: Final = "images"
MASKS: Final = "masks"
CHANNEL: Final = re.compile(r"(.+)_(\d{4})")


def find_images(path: Path, boxes: Path, validation: Sequence[str] | None = None) -> Source:
    """The cases of a folder with images and a table of boxes.

    Args:
        path: the folder.
        boxes: the table.
        validation: the cases for validation; default: every fifth of those with a mask.
    """
    folder = path / IMAGES if (path / IMAGES).is_dir() else path
    images, masks = _volumes(folder), _volumes(path / MASKS)
    if not images:
        raise FileNotFoundError(f"{folder} holds no image: .nii, .nii.gz, .mha and .mhd are read")
    by_case, channels = _channels(images)
    names = classes_in(boxes)
    labels = _labels(names, masked=bool(masks), path=path)
    cases, problems = [], {}
    for name, files in sorted(by_case.items()):
        if len(files) != channels:
            problems[name] = f"it has {len(files)} of {channels} channels in {folder}"
            continue
        mask = SourceVolume(masks[name]) if name in masks else None
        cases.append(SourceCase(name, tuple(SourceVolume(one) for one in files), mask))
    problems |= {name: f"{folder} has no image for {masks[name]}" for name in sorted(masks.keys() - by_case.keys())}
    source = Source(
        kind="images",
        name=os.path.basename(os.path.realpath(path)),
        channels=("image",) if channels == 1 else tuple(f"channel {one}" for one in range(channels)),
        classes=names,
        labels=labels,
        cases=tuple(cases),
        validation=frozenset(),
        split="",
        problems=problems,
        boxes=boxes,
    )
    if validation:
        return with_validation(source, validation)
    return replace(source, validation=every_fifth(cases), split="every fifth case with a mask, by name")


def _volumes(folder: Path) -> dict[str, Path]:
    """The volumes of a folder by name; two of the same name are refused."""
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = volume_name(file)
        if name is None or file.name.startswith(".") or not file.is_file():
            continue
        if name in found:
            raise ValueError(f"{folder} holds both {found[name].name} and {file.name}: remove one of them")
        found[name] = file
    return found


def _channels(images: dict[str, Path]) -> tuple[dict[str, list[Path]], int]:
    """The files of each case, and how many channels there are.

    Names that end in four digits are those of channels if all do, and every case has a 0000.
    """
    by_case: dict[str, dict[int, Path]] = {}
    for name, file in images.items():
        if match := CHANNEL.fullmatch(name):
            by_case.setdefault(match[1], {})[int(match[2])] = file
    numbered = sum(len(files) for files in by_case.values()) == len(images)
    if not numbered or not all(0 in files for files in by_case.values()):
        return {name: [file] for name, file in images.items()}, 1
    numbers = sorted({number for files in by_case.values() for number in files})
    if numbers != list(range(len(numbers))):
        raise ValueError(
            f"channels should be numbered 0000, 0001, ...; they are {listed(f'{n:04}' for n in numbers)}"
        )
    return {name: [files[one] for one in sorted(files)] for name, files in by_case.items()}, len(numbers)


def _labels(names: Sequence[str], *, masked: bool, path: Path) -> tuple[int, ...]:
    """The classes' values in masks: a class that is called by a number has it; else 1, if there is only one."""
    numbers: dict[int, str] = {}
    if all(name.isdecimal() for name in names):
        for name in names:
            numbers = check_classes(numbers, name, name)
        if len(numbers) < len(names):
            raise ValueError("class 0 is the background: it has no boxes")
        return tuple(numbers)
    if masked and len(names) > 1:
        raise ValueError(
            f"{path / MASKS} holds masks, and nothing says which of its labels is {listed(names)}: write a "
            "dataset.json that does (docs/prepare.md)"
        )
    return tuple(range(1, 1 + len(names)))
