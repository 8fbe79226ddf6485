"""Boxes as people draw them: Dice against how far their sides are off, and against how loose they are.

    python benchmarks/generated_sets.py targets downloads/targets --masks
    ringfence prepare folder downloads/targets prepared/targets
    python benchmarks/drawn_boxes.py downloads/targets prepared/targets --seeds 0 1 --out results/plan/drawn

Boxes are drawn anew around the masks in ``labelsTr``: with each side moved by up to a fraction of its length
(jitter), made larger by another (loose), left out in a fraction of slices (missing), or one for each object in
space (``--space``). They are given to training as a file, so that the plan assumes of them what it assumes of
anybody's (`data.margin`); "exact" is what it makes of boxes around the masks. Dice as benchmarks/plan.py
measures it. Trainings that OUT.json already has are kept, each with its commit: the same command goes on where it
was stopped, and one that names more hands adds these.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from generated_sets import boxes
from plan import Job, done
from records import kept, origin
from ringfence.environment import commit, environment
from ringfence.weak.volumes import read_volume

HEADER = ("case", "slice", "class", "row_low", "row_high", "column_low", "column_high")
IN_SPACE = ("case", "class", "slice_low", "slice_high", *HEADER[3:])


@dataclass(frozen=True)
class Hand:
    """How boxes are drawn.

    Attributes:
        jitter: by which fraction of its length a side is moved, at most.
        loose: by which fraction of its sides a box is larger.
        missing: in which fraction of an image's slices nothing is drawn.
        space: whether there is one box for each object in space, instead of one in each slice.
    """

    jitter: float = 0.0
    loose: float = 0.0
    missing: float = 0.0
    space: bool = False

    @property
    def words(self) -> str:
        """For a table."""
        if self.space:
            return "one for each object, in 3-D"
        if self.missing:
            return f"none in {100.0 * self.missing:g} % of slices"
        if self.jitter:
            return f"sides moved by up to {100.0 * self.jitter:g} %"
        return f"{100.0 * self.loose:g} % larger" if self.loose else "tight, from a file"


def main() -> None:
    """Train with every hand, and write OUT.json, OUT.md and, where there is matplotlib, OUT.png after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="the set's images and masks, as generated_sets.py wrote them")
    parser.add_argument("prepared", type=Path, help="the same set, prepared")
    parser.add_argument("--jitter", type=float, nargs="*", default=[0.025, 0.05, 0.1])
    parser.add_argument("--loose", type=float, nargs="*", default=[0.05, 0.1, 0.2])
    parser.add_argument("--missing", type=float, nargs="*", default=[])
    parser.add_argument("--space", action="store_true", help="boxes in 3-D, too")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings that differ")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--rewrite", action="store_true", help="train nothing: OUT.md and OUT.png of the OUT.json that is there"
    )
    options = parser.parse_args()
    hands = [Hand(), *(Hand(jitter=one) for one in options.jitter), *(Hand(loose=one) for one in options.loose)]
    hands += [Hand(missing=one) for one in options.missing] + [Hand(space=True)] * options.space
    if options.rewrite:
        known = json.loads(options.out.with_suffix(".json").read_text(encoding="utf-8"))
        write(known | {"jitter": options.jitter, "loose": options.loose}, hands, options.out)
        return
    changes = tuple((one.partition("=")[0], json.loads(one.partition("=")[2])) for one in options.set)
    given = [
        " ".join([f"--{name}", *map(str, getattr(options, name))])
        for name in ("jitter", "loose", "missing", "seeds", "set")
        if getattr(options, name) != parser.get_default(name)
    ]
    given += ["--space"] * options.space
    record: dict[str, Any] = {
        "command": f"python benchmarks/drawn_boxes.py {options.images} {options.prepared} {' '.join(given)} "
        f"--workers {options.workers}",
        "seed": options.seeds,
        "jitter": options.jitter,
        "loose": options.loose,
        "of": {"images": str(options.images), "prepared": str(options.prepared), "set": options.set},
        "environment": environment() | {"commit": commit()},
        "trainings": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    record["trainings"] = kept(options.out.with_suffix(".json"), record, "of")
    ready = {(one["hand"], one["seed"]) for one in record["trainings"]}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"boxes-{number}.csv" for number in range(len(hands))]
        for hand, file in zip(hands, files, strict=True):
            draw(options.images, hand, file)
        named = {str(file): hand.words for hand, file in zip(hands, files, strict=True)}
        jobs = [
            Job(options.prepared, masks=False, seed=seed, changes=changes, boxes=file)
            for seed in options.seeds
            for file in (*files, None)
            if (named[str(file)] if file else "exact", seed) not in ready
        ]
        jobs += [
            Job(options.prepared, masks=True, seed=seed, changes=())
            for seed in options.seeds
            if ("masks", seed) not in ready
        ]
        for found in done(jobs, options.workers):
            file = found.pop("boxes")
            found["hand"] = "masks" if found["from"] == "masks" else named.get(file, "exact")
            record["trainings"].append(found | {"commit": record["environment"]["commit"]})
            print(json.dumps({name: found[name] for name in ("set", "hand", "seed", "dice")}), flush=True)
            write(record, hands, options.out)


