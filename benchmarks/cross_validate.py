r"""Settings compared by cross-validation within a set's training cases: its cases for validation are not touched.

    python benchmarks/cross_validate.py prepared/promise12 --folds 5 --set constraints.edges.strength=2 \
        --set constraints.edges.strength=10 data.margin=1 --out results/plan/strength

Each --set is a variant of the plan, which itself comes first (unless --no-plan). Every variant is planned and
trained on the same folds: whole cases, every so many-th by name. Dice is that of the cases held out, mean of the
last ten epochs (--last), or of all where there are fewer; their masks are used for nothing else. Seeds alone make a
difference: look in how many folds a variant is better. With --workers several trainings share the machine. With
--keep their folders stay, to be looked at.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plan import LAST, reached
from records import before_refinement, origin
from ringfence.environment import commit, environment

PLAN = "plan"
"""The name of the variant in which nothing is changed."""


@dataclass(frozen=True)
class Job:
    """One training: a variant on a fold, with a seed."""

    prepared: Path
    boxes: Path | None
    device: str
    folds: int
    fold: int
    seed: int
    variant: str
    changes: tuple[tuple[str, Any], ...]
    last: int
    run: Path | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write OUT.json and OUT.md after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, nargs="?")
    parser.add_argument(
        "--rewrite", action="store_true", help="train nothing: OUT.md of the OUT.json that is there"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="+", metavar="FOLD", help="these folds; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--last", type=int, default=LAST, help="epochs whose mean counts: few, where there are few")
    parser.add_argument("--boxes", type=Path, help="a file; default: around the masks of the training cases")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--set", nargs="+", action="append", default=[], metavar="NAME=VALUE", help="a variant of the plan"
    )
    parser.add_argument("--no-plan", action="store_true", help="leave out the plan as it is")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the trainings' folders stay")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.rewrite:
        write(json.loads(options.out.with_suffix(".json").read_text(encoding="utf-8")), options.out)
        return
    if options.prepared is None:
        parser.error("which prepared set?")
    variants: list[tuple[str, tuple[tuple[str, Any], ...]]] = [] if options.no_plan else [(PLAN, ())]
    variants += [(" ".join(words), tuple(map(change, words))) for words in options.set]
    if not variants:
        parser.error("--no-plan leaves nothing to train: give a --set")
    jobs = [
        Job(
            options.prepared,
            options.boxes,
            options.device,
            options.folds,
            fold,
            seed,
            name,
            changes,
            options.last,
            None if options.keep is None else options.keep / f"fold-{fold}-variant-{number}-seed-{seed}",
        )
        for seed in options.seeds
        for fold in (range(options.folds) if options.only is None else options.only)
        for number, (name, changes) in enumerate(variants)
    ]
    record: dict[str, Any] = {
        "command": command(options),
        "seed": options.seeds,
        "set": options.prepared.name,
        "folds": options.folds,
        "variants": [name for name, _ in variants],
        "environment": environment() | {"commit": commit()},
        "trainings": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for found in done(jobs, options.workers):
        record["trainings"].append(found)
        print(json.dumps({name: found[name] for name in ("variant", "fold", "seed", "dice")}), flush=True)
        write(record, options.out)


def change(word: str) -> tuple[str, Any]:
    """A setting's dotted name, and its value; what is no JSON is a word."""
    name, equals, text = word.partition("=")
    if not equals:
        raise SystemExit(f"--set {word}: NAME=VALUE is needed")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def command(options: argparse.Namespace) -> str:
    """What to say in a shell to get the same."""
    words = [f"python benchmarks/cross_validate.py {options.prepared} --folds {options.folds}"]
    if options.only is not None:
        words.append(f"--only {' '.join(map(str, options.only))}")
    words.append(f"--seeds {' '.join(map(str, options.seeds))}")
    words += [f"--boxes {options.boxes}"] * bool(options.boxes)
    words += [f"--set {' '.join(one)}" for one in options.set]
    words += [f"--last {options.last}"] * (options.last != LAST)
    words += [f"--device {options.device}"] * (options.device != "auto")
    words += ["--no-plan"] * options.no_plan
    return " ".join([*words, f"--workers {options.workers}"])


