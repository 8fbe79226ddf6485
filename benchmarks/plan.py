"""Boxes against masks, both as `ringfence plan` says, with no other setting: on any prepared sets.

    python benchmarks/generated_sets.py grains downloads/grains --masks
    ringfence prepare folder downloads/grains prepared/grains
    python benchmarks/plan.py prepared/grains --seeds 0 1 2 --out grains

Sets have masks of all cases; the training from boxes sees no more of them than the boxes around their objects, or
the file that is given by --boxes (a name in the folder of each set's images). Dice is that of the cases for
validation, mean of the last ten epochs, or of all where there are fewer. With --workers several trainings share the
machine: what they reach is the same, and what they take is not reported. With --masks-of, only boxes are
trained on, and compared with earlier records' trainings from masks, if their plan is still the same. Masks get the
same plan, but for what is better for them (--for-masks).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import before_refinement, origin, short
from ringfence.environment import commit, environment

LAST = 10
"""Epochs whose mean counts."""


@dataclass(frozen=True)
class Job:
    """One training: of a set, from boxes or from masks, with a seed."""

    prepared: Path
    masks: bool
    seed: int
    changes: tuple[tuple[str, Any], ...]
    boxes: Path | None = None
    patch: tuple[int, ...] | None = None
    volumes: bool | None = None


def main() -> None:
    """Train, and write OUT.json and OUT.md after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, nargs="*")
    parser.add_argument(
        "--rewrite", action="store_true", help="train nothing: OUT.md of the OUT.json that is there"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--boxes", type=Path, nargs="+", help="a file for each set; default: around their masks")
    parser.add_argument("--volumes", action=argparse.BooleanOptionalAction, help="plans for volumes, or for slices")
    parser.add_argument("--patch", type=int, nargs=3, help="for volumes, in patches of slices, rows and columns")
    parser.add_argument("--only", choices=("boxes", "masks"))
    parser.add_argument(
        "--masks-of", type=Path, nargs="+", default=[], metavar="JSON", help="trainings from masks that are there"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings that the plan for boxes is changed by"
    )
    parser.add_argument("--both", nargs="+", default=[], metavar="NAME=VALUE", help="likewise, and that for masks")
    parser.add_argument("--for-masks", nargs="+", default=[], metavar="NAME=VALUE", help="that for masks alone")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.rewrite:
        write(json.loads(options.out.with_suffix(".json").read_text(encoding="utf-8")), options.out)
        return
    if options.masks_of:
        if options.only or options.both or options.for_masks:
            parser.error("--masks-of is for boxes by plan: not with --only, --both or --for-masks")
        options.only = "boxes"
    changes, both, of_masks = (
        tuple((one.partition("=")[0], json.loads(one.partition("=")[2])) for one in some)
        for some in (options.set, options.both, options.for_masks)
    )
    files = options.boxes or [None] * len(options.prepared)
    jobs = [
        Job(
            path,
            kind == "masks",
            seed,
            both + (changes if kind == "boxes" else of_masks),
            file if kind == "boxes" else None,
            tuple(options.patch) if options.patch else None,
            options.volumes,
        )
        for seed in options.seeds
        for path, file in zip(options.prepared, files, strict=True)
        for kind in ("boxes", "masks")
        if options.only in (None, kind)
    ]
    given = [f"--only {options.only}"] * bool(options.only and not options.masks_of)
    given += [f"--masks-of {' '.join(map(str, options.masks_of))}"] * bool(options.masks_of)
    changed = {"set": options.set, "both": options.both, "for-masks": options.for_masks}
    given += [f"--{name} {' '.join(some)}" for name, some in changed.items() if some]
    if options.volumes is not None:
        given.append("--volumes" if options.volumes else "--no-volumes")
    if options.patch:
        given.append(f"--patch {' '.join(map(str, options.patch))}")
    if options.boxes:
        given.append(f"--boxes {' '.join(map(str, options.boxes))}")
    record: dict[str, Any] = {
        "command": " ".join(
            [
                f"python benchmarks/plan.py {' '.join(map(str, options.prepared))}",
                f"--seeds {' '.join(map(str, options.seeds))}",
                *given,
                f"--workers {options.workers}",
            ]
        ),
        "seed": options.seeds,
        "environment": environment() | {"commit": commit()},
        "trainings": [],
    }
    if options.masks_of:
        record["trainings"] = masks_of(options.masks_of, [one.name for one in options.prepared], options.seeds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for found in done(jobs, options.workers):
        record["trainings"].append(found)
        print(json.dumps({name: found.get(name) for name in ("set", "from", "seed", "dice", "rounds")}), flush=True)
        write(record, options.out)


def masks_of(paths: list[Path], sets: list[str], seeds: list[int]) -> list[dict[str, Any]]:
    """The trainings from masks in earlier records, each with its commit: the last one of each set and seed."""
    found = {}
    for path in paths:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        for one in earlier["trainings"]:
            if one["from"] == "masks":
                found[one["set"], one["seed"]] = {"commit": earlier["environment"]["commit"], **one}
    if missing := [(name, seed) for name in sets for seed in seeds if (name, seed) not in found]:
        raise SystemExit(f"--masks-of: no training from masks of {missing[0][0]} with seed {missing[0][1]}")
    return [found[name, seed] for name in sets for seed in seeds]


def write(record: dict[str, Any], out: Path) -> None:
    """OUT.json with the means over seeds, and OUT.md."""
    every, means = record["trainings"], {}
    for name in dict.fromkeys(one["set"] for one in every):
        boxes, masks = (_of(every, name, kind) for kind in ("boxes", "masks"))
        first = before_refinement(boxes)
        means[name] = {
            "boxes": _mean(boxes),
            "before_refinement": _mean(first),
            "masks": _mean(masks),
            "ratio": _mean(boxes) / _mean(masks) if boxes and masks else None,
            "ratio_before_refinement": _mean(first) / _mean(masks) if first and masks else None,
        }
        means[name] = {key: value if value == value else None for key, value in means[name].items()}
    record["means"] = means
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def done(jobs: list[Job], workers: int) -> Iterator[dict[str, Any]]:
    """What each training reached, in the order in which they end."""
    if workers == 1:
        yield from map(trained, jobs)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other spin
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(trained, jobs)


def trained(job: Job) -> dict[str, Any]:
    """Plan, train, and read what the run says."""
    from ringfence import weak

    asked = weak.BoxDataSettings(
        prepared=str(job.prepared),
        boxes="masks" if job.boxes is None else str(job.boxes),
        patch=None if job.patch is None else list(job.patch),
        volumes=job.volumes,
    )
    method = {"method": "full_supervision"} if job.masks else {}
    settings = weak.planned(weak.plan(asked), {"seed": job.seed, **method, **dict(job.changes)})
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        weak.train(settings, run, progress=False)
        found = reached(run)
    return {
        "set": job.prepared.name,
        "from": "masks" if job.masks else "boxes",
        "boxes": None if job.boxes is None else str(job.boxes),
        "seed": job.seed,
        **found,
    }


def reached(run: Path, epochs: int = LAST) -> dict[str, Any]:
    """What the folder of a training says of its end: Dice is the mean of so many epochs."""
    rows = _rows(run)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    rounds = [
        one | {"dice": _end(_rows(run / f"round-{one['round']}"), epochs)} for one in result.get("rounds") or []
    ]
    return {
        "dice": _end(rows, epochs),
        "dice_of_classes": {name: float(value) for name, value in rows[-1].items() if name.startswith("dice/")},
        "box_iou": float(rows[-1]["box_iou"]),
        "round": result.get("round"),
        "rounds": rounds or None,
        "epochs": len(rows),
    }


def _rows(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "metrics.csv").read_text(encoding="utf-8").splitlines()))


