"""What nnU-Net and the Decathlon have in common: ``dataset.json``, and a split in ``splits_final.json``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from ringfence.documents import read_json
from ringfence.hints import listed, one_line, shown
from ringfence.weak.datasets.box_table import NAMES
from ringfence.weak.datasets.layout import Option
from ringfence.weak.datasets.source import Source, every_fifth, with_validation

DATASET: Final = "dataset.json"
SPLITS: Final = "splits_final.json"
MOST_BYTES: Final = 100_000_000
"""Of the longest such file that is read: it lists a million names."""
LONGEST: Final = 255
"""Bytes of a file's name, on all file systems in use."""
LONGEST_PATH: Final = 1024
FOLD: Final = Option("fold", f"which split of {SPLITS} (default: 0)", int, "N")

Cases: TypeAlias = Callable[[Path, Mapping[str, Any]], Source]
"""Finds the cases of a folder whose dataset.json holds these facts; not yet split."""


def find_by_dataset_json(
    path: Path, cases: Cases, validation: Sequence[str] | None = None, fold: int | None = None
) -> Source:
    """The cases of a folder with dataset.json, and which of them are for validation.

    Args:
        path: the folder.
        cases: finds them.
        validation: the cases for validation, instead of any other split.
        fold: which split of splits_final.json; default: the first.
    """
    if validation and fold is not None:
        raise ValueError("fold and validation each choose a split: give one of them")
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: unpack the download, and name the folder with {DATASET}")
    if not (path / DATASET).exists():
        inside = sorted(file.parent for file in path.glob(f"*/{DATASET}"))
        if inside:
            hint = f"there is one in {inside[0]}: name that"
        elif any((path / name).exists() for name in NAMES):
            hint = "images and boxes without one are for `ringfence prepare folder`"
        else:
            hint = (
                "write one, or put boxes.csv into it, with the images (`ringfence prepare folder`), or describe "
                "your own layout (docs/prepare.md)"
            )
        raise FileNotFoundError(f"{path} holds no {DATASET}; {hint}")
    facts = read_json(path / DATASET, MOST_BYTES)
    if not isinstance(facts, dict):
        raise ValueError(f"{path / DATASET} should hold names and values")
    try:
        source = _named(cases(path, facts))
        if not source.classes:
            raise ValueError("it names no class but the background")
    except ValueError as error:
        raise ValueError(f"{path / DATASET} cannot be used: {one_line(str(error))}") from None
    return with_validation(source, validation) if validation else _split(path / SPLITS, source, fold)


def needed(facts: Mapping[str, Any], name: str) -> Any:
    """A field of dataset.json that must be there."""
    if name not in facts:
        raise ValueError(f"'{name}' is missing")
    return facts[name]


def names_by(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that must be there, and hold names and values."""
    value = needed(facts, name)
    if not isinstance(value, dict):
        raise ValueError(f"'{name}' is {shown(value)}; names and values are needed")
    return value


def numbered(names: Mapping[str, Any], field: str) -> dict[int, str]:
    """Names by their numbers, which JSON has as texts."""
    found: dict[int, str] = {}
    for number, name in names.items():
        if not (number.isascii() and number.isdigit() and len(number) <= 4) or not isinstance(name, str):
            raise ValueError(
                f"'{field}' has {shown(number)}: {shown(name)}; numbers 0, 1, ... and names are needed"
            )
        if int(number) in found:
            raise ValueError(f"'{field}' has the number {int(number)} twice")
        found[int(number)] = name
    return found


def file_inside(folder: Path, name: Any, field: str) -> Path:
    """A file of the folder, by a name from ``field``; one that leads elsewhere, or is no file's, is refused."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if (
        not parts
        or "\0" in str(name)
        or ".." in parts
        or PurePosixPath(name).is_absolute()
        or any(len(part.encode("utf-8")) > LONGEST for part in parts)
        or len(str(name)) > LONGEST_PATH
    ):
        raise ValueError(f"{shown(name)} in '{field}' should be the name of a file in its own folder")
    return folder / str(name)


def name_of(facts: Mapping[str, Any], folder: Path) -> str:
    """What the data set is called: as it says, or as its folder."""
    name = facts.get("name")
    if name is not None and not isinstance(name, str):
        raise ValueError(f"'name' is {shown(name)}; a text is needed")
    return name or os.path.basename(os.path.realpath(folder))


def _named(source: Source) -> Source:
    """Without cases whose names are no text: they come from file names that are not UTF-8."""
    broken = [case.name for case in source.cases if not _is_text(case.name)]
    if not broken:
        return source
    kept = tuple(case for case in source.cases if case.name not in broken)
    problems = {one_line(name): "its name is not UTF-8: rename its files" for name in broken}
    others = {one_line(name): problem for name, problem in source.problems.items()}
    return replace(source, cases=kept, problems=others | problems)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _split(file: Path, source: Source, fold: int | None) -> Source:
    if not file.exists():
        if fold is not None:
            raise FileNotFoundError(f"fold {fold}: there is no {file}")
        return replace(source, validation=every_fifth(source.cases), split="every fifth case with a mask, by name")
    fold = fold or 0
    train, validation = _fold(file, read_json(file, MOST_BYTES), fold)
    both = sorted(train & validation)
    if both:
        raise ValueError(f"{file}, fold {fold}: {listed(map(one_line, both))} is in both train and val")
    cases, problems = [], dict(source.problems)
    for case in source.cases:
        if case.name in validation and case.mask is None:
            problems[case.name] = f"{file.name} has it in val, where a mask is needed, and it has none"
        elif case.mask is not None and case.name not in train | validation:
            problems[case.name] = f"it is in neither split of {file.name}, fold {fold}"
        else:
            cases.append(case)
    for name in sorted((train | validation) - {case.name for case in source.cases}):
        problems.setdefault(name, f"{file.name} names it, and it is not there")
    return replace(
        source,
        cases=tuple(cases),
        validation=frozenset(validation),
        split=f"{file.name}, fold {fold}",
        problems=problems,
    )


def _fold(file: Path, folds: Any, fold: int) -> tuple[set[str], set[str]]:
    form = f'{file} should be a list of {{"train": [names], "val": [names]}}'
    if not isinstance(folds, list):
        raise ValueError(form)
    if not 0 <= fold < len(folds):
        raise ValueError(f"fold {fold}: {file} has {len(folds)}, from 0 to {len(folds) - 1}")
    one = folds[fold]
    parts = [one.get(part) if isinstance(one, dict) else None for part in ("train", "val")]
    if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in parts):
        raise ValueError(form)
    return set(parts[0] or ()), set(parts[1] or ())
