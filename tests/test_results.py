"""What README says was measured is what the committed results say, and they say what is claimed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ringfence.report.comparison import TITLES, read_comparison
from ringfence.report.table import table_csv, table_markdown

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "synthetic"


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_tables_follow_from_the_epochs_beside_them(scale: str) -> None:
    comparison = read_comparison(RESULTS / scale)
    assert (RESULTS / scale / "table.csv").read_text() == table_csv(comparison)
    assert (RESULTS / scale / "table.md").read_text() == table_markdown(comparison)


def test_the_readme_quotes_the_table() -> None:
    readme = (ROOT / "README.md").read_text()
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
