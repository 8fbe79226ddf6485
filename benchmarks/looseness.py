"""How much too wide boxes are drawn, as plans see it in the images, and how much they are (docs/plan.md).

    python benchmarks/generated_sets.py organs downloads/organs --masks
    ringfence prepare folder downloads/organs prepared/organs
    ringfence prepare folder downloads/organs prepared/organs-56 --size 56 56
    python benchmarks/looseness.py organs organs-56:organs --out results/plan/looseness

For each name there are images and masks under downloads/ (after a colon, by another name) and the prepared set
under prepared/. Boxes are drawn anew around the masks as in drawn_boxes.py, and no mask is looked at otherwise.
Nothing is trained.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from drawn_boxes import Hand, draw
from records import origin
from ringfence import weak
from ringfence.environment import commit, environment

HANDS = (
    Hand(),
    *(Hand(jitter=one) for one in (0.05, 0.1)),
    *(Hand(loose=one) for one in (0.05, 0.1, 0.2, 0.3)),
)


def main() -> None:
    """Look at each set with each hand, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python benchmarks/looseness.py {' '.join(options.sets)}",
        "seed": [0],
        "environment": environment() | {"commit": commit()},
        "sets": {},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        prepared, _, images = name.partition(":")
        record["sets"][prepared] = {hand.words: seen(prepared, images or prepared, hand) for hand in HANDS}
        options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def seen(name: str, images: str, hand: Hand) -> dict[str, Any]:
    """What a plan sees of boxes that are drawn so, and makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "boxes.csv"
        draw(Path("downloads") / images, hand, file)
        made = weak.plan(weak.BoxDataSettings(prepared=str(Path("prepared") / name), boxes=str(file)))
    return {
        # of the side of a box as it is drawn
        "true": hand.loose / 2.0 / (1.0 + hand.loose),
        "classes": {one.name: one.loose for one in made.fingerprint.classes},
        "tighten": made.changes.get("data.tighten", 0.0),
    }


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each set, a column for each hand: what the plan takes off at either end."""
    true = next(iter(record["sets"].values()))
    heads = [f"{words} ({100.0 * one['true']:.1f} %)" for words, one in true.items()]
    lines = [f"| set | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, hands in record["sets"].items():
        cells = [f"{100.0 * one['tighten']:.1f} %" if one["tighten"] else "–" for one in hands.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", origin(record)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
