"""What plans reach, in one table: rows of the records in results/plan/ that are by the plan as it is.

    python benchmarks/plan_reached.py --out results/plan/reached

Nothing is trained. A record that is made anew is read anew.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from records import origin
from ringfence.environment import commit, environment

RECORDS: Final = Path(__file__).parent.parent / "results" / "plan"


@dataclass(frozen=True)
class Row:
    """A row of a record.

    Attributes:
        about: the data, in words.
        record: its name, in results/plan/.
        set: the row's name there.
        aim: what boxes should reach of masks.
    """

    about: str
    record: str
    set: str
    aim: float = 0.95


ROWS: Final = {
    "on a GPU": [
        Row("PROMISE12 at 256×256", "promise12", "promise12", 0.985),
        Row("at 128×128", "sizes-and-grit", "promise12-128"),
        Row("at 64×64", "sizes-and-grit", "promise12-64"),
        Row("`organs`: four classes in two channels", "six-sets", "organs"),
        Row("`slabs`: 60 to 120 pixels, slices eight times as thick", "promise12-128-and-four", "slabs"),
        Row("`drops`: 8 to 60 pixels", "promise12-128-and-four", "drops"),
        Row("`cells`: two classes, many in an image, three channels", "promise12-128-and-four", "cells"),
        Row("`shades`: no sharp boundary", "promise12-128-and-four", "shades"),
        Row("`rods`: thin, at any angle", "thin-and-nested", "rods"),
        Row("`beans`: curved, at any angle", "beans", "beans"),
        Row("`rings`: around nothing, brighter or darker than it", "rings-and-stars", "rings"),
        Row("`stars`: of five arms and of three, in two channels", "rings-and-stars", "stars"),
        Row("`grit`: only rougher than its surroundings", "grit", "grit"),
        Row("`targets`: a ring, its disc, a neighbour", "thin-and-nested", "targets", 0.90),
    ],
    "on a GPU, volumes asked for (`--data.volumes true`)": [
        Row("PROMISE12 at 256×256", "volumes-256", "promise12"),
        Row("at 128×128", "volumes-sizes", "promise12-128"),
        Row("at 64×64", "volumes-sizes", "promise12-64"),
        Row("`targets`, in smaller patches than now", "volumes-generated", "targets", 0.90),
    ],
    "on a GPU, slices asked for (`--data.volumes false`)": [
        Row("`bricks`: two classes, 10 pixels, isotropic", "six-sets", "bricks"),
        Row("`grains`: 8 pixels, isotropic", "six-sets", "grains"),
    ],
    "on a GPU, in smaller patches of volumes than plans have now": [
        Row("`bricks`", "volumes-generated", "bricks"),
        Row("`grains`", "volumes-generated", "grains"),
    ],
    "on a CPU, two cores": [
        Row("`bricks`; in volumes", "cpu-volumes", "bricks"),
        Row("`grains`; in volumes", "cpu-volumes", "grains"),
        Row("`twins`: halves of an object; in volumes", "cpu-volumes-small", "twins"),
    ],
}


def main() -> None:
    """Write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record = {
        "command": "python benchmarks/plan_reached.py",
        "seed": "those of the records",
        "environment": environment() | {"commit": commit()},
        "rows": {part: [read(row) for row in rows] for part, rows in ROWS.items()},
    }
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def read(row: Row, folder: Path = RECORDS) -> dict[str, Any]:
    """What a record says of a row, and how many seeds each of the two has."""
    known = json.loads((folder / f"{row.record}.json").read_text(encoding="utf-8"))
    means = known["means"][row.set]
    seeds = {
        kind: sum((one["set"], one["from"]) == (row.set, kind) for one in known["trainings"])
        for kind in ("boxes", "masks")
    }
    named = {name: getattr(row, name) for name in ("about", "record", "set", "aim")}
    return named | {name: means[name] for name in ("boxes", "masks", "ratio")} | {"seeds": seeds}


def as_markdown(record: dict[str, Any]) -> str:
    """A table of all parts; a part's name is a row of its own."""
    lines = ["| | seeds | boxes | masks | boxes over masks | aim | record |", "|---|---|---|---|---|---|---|"]
    for part, rows in record["rows"].items():
        lines.append(f"| **{part}** | | | | | | |")
        for row in rows:
            seeds = " / ".join(map(str, dict.fromkeys(row["seeds"].values())))
            numbers = f"{row['boxes']:.3f} | {row['masks']:.3f} | {row['ratio']:.3f} | {row['aim']:g}"
            lines.append(f"| {row['about']} | {seeds} | {numbers} | `{row['record']}` |")
    return "\n".join([*lines, "", origin(record)]) + "\n"


if __name__ == "__main__":
    main()