def _end(rows: list[dict[str, str]], epochs: int) -> float:
    return statistics.mean(float(row["dice"]) for row in rows[-epochs:])


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each set."""
    every = record["trainings"]
    lines = ["| set | boxes | before refinement | masks | boxes over masks |", "|---|---|---|---|---|"]
    for name, mean in record["means"].items():
        boxes, masks = (_of(every, name, kind) for kind in ("boxes", "masks"))
        ratio = "–" if mean["ratio"] is None else f"{mean['ratio']:.3f}"
        if mean["ratio_before_refinement"] is not None:
            ratio += f" (before: {mean['ratio_before_refinement']:.3f})"
        first = before_refinement(boxes)
        lines.append(f"| {name} | {_shown(boxes)} | {_shown(first)} | {_shown(masks)} | {ratio} |")
    others = ", ".join(sorted({short(one["commit"]) for one in every if "commit" in one}))
    lines += ["", f"Mean over seeds (least to most). {origin(record, f' (masks: {others})' if others else '')}"]
    return "\n".join(lines) + "\n"


def _of(trainings: list[dict[str, Any]], name: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in trainings if (one["set"], one["from"]) == (name, kind)]


def _mean(trainings: list[dict[str, Any]]) -> float:
    return statistics.mean(float(one["dice"]) for one in trainings) if trainings else math.nan


def _shown(trainings: list[dict[str, Any]]) -> str:
    if not trainings:
        return "–"
    each = [float(one["dice"]) for one in trainings]
    spread = f" ({min(each):.3f} to {max(each):.3f})" if len(each) > 1 else ""
    return f"{statistics.mean(each):.3f}{spread}"


if __name__ == "__main__":
    main()