def done(jobs: list[Job], workers: int) -> Iterator[dict[str, Any]]:
    """What each training reached, in the order in which they end."""
    if workers == 1:
        yield from map(trained, jobs)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other spin
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(trained, jobs)


def trained(job: Job) -> dict[str, Any]:
    """Plan by the fold's own training cases, train, and read what the run says."""
    from ringfence import weak

    boxes = "masks" if job.boxes is None else str(job.boxes)
    asked = {name.removeprefix("data."): value for name, value in job.changes if name.startswith("data.")}
    data = weak.BoxDataSettings(prepared=str(job.prepared), boxes=boxes, folds=job.folds, fold=job.fold, **asked)
    changes = {"seed": job.seed, "training.device": job.device, **dict(job.changes)}
    settings = weak.planned(weak.plan(data, job.device), changes)
    with tempfile.TemporaryDirectory() as folder:
        run = job.run or Path(folder) / "run"
        weak.train(settings, run, progress=False)
        found = reached(run, job.last)
    return {"variant": job.variant, "fold": job.fold, "seed": job.seed, **found}


def write(record: dict[str, Any], out: Path) -> None:
    """OUT.json with what was found over folds, and OUT.md."""
    record["variants_over_folds"] = over_folds(record)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def over_folds(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each variant the folds' Dice, means over seeds; and against the first one, on the folds of both."""
    found: dict[str, dict[str, Any]] = {}
    first = by_fold(record, record["variants"][0])
    for name in record["variants"]:
        if not (folds := by_fold(record, name)):
            continue
        apart = [folds[fold] - first[fold] for fold in folds if fold in first]
        found[name] = {
            "dice": statistics.mean(folds.values()),
            "least": min(folds.values()),
            "most": max(folds.values()),
            "folds": folds,
            "gain": statistics.mean(apart) if apart else None,
            "better_in": sum(one > 0 for one in apart),
            "compared_in": len(apart),
        }
        if before := by_fold(record, name, before=True):
            found[name]["before_refinement"] = statistics.mean(before.values())
            found[name]["refined_in"] = len(before)
            found[name]["better_refined_in"] = sum(folds[fold] > before[fold] for fold in before)
    return found


def by_fold(record: dict[str, Any], variant: str, before: bool = False) -> dict[int, float]:
    """Dice by fold: the mean over seeds; or before refinement, of those that were refined."""
    some = [one for one in record["trainings"] if one["variant"] == variant]
    if before:
        some = before_refinement(some)
    return {
        fold: statistics.mean(float(one["dice"]) for one in some if one["fold"] == fold)
        for fold in sorted({one["fold"] for one in some})
    }


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each variant; and a column of what was before refinement, if any was refined."""
    first, every = record["variants"][0], record["variants_over_folds"]
    folds = len({one["fold"] for one in record["trainings"]})
    refined = any("before_refinement" in one for one in every.values())
    titles = [record["set"], "Dice over folds", *["before refinement"] * refined, f"against {first}", "better in"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, one in every.items():
        cells = [name, f"{one['dice']:.3f} ({one['least']:.3f} to {one['most']:.3f})"]
        if refined:
            cells.append(_before(one))
        compared = name != first and one["gain"] is not None
        cells += [f"{one['gain']:+.3f}", f"{one['better_in']} of {one['compared_in']}"] if compared else ["–", "–"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Mean over {folds} of {record['folds']} folds of the training cases (least to most). {origin(record)}",
    ]
    return "\n".join(lines) + "\n"


def _before(one: dict[str, Any]) -> str:
    """What the first networks reached, and in how many folds the second ones reached more."""
    if "before_refinement" not in one:
        return "–"
    return f"{one['before_refinement']:.3f}; then better in {one['better_refined_in']} of {one['refined_in']}"


if __name__ == "__main__":
    main()
