"""What README says was measured is what the committed results say, and they say what is claimed."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from ringfence.report.comparison import TITLES, read_comparison
from ringfence.report.table import table_csv, table_markdown

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "synthetic"
PROSTATES = ROOT / "results" / "promise12"


@pytest.mark.parametrize("folder", [RESULTS / "paper", RESULTS / "small", PROSTATES / "paper"])
def test_tables_follow_from_the_epochs_beside_them(folder: Path) -> None:
    comparison = read_comparison(folder)
    assert (folder / "table.csv").read_text() == table_csv(comparison)
    assert (folder / "table.md").read_text() == table_markdown(comparison)


def test_the_readme_quotes_the_table() -> None:
    readme = (ROOT / "README.md").read_text().partition("## Train from boxes")[0]
    with (RESULTS / "paper" / "table.csv").open() as lines:
        for row in csv.DictReader(lines):
            line = next(one for one in readme.splitlines() if one.startswith(f"| {TITLES[row['method']]} |"))
            cells = [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
            assert cells[1] == f"{float(row['dice']):.3f} ± {float(row['dice_sd_between_seeds']):.3f}"
            assert cells[2] == (f"{float(row['paper_dice']):.3f}" if row["paper_dice"] else "–")
            assert cells[3] == f"{100 * float(row['satisfaction']):.1f} %"
            assert cells[4] == f"{100 * float(row['stability']):.1f} %"


def test_the_barrier_leads_in_every_small_seed_but_one_at_most() -> None:
    epochs = read_comparison(RESULTS / "small").epochs
    final = {method: {seed: rows[-1]["dice"] for seed, rows in seeds.items()} for method, seeds in epochs.items()}
    assert set(final["log_barrier"]) == {0, 1, 2, 3, 4}
    others = ("lagrangian", "relu_lagrangian", "penalty")
    leads = [
        dice >= 0.90 and all(dice > final[other][seed] for other in others)
        for seed, dice in final["log_barrier"].items()
    ]
    assert sum(leads) >= 4


@pytest.mark.parametrize(
    ("page", "places"),
    [("README.md", (1, 2, 3, 4)), ("results/promise12/README.md", (2, 3, 1, None))],
)
def test_the_table_of_prostates_is_quoted(page: str, places: tuple[int | None, ...]) -> None:
    text = (ROOT / page).read_text().rpartition("## Train from boxes")[2]
    dice, paper, seeds, limits = places
    with (PROSTATES / "paper" / "table.csv").open() as lines:
        for row in csv.DictReader(lines):
            line = next(one for one in text.splitlines() if one.startswith(f"| {TITLES[row['method']]} |"))
            cells = [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
            between = row["dice_sd_between_seeds"]
            spread = f" ± {float(between):.3f}" if between else ""
            assert cells[dice or 0] == f"{float(row['dice']):.3f}{spread}"
            assert cells[paper or 0] == (f"{float(row['paper_dice']):.3f}" if row["paper_dice"] else "–")
            assert cells[seeds or 0] == row["seeds"]
            assert limits is None or cells[limits] == f"{100 * float(row['satisfaction']):.1f} %"


def test_prostates_from_boxes_reach_the_paper_in_every_seed() -> None:
    comparison = read_comparison(PROSTATES / "paper")
    last = {
        method: [statistics.fmean(row["dice"] for row in rows[-10:]) for rows in seeds.values()]
        for method, seeds in comparison.epochs.items()
    }
    assert len(last["log_barrier"]) == 3
    assert min(last["log_barrier"]) >= 0.835
    assert min(last["full_supervision"]) >= 0.880
    assert max(last["lagrangian"] + last["relu_lagrangian"] + last["penalty"]) < min(last["log_barrier"])


@pytest.mark.parametrize("method", ["log_barrier", "full_supervision"])
def test_masks_scored_by_evaluate_have_the_dice_of_the_last_epoch(method: str) -> None:
    """Another way to the same number: predicted from the model file on a CPU, scored by MONAI."""
    last = read_comparison(PROSTATES / "paper").epochs[method][0][-1]["dice"]
    with (PROSTATES / "paper" / "evaluation" / f"{method}.csv").open() as lines:
        scores = [float(row["dice"]) for row in csv.DictReader(lines)]
    assert len(scores) == 10
    assert statistics.fmean(scores) == pytest.approx(last, abs=0.002)
