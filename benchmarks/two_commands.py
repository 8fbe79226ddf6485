"""As a new user would: a folder with images and boxes.csv, two commands, and a model for images it has not seen.

    python benchmarks/two_commands.py hearts beans --workers 2 --out results/plan/two-commands
    python benchmarks/two_commands.py promise12 --downloads downloads/promise12 --out results/plan/two-commands

Sets are those of `generated_sets.py` and `unseen_sets.py`, and the real one of `promise12_folder.py`. The folder
holds nothing but images and boxes: neither a mask nor dataset.json, and no option is given. The commands are run as
they are: `prepare folder`, `train`, `predict` and `evaluate`. Dice is that of test cases, which are in neither
folder. Beside it is the same with masks: all of them in nnU-Net's layout, and `--method full_supervision`. Both
train on all cases. The same command again does only what is missing, and boxes of the sets that are named by
`--again`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generated_sets
import promise12_folder
import unseen_sets
from records import kept, origin
from ringfence.environment import commit, environment

KINDS = {name: kind.about for name, kind in generated_sets.KINDS.items()}
KINDS |= {name: kind.about for name, kind in unseen_sets.UNSEEN.items()}
KINDS |= {promise12_folder.NAME: promise12_folder.ABOUT}
TESTS = 8


@dataclass(frozen=True)
class Job:
    """One training: of a kind of set, from boxes or from masks."""

    kind: str
    masks: bool
    seed: int
    downloads: Path | None = None


def main() -> None:
    """Train, and write OUT.json and OUT.md after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND")
    parser.add_argument("--seed", type=int, default=0, help="of the sets")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")
    parser.add_argument(
        "--again", nargs="+", default=[], choices=KINDS, metavar="KIND", help="of these, train from boxes anew"
    )
    parser.add_argument("--downloads", type=Path, help="where PROMISE12 is: CaseNN.mhd and CaseNN_segmentation.mhd")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if promise12_folder.NAME in options.kinds and options.downloads is None:
        parser.error("promise12 is not generated: name its folder by --downloads")
    if strange := sorted(set(options.again) - set(options.kinds)):
        parser.error(f"--again {' '.join(strange)}: not among {' '.join(options.kinds)}")
    file = options.out.with_suffix(".json")
    record: dict[str, Any] = {
        "command": f"python benchmarks/two_commands.py {' '.join(options.kinds)} --seed {options.seed} "
        f"--workers {options.workers}"
        + (f" --again {' '.join(options.again)}" if options.again else "")
        + (f" --downloads {options.downloads.name}" if options.downloads else ""),
        "seed": options.seed,
        "environment": environment() | {"commit": commit()},
        "trainings": [],
    }
    before = kept(file, record, "seed")
    record["trainings"] = [one for one in before if one["set"] not in options.again or one["from"] == "masks"]
    ready = {(one["set"], one["from"] == "masks") for one in record["trainings"]}
    jobs = [Job(kind, masks, options.seed, options.downloads) for masks in (False, True) for kind in options.kinds]
    jobs = [job for job in jobs if (job.kind, job.masks) not in ready]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    with ThreadPoolExecutor(options.workers) as pool:
        running = {pool.submit(done, job, options.workers): job for job in jobs}
        for future in as_completed(running):
            if error := future.exception():  # the others go on, and are written
                failed.append(f"{running[future].kind}: {error}")
                continue
            found = future.result() | {"commit": record["environment"]["commit"]}
            print(json.dumps(found), flush=True)
            record["trainings"].append(found)
            file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")
    if failed:
        raise SystemExit("\n".join(failed))


def done(job: Job, workers: int) -> dict[str, Any]:
    """Make the set, run the commands, and read what `evaluate` wrote."""
    threads = {"OMP_NUM_THREADS": "1"} if workers > 1 else {}  # threads that wait for each other spin
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(job, folder)
        own = ["--method", "full_supervision"] if job.masks else []
        seconds = {}
        for command in (
            ["prepare", "folder", "mine", "prepared/mine"],
            ["train", "--data.prepared", "prepared/mine", "--out", "runs/mine", *own],
            ["predict", "runs/mine/model.safetensors", "tests", "masks"],
            ["evaluate", "masks", "truth"],
        ):
            began = time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "ringfence", *command],
                cwd=folder,
                check=True,
                env={**os.environ, **threads},
                stdout=subprocess.DEVNULL,
            )
            seconds[command[0]] = round(time.monotonic() - began, 1)
        rows = list(csv.DictReader((folder / "masks/evaluation.csv").read_text(encoding="utf-8").splitlines()))
        result = json.loads((folder / "runs/mine/result.json").read_text(encoding="utf-8"))
    each = {label: _dice(row for row in rows if row["label"] == label) for label in {row["label"] for row in rows}}
    return {
        "set": job.kind,
        "from": "masks" if job.masks else "boxes",
        "dice": statistics.mean(each.values()),
        "dice_of_classes": dict(sorted(each.items())),
        "cases": len({row["case"] for row in rows}),
        "round": result.get("round"),
        "seconds": seconds,
    }


def make(job: Job, folder: Path) -> None:
    """``mine`` to train on, ``tests`` to find objects in, ``truth`` to compare with."""
    made = folder / "made"
    if job.kind == promise12_folder.NAME:
        assert job.downloads is not None
        promise12_folder.write_folder(job.downloads, made)
    else:
        sets: Any = generated_sets if job.kind in generated_sets.KINDS else unseen_sets
        sets.write_set(job.kind, made, job.seed, masks=True, tests=TESTS)
    mine = folder / "mine"
    mine.mkdir()
    if job.masks:
        names = sorted({file.name.split(".")[0] for file in (made / "labelsTr").iterdir()})
        (mine / "splits_final.json").write_text(json.dumps([{"train": names, "val": []}]))
        for part in ("imagesTr", "labelsTr", "dataset.json"):
            shutil.move(made / part, mine / part)
    else:
        shutil.move(made / "imagesTr", mine / "images")
        shutil.move(made / "boxes.csv", mine / "boxes.csv")
    shutil.move(made / "imagesTs", folder / "tests")
    shutil.move(made / "labelsTs", folder / "truth")


def _dice(rows: Iterable[dict[str, str]]) -> float:
    return statistics.mean(float(row["dice"]) for row in rows)


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each set."""
    found = {(one["set"], one["from"]): one for one in record["trainings"]}
    lines = ["| set | what | boxes | masks | boxes over masks | minutes |", "|---|---|---|---|---|---|"]
    for kind in (kind for kind in KINDS if (kind, "boxes") in found or (kind, "masks") in found):
        boxes, masks = (found.get((kind, source)) for source in ("boxes", "masks"))
        ratio = f"{boxes['dice'] / masks['dice']:.3f}" if boxes and masks else "–"
        minutes = f"{(boxes['seconds']['prepare'] + boxes['seconds']['train']) / 60:.0f}" if boxes else "–"
        cells = [f"{one['dice']:.3f}" if one else "–" for one in (boxes, masks)]
        lines.append(f"| `{kind}` | {KINDS[kind]} | {cells[0]} | {cells[1]} | {ratio} | {minutes} |")
    lines += ["", f"Dice of {TESTS} test cases (of PROMISE12, ten), mean over classes and cases. {origin(record)}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
