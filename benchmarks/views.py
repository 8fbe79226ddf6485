"""What it is worth to look at images turned, and at slices together with their neighbours: Dice of cases held out.

    ringfence train --data.prepared prepared/mine --data.folds 5 --data.fold 0 --out runs/mine
    python benchmarks/views.py runs/mine --out results/plan/views

Of each training's model, however it was judged, with the levels that it has. Masks of the cases held out are used
for Dice, and for nothing else; nothing of them was trained on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from looking import about, look_at, opened
from records import origin
from ringfence.weak.networks.neighbouring_slices import neighbours_averaged
from ringfence.weak.training.measures import Dice
from ringfence.weak.training.settings import flip_axes
from ringfence.weak.training.views import view_averaged, views_of

BATCH = 25
TURNS = ((), (0.25,), (0.5,), (0.25, 0.5))
"""To either side, of the degrees by which training images were turned at most."""
SHARES = (0.0, 0.15, 0.25)
"""Of each neighbouring slice."""


def main() -> None:
    """Look at each model, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of trainings on slices, with a fold held out")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = f"python benchmarks/views.py {' '.join(map(str, options.runs))}"
    look_at(options.runs, looked_at, as_markdown, command, options.out)


@torch.no_grad()
def looked_at(run: Path) -> dict[str, Any]:
    """Of one training: Dice by turns and by the share of neighbours."""
    settings, task, network, card = opened(run)
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    levels = torch.tensor([0.0, *(card.levels or [0.0] * len(task.classes))]).view(1, -1, 1, 1)
    images, case, network = task.validation["image"].to(where), task.validation["case"], network.to(where).eval()
    turn = settings.augment.turn if settings.augment else 0.0

    def probabilities(turns: tuple[float, ...]) -> torch.Tensor:
        views = views_of(flip_axes(card.flips), [sign * one * turn for one in turns for sign in (-1, 1)])
        return torch.cat([view_averaged(network, some / 255.0, views).cpu() for some in images.split(BATCH)])

    def dice(mean: torch.Tensor, share: float) -> float:
        weighed = mean * levels.exp()
        weighed = weighed / weighed.sum(dim=1, keepdim=True)
        cases = [weighed[case == number] for number in case.unique_consecutive()]
        together = torch.cat([part for one in cases for part in neighbours_averaged([one], share)])
        metric = Dice()
        metric.update(together, dict(task.validation))
        return float(metric.compute()["dice"])

    return {
        **about(run, settings),
        "turn": turn,
        "dice": [
            [dice(mean, share) for share in SHARES]
            for mean in map(probabilities, TURNS if turn > 0.0 else TURNS[:1])
        ],
    }


def as_markdown(record: dict[str, Any]) -> str:
    """A row for each training and choice of turns: shares of neighbours are columns."""
    heads = [f"{one:g} of each neighbour" if one else "each slice alone" for one in SHARES]
    lines = [f"| training | averaged over | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for one in record["runs"]:
        method = "masks" if one["method"] == "full_supervision" else "boxes"
        name = f"{one['set']}, fold {one['fold']}, {method}, turned by {one['turn']:g}°"
        for turns, row in zip(TURNS, one["dice"], strict=False):
            degrees = " and ".join(f"±{share * one['turn']:g}°" for share in turns)
            cells = " | ".join(f"{value:.3f}" for value in row)
            lines.append(f"| {name if not turns else ''} | {'flips' + f', {degrees}' * bool(turns)} | {cells} |")
    return "\n".join([*lines, "", origin(record)]) + "\n"


if __name__ == "__main__":
    main()