def draw(images: Path, hand: Hand, file: Path) -> None:
    """boxes.csv of all masks: the same wobble, as far as it goes, whatever its size."""
    facts = json.loads((images / "dataset.json").read_text(encoding="utf-8"))
    classes, random, skipped = len(facts["labels"]) - 1, np.random.default_rng(0), np.random.default_rng(1)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(IN_SPACE if hand.space else HEADER)
        for path in sorted((images / "labelsTr").glob(f"*{facts['file_ending']}")):
            case = path.name.removesuffix(facts["file_ending"])
            labels = np.asarray(read_volume(path).voxels).astype(np.uint8)
            if hand.space:
                writer.writerows((case, *row) for row in in_space(labels, classes))
                continue
            drawn = skipped.random(len(labels)) >= hand.missing
            rows = boxes(labels, classes, random, hand.jitter, hand.loose)
            writer.writerows((case, number, *row) for number, *row in rows if drawn[int(str(number))])


def in_space(labels: NDArray[np.uint8], classes: int) -> Iterator[tuple[object, ...]]:
    """Rows of one box for each connected part in space."""
    for label in range(1, 1 + classes):
        parts, _ = ndimage.label(labels == label, structure=np.ones((3, 3, 3)))
        for sides in ndimage.find_objects(parts):
            yield f"class {label}", *(end for side in sides for end in (side.start, side.stop))


def write(record: dict[str, Any], hands: list[Hand], out: Path) -> None:
    """OUT.json with means over seeds, OUT.md and OUT.png."""
    there = [one["hand"] for one in record["trainings"] if one["hand"] not in ("exact", "masks")]
    names = ["exact", *dict.fromkeys([*(hand.words for hand in hands), *there]), "masks"]
    by_hand = {name: [one["dice"] for one in record["trainings"] if one["hand"] == name] for name in names}
    record["means"] = {name: statistics.mean(each) for name, each in by_hand.items() if each}
    best = record["means"].get("exact")
    record["lost"] = {} if best is None else {name: best - mean for name, mean in record["means"].items()}
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    lines = ["| boxes | Dice | lost |", "|---|---|---|"]
    for name, mean in record["means"].items():
        each = by_hand[name]
        spread = f" ({min(each):.3f} to {max(each):.3f})" if len(each) > 1 else ""
        lost = "–" if best is None or name in ("exact", "masks") else f"{best - mean:.3f}"
        title = {"exact": "around the masks", "masks": "none: from masks"}.get(name, name)
        lines.append(f"| {title} | {mean:.3f}{spread} | {lost} |")
    lines += ["", f"Mean over seeds (least to most). {origin(record)}"]
    out.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    picture(record["means"], hands, out.with_suffix(".png"))


def picture(means: dict[str, float], hands: list[Hand], file: Path) -> None:
    """Dice against each error, and what masks reach."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, title in (
        ("jitter", "sides moved by up to"),
        ("loose", "boxes larger by"),
        ("missing", "slices without"),
    ):
        of = [hand for hand in hands if hand.words in means and (getattr(hand, name) or hand == Hand())]
        if not any(getattr(hand, name) for hand in of):
            continue
        axes.plot([100.0 * getattr(one, name) for one in of], [means[one.words] for one in of], "o-", label=title)
    for name, title, line in (("masks", "masks", "--"), ("exact", "boxes around masks", ":")):
        if name in means:
            axes.axhline(means[name], linestyle=line, color="grey", label=title)
    axes.set_xlabel("% of a side, or of slices")
    axes.set_ylabel("Dice")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.92), fontsize="small")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
