"""How good a teacher's labels are: Dice of what a model finds in its training images, against their masks.

    ringfence train --data.prepared prepared/mine --data.folds 5 --data.fold 0 --refine 0 --out runs/mine
    python benchmarks/teaching.py runs/mine --out results/plan/teaching

Of each training, on slices, from boxes around masks that are there: what is likeliest in its boxes, as it is; and
the labels that a second network would learn from (docs/boxes.md, Refinement), if none were left out as unsure. Too
much and too little are fractions of what is there. Masks are used for these numbers, and for nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from looking import about, look_at
from records import origin
from ringfence import weak
from ringfence.segmentation.boxes import covered
from ringfence.weak.experiments.teacher import answers_of
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.tasks.boxes import prepared_of
from ringfence.weak.tasks.teaching import KnownOf, taught_labels

KINDS = ("likeliest in boxes", "labels")


def main() -> None:
    """Look at each model, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of trainings from boxes, on slices")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = f"python benchmarks/teaching.py {' '.join(map(str, options.runs))}"
    look_at(options.runs, looked_at, as_markdown, command, options.out)


def looked_at(run: Path) -> dict[str, Any]:
    """Of one training: for each kind of labels Dice, too much and too little: means over cases and classes."""
    settings = weak.from_file(weak.TrainSettings, run / "config.yaml")
    prepared = prepared_of(settings.data)
    task = weak.box_task(settings.data, settings.constraints, prepared)
    predictor = Predictor(
        *read_model(run / "model.safetensors", settings.network.class_path), device=settings.training.device
    )
    found: dict[str, list[list[float]]] = {name: [] for name in KINDS}
    for number, case in enumerate(prepared.of("train")):
        samples = answers_of([predictor], task, number, case, prepared)
        truth = prepared.load(case)[1]
        if truth is None:
            continue
        labels: dict[str, NDArray[Any]] = dict(
            zip(KINDS, (likeliest_in_boxes(samples), np.stack(taught_labels(samples, 0.0))), strict=True)
        )
        for one in range(1, 1 + len(prepared.classes)):
            there = np.asarray(truth == one)
            if there.any():
                for name, some in labels.items():
                    found[name].append(compared(np.asarray(some == one), there))
    means = {name: np.mean(some, axis=0).tolist() for name, some in found.items()}
    return {**about(run, settings), "labels": means}


def likeliest_in_boxes(samples: Sequence[tuple[NDArray[np.float32], KnownOf]]) -> NDArray[np.int64]:
    """The likeliest class of each pixel that has a box there, or background."""
    labels = []
    for probabilities, known in samples:
        space = torch.Size(probabilities.shape[1:])
        inside = covered(torch.from_numpy(known.box)[None], space)[0].numpy()
        labels.append(np.concatenate([probabilities[:1], probabilities[1:] * inside]).argmax(axis=0))
    return np.stack(labels)


def compared(found: NDArray[np.bool_], truth: NDArray[np.bool_]) -> list[float]:
    """Dice, and what is too much and too little, as fractions of what is there."""
    both, there = float((found & truth).sum()), float(truth.sum())
    much, little = float((found & ~truth).sum()), there - both
    return [2.0 * both / (2.0 * both + much + little), much / there, little / there]


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each training and kind of labels."""
    lines = ["| training | | Dice | too much | too little |", "|---|---|---|---|---|"]
    for one in record["runs"]:
        fold = "" if one["fold"] is None else f", fold {one['fold']}"
        for name, (dice, much, little) in one["labels"].items():
            title = f"{one['set']}{fold}" if name == KINDS[0] else ""
            lines.append(f"| {title} | {name} | {dice:.3f} | {much:.3f} | {little:.3f} |")
    return "\n".join([*lines, "", origin(record)]) + "\n"


if __name__ == "__main__":
    main()
