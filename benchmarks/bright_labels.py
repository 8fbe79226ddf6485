"""How good labels from brightness are (`appearance/labels.py`), against the masks of training images.

    python benchmarks/bright_labels.py prepared/beans prepared/rods --out results/plan/bright-labels

Nothing is trained. Of every class: how often its objects show and what they seem to fill of their boxes, which is
what plans go by; what they do fill; how many of its pixels have a label; and of the pixels that have one, its Dice,
what is too much and what is too little, as fractions of what is there. Beside it is the Dice of whole boxes. Masks
are used for these numbers, and for nothing else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from records import origin
from ringfence.environment import commit, environment
from ringfence.segmentation.boxes import covered
from ringfence.weak.annotations import boxes_from_masks
from ringfence.weak.appearance.labels import looked_labels
from ringfence.weak.planning.fingerprint import read_fingerprint
from ringfence.weak.prepared.prepared_set import Case, PreparedSet, read_prepared
from ringfence.weak.tasks.windows import UNSURE
from teaching import compared


def main() -> None:
    """Look at each set, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/bright_labels.py {' '.join(map(str, options.prepared))}",
        "seed": [],
        "environment": environment() | {"commit": commit()},
        "sets": {},
    }
    for path in options.prepared:
        record["sets"][path.name] = found_in(read_prepared(path))
        print(path.name, json.dumps(record["sets"][path.name]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def found_in(prepared: PreparedSet) -> dict[str, dict[str, float]]:
    """Of each class, by name; counts are summed over the training cases that have a mask."""
    every = [looked_at(prepared, case) for case in prepared.of("train") if case.masked]
    facts = {one.name: one for one in read_fingerprint(prepared).classes}
    found = {}
    for number, name in enumerate(prepared.classes, 1):
        truth, labels, boxes = (
            np.concatenate([part == number if part.ndim == 3 else part[:, number - 1] for part in parts])
            for parts in zip(*every, strict=True)
        )
        known = np.concatenate([one[1] != UNSURE for one in every])
        dice, much, little = compared(labels[known], truth[known])
        found[name] = {
            "visible": facts[name].visible,
            "seems": facts[name].fill,
            "fills": float(truth.sum() / boxes.sum()),
            "known": float((known & truth).sum() / truth.sum()),
            "dice": dice,
            "much": much,
            "little": little,
            "boxes": compared(boxes, truth)[0],
        }
    return found


def looked_at(prepared: PreparedSet, case: Case) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Masks and labels ``[slices, rows, columns]`` of a case, and where boxes are, ``[slices, classes, ...]``."""
    image, truth = prepared.load(case)
    assert truth is not None
    masks = torch.from_numpy(truth)[:, None] == torch.arange(1, 1 + len(prepared.classes))[None, :, None, None]
    boxes = boxes_from_masks(masks)
    tight = (boxes[..., 1] > boxes[..., 0]).all(dim=-1).numpy()
    known = case.frame(prepared.size).known
    labels = [looked_labels(*each, UNSURE, known) for each in zip(image, boxes.numpy(), tight, strict=True)]
    return truth, np.stack(labels), covered(boxes, masks.shape[2:]).numpy()


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each class of each set."""
    lines = [
        "| set | class | shows | seems | fills | has a label | Dice | too much | too little | Dice, boxes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, classes in record["sets"].items():
        for label, one in classes.items():
            shares = " | ".join(f"{one[key]:.0%}" for key in ("visible", "seems", "fills", "known"))
            rest = " | ".join(f"{one[key]:.3f}" for key in ("dice", "much", "little", "boxes"))
            lines.append(f"| {name} | {label} | {shares} | {rest} |")
    return "\n".join([*lines, "", origin(record)]) + "\n"


if __name__ == "__main__":
    main()
