"""Images and a table of boxes, without dataset.json: ``CASE.nii.gz`` and ``boxes.csv`` in a folder.

Images may lie in ``images/``. Of several channels, each is a file, ``CASE_0000.nii.gz``, ``CASE_0001.nii.gz``, or
all are in one: a NIfTI with a fourth axis, a PNG in colour. Some cases, or all, may have a mask:
``masks/CASE.nii.gz``. Classes are those that the table names.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringfence.hints import hint, listed, shown
from ringfence.options import inside
from ringfence.weak.datasets.box_table import BoxTable
from ringfence.weak.datasets.source import (
    LARGEST,
    Source,
    SourceCase,
    SourceVolume,
    check_classes,
    every_fifth,
    with_validation,
)
from ringfence.weak.tables.problems import Problems
from ringfence.weak.volumes.formats import is_png, pictures_among, volume_name, volumes_among, what_is_read

KIND: Final = "images"
COLOURS: Final = ("red", "green", "blue")
IMAGES: Final = "images"
MASKS: Final = "masks"
CHANNEL: Final = re.compile(r"(.+)_(\d{4})")
A_MASK: Final = re.compile(r"(.+)_(mask|segmentation|seg|labels?)", re.IGNORECASE)
"""Names that others give to the mask of a case."""


def find_images(path: Path, table: BoxTable, validation: Sequence[str] | None = None) -> Source:
    """The cases of a folder with images and a table of boxes.

    Args:
        path: the folder.
        table: the table.
        validation: the cases for validation; default: every fifth of those with a mask.
    """
    folder = path / IMAGES if (path / IMAGES).is_dir() else path
    files = _files(folder)
    images, masks, pictures = _volumes(folder, files), _volumes(path / MASKS), pictures_among(files)
    if not images:
        raise FileNotFoundError(f"{folder} holds no image: {what_is_read(files)}")
    classes, named = table.classes(), table.cases(images, pictures)
    problems = _masks_among(images, named, path / MASKS)
    images = {name: file for name, file in images.items() if name not in problems}
    by_case, files_each = _channels(images, named)
    held = _held(by_case) if files_each == 1 else {}
    channels = Counter(held.values()).most_common(1)[0][0] if held else files_each
    _check_cases(table, named, by_case.keys() | masks.keys(), pictures)
    with inside(f"{table.path}: "):
        labels = _labels(classes, masks=path / MASKS if masks else None)
    cases = []
    pngs = all(map(is_png, images.values()))
    for name, files in sorted(by_case.items()):
        if len(files) != files_each:
            problems[name] = f"it has {len(files)} of {files_each} channels in {folder}"
            continue
        if held.get(name, channels) != channels:
            others = _others(Counter(held.values()), channels)
            convert = ": save all in grey, or all in colour" * pngs
            problems[name] = f"{files[0]} has {_counted(held[name])}, and {others}{convert}"
            continue
        mask = SourceVolume(masks[name]) if name in masks else None
        cases.append(SourceCase(name, tuple(SourceVolume(one) for one in files), mask))
    for name in sorted(masks.keys() - by_case.keys()):
        why = f": {pictures[name]}" if name in pictures else ""
        problems[name] = f"{folder} has no image for {masks[name]}{why}"
    source = Source(
        kind=KIND,
        name=os.path.basename(os.path.realpath(path)),
        channels=_channel_names(channels, colours=files_each == 1 and pngs),
        classes=classes,
        labels=labels,
        cases=tuple(cases),
        validation=frozenset(),
        split="",
        problems=problems,
        boxes=table,
    )
    if validation:
        return with_validation(source, validation)
    return replace(source, validation=every_fifth(cases), split="every fifth case with a mask, by name")


def _files(folder: Path) -> list[Path]:
    """What a folder holds, links that lead nowhere among it."""
    return sorted(file for file in folder.iterdir() if not file.is_dir()) if folder.is_dir() else []


def _volumes(folder: Path, files: Sequence[Path] | None = None) -> dict[str, Path]:
    """The volumes of a folder by name; two of the same name are refused."""
    found: dict[str, Path] = {}
    for name, file in volumes_among(_files(folder) if files is None else files):
        if name in found:
            raise ValueError(f"{folder} holds both {found[name].name} and {file.name}: remove one of them")
        found[name] = file
    return found


def _masks_among(images: Mapping[str, Path], named: Collection[str], masks: Path) -> dict[str, str]:
    """Images that are called as the mask of another one, and where they belong; not if the table names one."""
    found: dict[str, str] = {}
    for name, file in images.items():
        match = A_MASK.fullmatch(name)
        if match and not _names_one([name], named) and (match[1] in images or f"{match[1]}_0000" in images):
            belongs = masks / f"{match[1]}{file.name[len(name) :]}"
            found[name] = f"{file} is called as the mask of case {shown(match[1])}: masks belong in {belongs}"
    return found


def _channels(images: Mapping[str, Path], named: Collection[str]) -> tuple[dict[str, list[Path]], int]:
    """The files of each case, and how many channels there are.

    Names that end in four digits are those of channels if all do, every case has a 0000, and the table names none
    of them as a case: patients have numbers, too.
    """
    by_case: dict[str, dict[int, Path]] = {}
    for name, file in images.items():
        if match := CHANNEL.fullmatch(name):
            by_case.setdefault(match[1], {})[int(match[2])] = file
    numbered = sum(len(files) for files in by_case.values()) == len(images)
    if not numbered or not all(0 in files for files in by_case.values()) or _names_one(images, named):
        return {name: [file] for name, file in images.items()}, 1
    numbers = sorted({number for files in by_case.values() for number in files})
    if numbers != list(range(len(numbers))):
        known = listed(f"{one:04}" for one in numbers)
        raise ValueError(
            f"{next(iter(images.values())).parent}: channels should be numbered 0000, 0001, ...; they are {known}"
        )
    return {name: [files[one] for one in sorted(files)] for name, files in by_case.items()}, len(numbers)


def _held(by_case: Mapping[str, Sequence[Path]]) -> dict[str, int]:
    """How many channels each case's only file holds, if its header can be read."""
    from ringfence.weak.volumes import channel_count  # loads NumPy, which a command's help should not

    held: dict[str, int] = {}
    for name, (file,) in sorted(by_case.items()):
        with suppress(ValueError, OSError):  # which reading it will say
            held[name] = channel_count(file)
    return held


