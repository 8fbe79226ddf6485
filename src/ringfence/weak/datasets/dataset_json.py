"""What nnU-Net and the Decathlon have in common: ``dataset.json``, and a split in ``splits_final.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from ringfence.weak.datasets.layout import Option
from ringfence.weak.datasets.source import Source, every_fifth, with_validation

DATASET: Final = "dataset.json"
SPLITS: Final = "splits_final.json"
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
        hint = (
            f"there is one in {inside[0]}: name that"
            if inside
            else "write one, or describe your own layout (docs/prepare.md)"
        )
        raise FileNotFoundError(f"{path} holds no {DATASET}; {hint}")
    facts = _read(path / DATASET)
    if not isinstance(facts, dict):
        raise ValueError(f"{path / DATASET} should hold names and values")
    try:
        source = cases(path, facts)
        if not source.classes:
            raise ValueError("it names no class but the background")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path / DATASET} cannot be used: {what}") from None
    return with_validation(source, validation) if validation else _split(path / SPLITS, source, fold)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None


def _split(file: Path, source: Source, fold: int | None) -> Source:
    if not file.exists():
        if fold is not None:
            raise FileNotFoundError(f"fold {fold}: there is no {file}")
        return replace(source, validation=every_fifth(source.cases), split="every fifth case with a mask, by name")
    fold = fold or 0
    train, validation = _fold(file, _read(file), fold)
    both = sorted(train & validation)
    if both:
        raise ValueError(f"{file}, fold {fold}: {', '.join(both)} is in both train and val")
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
