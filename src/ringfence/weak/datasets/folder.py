"""A folder with dataset.json: which layout it is, and its split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ringfence.weak.datasets.decathlon import find_decathlon
from ringfence.weak.datasets.nnunet import find_nnunet
from ringfence.weak.datasets.source import Source, every_fifth, with_validation

DATASET: Final = "dataset.json"
SPLITS: Final = "splits_final.json"


def find_folder(path: Path, fold: int | None = None, validation: Sequence[str] | None = None) -> Source:
    """The training cases of a folder in nnU-Net's or the Decathlon's layout.

    Args:
        path: the folder with dataset.json.
        fold: which split of splits_final.json, the first unless given.
        validation: the cases for validation, instead of any other split.
    """
    if validation and fold is not None:
        raise ValueError("--fold and --validation each choose a split: give one of them")
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no folder: unpack the download, and name the folder with {DATASET}")
    if not (path / DATASET).exists():
        inside = sorted(file.parent for file in path.glob(f"*/{DATASET}"))
        hint = f"there is one in {inside[0]}: name that" if inside else "nnU-Net v2 and the Decathlon have one"
        raise FileNotFoundError(f"{path} holds no {DATASET}; {hint}")
    facts = _read(path / DATASET)
    if not isinstance(facts, dict):
        raise ValueError(f"{path / DATASET} should hold names and values")
    try:
        if "channel_names" in facts:
            source = find_nnunet(path, facts)
        elif "training" in facts and "modality" in facts:
            source = find_decathlon(path, facts)
        else:
            raise ValueError(
                "neither 'channel_names' and 'file_ending' (nnU-Net v2) nor 'modality' and 'training' (Decathlon)"
            )
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
        raise ValueError(f"{file} is no JSON: {error}") from None


def _split(file: Path, source: Source, fold: int | None) -> Source:
    if not file.exists():
        if fold is not None:
            raise FileNotFoundError(f"--fold {fold}: there is no {file}")
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
        raise ValueError(f"--fold {fold}: {file} has {len(folds)}, from 0 to {len(folds) - 1}")
    one = folds[fold]
    parts = [one.get(part) if isinstance(one, dict) else None for part in ("train", "val")]
    if not all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in parts):
        raise ValueError(form)
    return set(parts[0] or ()), set(parts[1] or ())