def _others(counts: Counter[int], channels: int) -> str:
    """Which images have as many channels, in words: in a tie they are not the most."""
    alike, total = counts[channels], counts.total()
    return f"most images beside it have {channels}" if 2 * alike > total else f"{alike} of {total} have {channels}"


def _counted(channels: int) -> str:
    return f"{channels} channel{'s' * (channels != 1)}"


def _channel_names(count: int, colours: bool) -> tuple[str, ...]:
    if colours and count == len(COLOURS):
        return COLOURS
    return ("image",) if count == 1 else tuple(f"channel {one}" for one in range(count))


def _names_one(known: Collection[str], named: Iterable[str]) -> bool:
    """Whether one of the names is known, or is a known one's file."""
    return any(name in known or volume_name(Path(name)) in known for name in named)


def _check_cases(
    table: BoxTable, named: Mapping[str, str], known: Collection[str], pictures: Mapping[str, str]
) -> None:
    """Refuse boxes of images that are not there, before any is read."""
    problems = Problems(table.path)
    for name, where in named.items():
        if not _names_one(known, [name]) and not problems.enough:
            left_out = pictures.get(name) or pictures.get(volume_name(Path(name)) or "")
            problems.note(
                f"{where}: there is no image of case {shown(name)}; {left_out or hint(name, sorted(known))}"
            )
    problems.check()


def _labels(names: Sequence[str], masks: Path | None) -> tuple[int, ...]:
    """The classes' values in masks: a class that is called by a number has it; else 1, 2, ... in their order."""
    if sum(name.isdecimal() for name in names) not in (0, len(names)):
        raise ValueError(f"classes are {listed(names)}: call all of them by names, or all by numbers")
    if "0" in names:
        raise ValueError("class 0 is the background, which has no boxes")
    if all(name.isdecimal() and len(name) < 4 and int(name) <= LARGEST for name in names):
        numbers: dict[int, str] = {}
        for name in names:
            numbers = check_classes(numbers, name, name)
        return tuple(numbers)
    if masks is not None and len(names) > 1:
        raise ValueError(
            f"{masks} holds masks, and nothing says which of their labels is {listed(names)}: call classes by "
            "their numbers, or write a dataset.json (docs/prepare.md)"
        )
    return tuple(range(1, 1 + len(names)))
