"""A teacher's labels of a set, a file a case, and a task that learns from them.

labels.json     what they were made by, and a checksum of each file; written last
CASE.npz        mask uint8 [slices, height, width]: 0 for background, k for the k-th class, 255 for unsure
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from ringfence import memory
from ringfence.documents import read_json
from ringfence.files import checksum_of, read_bytes, write_text
from ringfence.hints import one_line
from ringfence.weak.prepared.arrays import Damaged, most_bytes, promised_bytes, read_arrays
from ringfence.weak.prepared.case_file import CaseFile, Written, find_arrays, write_npz
from ringfence.weak.prepared.prepared_set import Case, PreparedSet
from ringfence.weak.tasks.task import Task
from ringfence.weak.tasks.windows import UNSURE, StreamedRows, WindowReader, Windows

LABELS: Final = "labels.json"
FORMAT: Final = "ringfence teacher 1"
_AGAIN: Final = "remove its folder and go on with --resume: it is made again"


def write_labels(folder: Path, case: Case, labels: NDArray[np.uint8]) -> Written:
    """Write the labels of a case, ``[slices, height, width]``."""
    return write_npz(folder, case.file, {"mask": np.ascontiguousarray(labels)})


def finish_labels(folder: Path, written: Sequence[Written], about: Mapping[str, Any]) -> None:
    """Write what there is, last of all: a folder without it is made again."""
    facts = {"format": FORMAT, **about, "sha256": {one.file: one.sha256 for one in written}}
    write_text(folder / LABELS, json.dumps(facts, indent=1) + "\n")


def labels_about(folder: Path) -> dict[str, Any] | None:
    """What a folder of labels says of itself; None if it was never finished."""
    if not (folder / LABELS).exists():
        return None
    facts = read_json(folder / LABELS)
    sums = facts.get("sha256") if isinstance(facts, dict) else None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or not isinstance(sums, dict):
        raise ValueError(f"{folder / LABELS} is damaged: {_AGAIN}")
    return facts


def taught(task: Task, prepared: PreparedSet, folder: Path) -> Task:
    """The task with a teacher's labels as its masks, and ``unsure``; of a streamed task, both stay on the disk.

    In memory they are written over the masks that the task has, of which no more than boxes was used: there is room
    for one of both. Boxes, and all that constraints know, are the task's own.

    Args:
        task: of the prepared set, from its boxes.
        prepared: the set.
        folder: of the labels.
    """
    rows, cases = task.train, prepared.of("train")
    if isinstance(rows, StreamedRows):
        files = tuple(_located(folder, case, prepared) for case in cases)
        reader = WindowReader(rows.reader.files, rows.reader.windows, files)
        names = ("image", "mask", "unsure")
        return replace(task, train=StreamedRows(rows.targets, reader, rows.places, names))
    mask = rows["mask"]
    unsure = torch.zeros(len(mask), 1, *mask.shape[2:], dtype=torch.bool)
    first = 0
    for case in cases:
        labels = _read(folder, case, prepared)
        count = len(labels) if mask.ndim == 4 else 1
        size = (1, *labels.shape[1:]) if mask.ndim == 4 else labels.shape
        windows = Windows((size[0], size[1], size[2]), 0, mask.shape[1], flat=mask.ndim == 4)
        found = windows.samples({"mask": labels.reshape(count, *size)}, unsure=True)
        for name, whole in (("mask", mask), ("unsure", unsure)):
            here = whole[first : first + count]
            here.zero_()  # beyond a volume's end is background
            depth, height, width = (1, *found[name].shape[2:])[-3:]
            there = here[..., :height, :width] if mask.ndim == 4 else here[..., :depth, :height, :width]
            there.copy_(found[name])
        first += count
    return replace(task, train={**rows, "mask": mask, "unsure": unsure})


def _read(folder: Path, case: Case, prepared: PreparedSet) -> NDArray[np.uint8]:
    """The labels of a case, if they are those that were written."""
    shapes = {"mask": (case.shape[0], *prepared.size)}
    path = folder / case.file
    name = one_line(str(path))
    if not path.exists():
        raise FileNotFoundError(f"{name} does not exist: {_AGAIN}")
    memory.check(promised_bytes(shapes), name)
    content = read_bytes(path, most_bytes(shapes))
    if checksum_of(content) != (labels_about(folder) or {}).get("sha256", {}).get(case.file):
        raise ValueError(f"{name} is not the file that {LABELS} describes: {_AGAIN}")
    try:
        labels = read_arrays(content, shapes)["mask"]
    except Damaged as error:
        raise ValueError(f"{name} is damaged ({one_line(str(error))}): {_AGAIN}") from None
    if int(np.where(labels == UNSURE, 0, labels).max(initial=0)) > len(prepared.classes):
        raise ValueError(f"{name}: it has labels of more than {len(prepared.classes)} classes: {_AGAIN}")
    return labels


def _located(folder: Path, case: Case, prepared: PreparedSet) -> CaseFile:
    """Where the labels of a case are in its file, which is read once to be checked."""
    _read(folder, case, prepared)
    found = find_arrays(folder / case.file, {"mask": (case.shape[0], *prepared.size)})
    if found is None:
        raise ValueError(f"{one_line(str(folder / case.file))} cannot be read in parts: {_AGAIN}")
    with found.open():  # what was just read is what was located
        return found
