"""What numbers without masks are worth: beside the Dice of each case, which is known here, and ranked against it.

    python benchmarks/quality.py --out results/plan/quality

Generates a set as ``examples/make_nnunet_folder.py`` does, trains two models on it from boxes as docs/boxes.md
does, which differ in their seed alone, and predicts cases that neither has seen: some as those trained on, some
noisier and noisier, as a scanner on a bad day.
Of each case: Dice against the truth, and what a user without masks sees. Spearman's rank correlation of 1 (or, of
uncertainty, -1) is a number that puts the cases in the order of their Dice; 0 is one that says nothing of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import runpy
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ringfence import Monitor, weak
from ringfence.environment import commit, environment
from ringfence.segmentation import Region
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.networks.neighbouring_slices import neighbours_averaged
from ringfence.weak.tasks.task import tolerances
from ringfence.weak.training.box_agreement import agreements
from ringfence.weak.training.settings import flip_axes
from ringfence.weak.training.views import view_averaged, views_of
from ringfence.weak.volumes import read_volume

SEEDS = (0, 1)
PLAIN, NOISY = 12, 16
"""Cases to judge: as those trained on, and with more noise."""
WORST = 3.0
"""Noise of the noisiest case, in units of what all have."""
EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "examples" / "make_nnunet_folder.py"))
SHAPE = (12, 48, 40)
"""Slices, rows and columns."""
NUMBERS = {
    "agreement": "agreement of two models",
    "flip_agreement": "agreement of flips",
    "uncertainty": "uncertainty",
    "box_iou": "box agreement",
    "satisfaction": "satisfaction",
    "dice_lack": "(tried) 1 - the Dice that probabilities expect",
    "voxel_doubt": "(tried) mean of 4p(1 - p) where p >= 0.05",
}
"""What is looked at, by name; box agreement and satisfaction need boxes, and two were tried for uncertainty."""
OF_CLASSES = tuple(name for name in NUMBERS if name not in ("box_iou", "satisfaction"))
Row = dict[str, Any]


def main() -> None:
    """Train, predict, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=8, help="to train on")
    parser.add_argument("--epochs", type=int, default=60, help="of each training")
    parser.add_argument("--seed", type=int, default=0, help="of the data")
    parser.add_argument("--keep", type=Path, help="a new folder for data, models and masks (default: none)")
    parser.add_argument(
        "--rewrite", type=Path, nargs="+", help="compute these records' correlations anew, and nothing else"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.rewrite:
        for file in options.rewrite:
            save(file, json.loads(file.read_text(encoding="utf-8")))
        return
    if not options.out:
        parser.error("--out: where to?")
    if options.keep:
        classes, boxed = judged(options.keep, options)
    else:
        with tempfile.TemporaryDirectory() as name:
            classes, boxed = judged(Path(name), options)
    cases = by_case(classes, boxed)
    record: dict[str, Any] = {
        "command": f"python benchmarks/quality.py --cases {options.cases} --epochs {options.epochs} "
        f"--seed {options.seed}",
        "seed": options.seed,
        "environment": environment() | {"commit": commit()},
        "seeds": SEEDS,
        "cases": cases,
        "classes": classes,
    }
    save(options.out, record)


def save(out: Path, record: dict[str, Any]) -> None:
    """Write OUT.json, with what follows from its rows, and OUT.md."""
    found = {
        "by case": {name: correlations(record["cases"], name) for name in NUMBERS},
        "by case and class": {name: correlations(record["classes"], name) for name in OF_CLASSES},
    }
    record = {**record, "correlations": found}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def judged(folder: Path, options: argparse.Namespace) -> tuple[list[Row], dict[str, dict[str, float]]]:
    """A row for each case and class, and what is known of each case's boxes, of the first of two models."""
    download, judge = folder / "download", folder / "judged"
    random = np.random.default_rng(options.seed)
    write(download, {f"case_{number:03}": 0.0 for number in range(options.cases)}, {}, random)
    levels = [0.0] * PLAIN + np.linspace(0.0, WORST, NOISY + 1)[1:].tolist()
    noise = {f"judged_{number:03}": level for number, level in enumerate(levels)}
    write(judge, {"one": 0.0}, noise, random)  # every set has one to train on
    for source, name in ((download, "prepared"), (judge, "prepared-judged")):
        weak.prepare("folder", source, folder / name)
    masks, models = [], []
    data = {"data.prepared": str(folder / "prepared"), "data.boxes": str(download / "boxes.csv")}
    for seed in SEEDS:
        changes = data | {"training.epochs": options.epochs, "seed": seed}
        settings = weak.from_preset(weak.TrainSettings, "boxes-small", changes)
        model = weak.train(settings, folder / f"model-{seed}").load(device="cpu")
        models.append(model)
        masks.append(folder / f"masks-{seed}")
        print(
            weak.predict(model, judge / "imagesTs", masks[-1], probabilities=not seed, overlays=bool(options.keep)),
            flush=True,
        )
    scores = weak.evaluate(masks[0], judge / "labelsTr")
    between = weak.agreement_between(*masks)
    told = list(csv.DictReader((masks[0] / "predictions.csv").read_text().splitlines()))
    places = {"data.prepared": str(folder / "prepared-judged"), "data.boxes": str(judge / "boxes.csv")}
    boxed = by_boxes(settings.changed(places), models[0])
    dices = {(one.case, one.label): one.dice for one in scores.scores}
    agreed = {(one.case, one.label): one.dice for one in between.cases}
    rows: list[Row] = []
    for row in told:
        case, label = row["case"], 1 + EXAMPLE["CLASSES"].index(row["class"])
        share = read_volume(masks[0] / f"{case}_{row['class']}_probability.nii.gz").voxels.astype(np.float64)
        mask = read_volume(masks[0] / f"{case}.nii.gz").voxels == label
        rows.append(
            {
                "case": case,
                "class": row["class"],
                "noise": noise[case],
                "dice": dices[case, label],
                "agreement": agreed[case, label],
                "flip_agreement": float(row["flip_agreement"] or 0.0),  # nothing found is nothing to rely on
                "uncertainty": float(row["uncertainty"] or 1.0),
                **tried(share, mask),
            }
        )
    return rows, boxed


def tried(share: NDArray[np.float64], mask: NDArray[np.bool_]) -> dict[str, float]:
    """What else uncertainty might be, of a class's probabilities and its mask."""
    likely = share >= 0.05
    total = mask.sum() + share[mask | likely].sum()
    return {
        "dice_lack": float(1.0 - 2.0 * share[mask].sum() / total) if total else 1.0,
        "voxel_doubt": float((4.0 * share * (1.0 - share))[likely].mean()) if likely.any() else 1.0,
    }


def by_case(rows: Sequence[Row], boxed: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Means over classes, and what is known of the case's boxes."""
    cases: list[Row] = []
    for case, known in boxed.items():
        own = [row for row in rows if row["case"] == case]
        means = {name: statistics.fmean(row[name] for row in own) for name in ("noise", "dice", *OF_CLASSES)}
        missed = sum(row["uncertainty"] == 1.0 for row in own)
        cases.append({"case": case, "missed": missed, **means, **known})
    return cases


def write(
    folder: Path, train: Mapping[str, float], judge: Mapping[str, float], random: np.random.Generator
) -> None:
    """A folder as nnU-Net has them, with boxes; cases to train on and to judge, with noise added to them."""
    rows: list[tuple[object, ...]] = []
    for case, level in {**train, **judge}.items():
        labels = EXAMPLE["ellipsoids"](random, SHAPE)
        present = labels == np.arange(1, 1 + len(EXAMPLE["CLASSES"]), dtype=np.uint8)[:, None, None, None]
        for channel, contrast in enumerate(EXAMPLE["CONTRAST"]):
            image = 300.0 + np.tensordot(contrast, present, axes=1)
            image = (image + random.normal(0.0, 15.0 * (1.0 + level), labels.shape)).astype(np.int16)
            for part in ("Tr", "Ts") if case in judge else ("Tr",):
                EXAMPLE["write"](folder / f"images{part}" / f"{case}_{channel:04}.nii.gz", image)
        if case in judge:
            EXAMPLE["write"](folder / "labelsTr" / f"{case}.nii.gz", labels)
        rows += [(case, *row) for row in EXAMPLE["boxes"](labels)]
    with (folder / "boxes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "slice", "class", "row_low", "row_high", "column_low", "column_high"))
        writer.writerows(rows)
    facts = {
        "channel_names": {str(number): name for number, name in enumerate(EXAMPLE["CHANNELS"])},
        "labels": {"background": 0} | {name: number for number, name in enumerate(EXAMPLE["CLASSES"], start=1)},
        "numTraining": len(train) + len(judge),
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(facts, indent=2) + "\n")
    split = [{"train": list(train), "val": list(judge)}]
    (folder / "splits_final.json").write_text(json.dumps(split) + "\n")


@torch.no_grad()
def by_boxes(settings: weak.TrainSettings, model: weak.Model) -> dict[str, dict[str, float]]:
    """Of each case for validation: the share of constraints that hold, and the mean agreement of its boxes."""
    task = weak.box_task(settings.data, settings.constraints)
    names = [case.name for case in weak.read_prepared(settings.data.prepared).of("validation")]
    network = read_model(model.path)[0].eval()
    levels = torch.tensor([0.0, *model.card.levels]) if model.card.levels else None
    found = {}
    for number, name in enumerate(names):
        rows = (task.validation["case"] == number).nonzero().flatten()
        batch: Mapping[str, Any] = {
            key: one[rows] if isinstance(one, torch.Tensor) and len(one) == len(task.validation["case"]) else one
            for key, one in task.validation.items()
        }
        images = batch["image"].float() / 255.0
        views = views_of(flip_axes(model.card.flips), model.card.turns)
        mean = view_averaged(network, images, views, levels)
        mean = torch.cat(list(neighbours_averaged([mean], model.card.neighbours)))
        logits = mean.clamp(min=1e-30).log()
        monitor = Monitor(tolerances(task.constraints) or 0.0)
        monitor.update(index=None, **task.measure("pixels")(Region(logits, boxes=batch["box"]), batch))
        ious = agreements(logits, batch)[:, 1].tolist()
        found[name] = {
            "box_iou": statistics.fmean(ious),
            "satisfaction": float(monitor.compute()["satisfaction"]),
        }
    return found


def correlations(rows: Sequence[Row], name: str) -> dict[str, float]:
    """Spearman's, of a number and Dice: over all rows, those like the ones trained on, and where nothing is missed.

    Of a class that is not found at all uncertainty counts as 1 and flips as 0; but two models that miss it agree.
    """
    some = {
        "all": list(rows),
        "plain": [row for row in rows if not row["noise"]],
        "found": [row for row in rows if not row.get("missed", row["uncertainty"] == 1.0)],
    }
    return {
        which: float(spearmanr([row["dice"] for row in one], [row[name] for row in one])[0])
        for which, one in some.items()
    }


def as_markdown(record: dict[str, Any]) -> str:
    """The correlations, and each case."""
    rows, facts = record["cases"], record["environment"]
    plain = sum(not row["noise"] for row in rows)
    whole, shown = sum(not row["missed"] for row in rows), record["correlations"]
    lines = [
        "Rank correlation with Dice, over cases that the model has not seen: means over classes, then each class "
        "of each case for itself; of all, of those that are as the ones trained on, and of those where something "
        "of every class was found:",
        "",
        f"| | {len(rows)} cases | {plain} as trained on | {whole} nothing missed | cases × classes | "
        "as trained on | nothing missed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, title in NUMBERS.items():
        cells = [
            f"{shown[which][name][some]:+.2f}" if name in shown[which] else "–"
            for which in ("by case", "by case and class")
            for some in ("all", "plain", "found")
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        "Each case, means over classes; noise is what was added, in units of what all have:",
        "",
        f"| case | noise | Dice | {' | '.join(NUMBERS.values())} |",
        "|---" * (3 + len(NUMBERS)) + "|",
        *(
            f"| {row['case']} | {row['noise']:.2f} | {row['dice']:.3f} | "
            f"{' | '.join(f'{row[name]:.3f}' for name in NUMBERS)} |"
            for row in sorted(rows, key=lambda row: row["dice"])
        ),
        "",
        f"`{record['command']}`, torch {facts['torch']}, {facts['cpu']}, commit {facts['commit']}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
