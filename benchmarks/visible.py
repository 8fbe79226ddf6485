"""How often the objects of prepared sets show, and what they fill of their boxes: what plans go by (docs/plan.md).

    python benchmarks/visible.py prepared/promise12 prepared/rods --out results/plan/visible

Boxes are those around the masks of the cases for training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from records import origin
from ringfence.environment import commit, environment
from ringfence.weak.planning.fingerprint import read_fingerprint
from ringfence.weak.planning.rounds import learns_from_looks
from ringfence.weak.prepared.prepared_set import read_prepared


def main() -> None:
    """Look at each set, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/visible.py {' '.join(map(str, options.prepared))}",
        "seed": [],
        "environment": environment() | {"commit": commit()},
        "sets": {},
    }
    for path in options.prepared:
        found = read_fingerprint(read_prepared(path))
        shares = {one.name: {"visible": one.visible, "fill": one.fill} for one in found.classes}
        record["sets"][path.name] = {"classes": shares, "looks": learns_from_looks(found)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each set."""
    lines = [
        "| set | objects that show, by class | what they fill of a box | labels from brightness |",
        "|---|---|---|---|",
    ]
    for name, one in record["sets"].items():
        every = one["classes"].values()
        visible, fill = (", ".join(f"{facts[key]:.0%}" for facts in every) for key in ("visible", "fill"))
        lines.append(f"| {name} | {visible} | {fill} | {'yes' if one['looks'] else '–'} |")
    lines += ["", origin(record)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
