"""What levels do: Dice of cases held out, and boxes in training images, by the odds at which a class is found.

    ringfence train --data.prepared prepared/mine --data.folds 5 --data.fold 0 --out runs/mine
    python benchmarks/levels.py runs/mine --out levels

Of each training's model, whatever levels it has: they are taken away first. Masks of the cases held out are used
for Dice, and for nothing else. "Chosen" is what calibration (docs/boxes.md) makes of boxes in training images.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from looking import about, look_at, opened
from records import origin
from ringfence.weak.inference.card import ModelCard
from ringfence.weak.training.calibration import KNOWN, LEVELS, agreements_at, best_levels, some_with_boxes
from ringfence.weak.training.measures import Dice
from ringfence.weak.training.settings import flip_axes
from ringfence.weak.training.views import view_averaged, views_of

BATCH = 25


def main() -> None:
    """Look at each model, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of trainings on slices, with a fold held out")
    parser.add_argument("--by", choices=("absent", "edges"), default="absent", help="what trainings differ in")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = f"python benchmarks/levels.py {' '.join(map(str, options.runs))} --by {options.by}"
    look_at(options.runs, looked_at, as_markdown, command, options.out, by=options.by)


def looked_at(run: Path) -> dict[str, Any]:
    """Of one training: Dice and agreement at each level of all classes, and with the levels that are chosen."""
    settings, task, network, card = opened(run)
    some = some_with_boxes(task.train)
    agreement = agreements_at(
        logits_of(network, task.train["image"][some], card),
        {name: task.train[name][some] for name in KNOWN},
    )
    levels = best_levels(agreement)

    logits = logits_of(network, task.validation["image"], card)

    def dice(levels: Sequence[float]) -> float:
        metric = Dice()
        metric.update(logits + torch.tensor([0.0, *levels]).view(1, -1, 1, 1), dict(task.validation))
        return float(metric.compute()["dice"])

    return {
        **about(run, settings),
        "most_odds": getattr(settings.method_settings["log_barrier"], "most_odds", {}),
        "absent": "absent" in settings.constraints,
        "early": getattr(settings.method_settings["log_barrier"], "early", {}),
        "edges": (settings.constraints.get("edges") or {}).get("strength"),
        "fading": (settings.constraints.get("edges") or {}).get("fading", True),
        "steps": settings.training.steps,
        "odds": [math.exp(-level) for level in LEVELS],
        "dice": [dice([level] * len(levels)) for level in LEVELS],
        "agreement": [float((one[:, 1] / one[:, 0]).nanmean()) for one in agreement],
        "chosen": [math.exp(-level) for level in levels],
        "dice_chosen": dice(levels),
    }


def as_markdown(record: dict[str, Any]) -> str:
    """Two rows for each training: the odds at which a class is found are columns."""
    odds = record["runs"][0]["odds"]
    shown = [one for one in range(len(odds)) if one % 2 == 0]
    lines = [
        f"| training | | {' | '.join(f'{odds[one]:.2g}' for one in shown)} | chosen |",
        f"|---|---|{'---|' * len(shown)}---|",
    ]
    for one in record["runs"]:
        chosen = ", ".join(f"{value:.2g}" for value in one["chosen"])
        dice, boxes = (" | ".join(f"{one[key][place]:.3f}" for place in shown) for key in ("dice", "agreement"))
        lines.append(f"| {title(one, record['by'])} | Dice, held out | {dice} | {one['dice_chosen']:.3f} |")
        lines.append(f"| | boxes, training images | {boxes} | {chosen} |")
    lines += ["", origin(record)]
    return "\n".join(lines) + "\n"


def title(one: dict[str, Any], by: str) -> str:
    """Set, fold, and what is special about the training."""
    how = one["method"].replace("_", " ")
    if one["method"] == "log_barrier":
        most = one["most_odds"]
        how = f"absent at odds of {most['absent']:g}" if one["absent"] else "outside alone"
        if by == "edges":
            how = f"edges of {one['edges'] or 0:g}" + (
                f", up to odds of {most['edges']:g}" if "edges" in most else ""
            )
            how += ", without fading" * (not one.get("fading", True)) + ", early" * (
                "edges" in one.get("early", {})
            )
    return f"{one['set']}, fold {one['fold']}, {how}"


@torch.no_grad()
def logits_of(network: torch.nn.Module, images: Tensor, card: ModelCard) -> Tensor:
    """Averaged over views, as validation has them; each slice by itself."""
    network.eval()
    views = views_of(flip_axes(card.flips), card.turns)
    mean = torch.cat([view_averaged(network, some / 255.0, views) for some in images.split(BATCH)])
    return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()


if __name__ == "__main__":
    main()
