"""What README says was measured is what the committed results say, and they say what is claimed."""

from __future__ import annotations

import csv
import json
import runpy
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringfence.report.comparison import TITLES, read_comparison
from ringfence.report.table import table_csv, table_markdown
from ringfence.weak.training.box_settings import BoxSettings

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "synthetic"
PROSTATES = ROOT / "results" / "promise12"


@pytest.mark.parametrize(
    "folder", [RESULTS / "paper", RESULTS / "small", PROSTATES / "paper", PROSTATES / "before-tuning"]
)
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


@pytest.mark.parametrize("method", ["log_barrier", "full_supervision", "lagrangian"])
def test_masks_scored_by_evaluate_have_the_dice_of_the_last_epoch(method: str) -> None:
    """Another way to the same number: predicted from the model file on a CPU, scored by MONAI."""
    last = read_comparison(PROSTATES / "paper").epochs[method][0][-1]["dice"]
    with (PROSTATES / "paper" / "evaluation" / f"{method}.csv").open() as lines:
        scores = [float(row["dice"]) for row in csv.DictReader(lines)]
    assert len(scores) == 10
    assert statistics.fmean(scores) == pytest.approx(last, abs=0.002)


@pytest.mark.parametrize("name", ["ablation", "ablation-small", "tuning-1", "tuning-2", "tuning-3", "tuning-4"])
def test_recorded_trainings_are_those_of_a_plan_that_still_runs(name: str) -> None:
    plan = yaml.safe_load((PROSTATES / f"{name}.yaml").read_text())
    changed = runpy.run_path(str(ROOT / "benchmarks" / "tune_promise12.py"))["changed"]
    trained = recorded(name)
    assert {one["name"] for one in trained} == set(plan)
    for one in trained:
        planned = dict(plan[one["name"]])
        assert planned.pop("method") == one["method"]
        assert planned.items() >= one["settings"].items()
        changed(BoxSettings(), planned)  # refuses a setting that does not exist


@pytest.mark.parametrize("method", ["lagrangian", "relu_lagrangian", "penalty", "augmented_lagrangian"])
def test_baselines_ship_with_the_best_settings_that_were_tried(method: str) -> None:
    tried = [one for name in ("tuning-3", "tuning-4") for one in recorded(name) if one["method"] == method]
    assert len(tried) >= 12
    best = max(tried, key=lambda one: (round(one["dice"], 3), one["satisfaction"]))
    shipped = getattr(BoxSettings(), method)
    for name, value in best["settings"].items():
        section, _, key = name.partition(".")
        if section != method:
            continue
        if key in ("dual_lr", "rho") and shipped.unit == "pixels":  # at 128×128 and with 20 epochs
            value = pytest.approx(value / 7.0, rel=0.03)
        assert getattr(shipped, key) == value


def recorded(name: str) -> list[dict[str, Any]]:
    variants: list[dict[str, Any]] = json.loads((PROSTATES / f"{name}.json").read_text())["variants"]
    return variants


def test_records_of_several_calls_are_joined_in_the_order_of_the_plan() -> None:
    joined = runpy.run_path(str(ROOT / "benchmarks" / "tune_promise12.py"))["joined"]

    def part(commit: str, *names: str) -> dict[str, Any]:
        facts = {"gpu": "one", "commit": commit}
        return {"command": "c", "seed": 1, "environment": facts, "variants": [{"name": name} for name in names]}

    once = joined([part("aaa", "c", "a"), part("bbb", "b")], ["a", "b", "c"])
    trained = [("a", "aaa"), ("b", "bbb"), ("c", "aaa")]
    assert [(one["name"], one["commit"]) for one in once["variants"]] == trained
    again = joined([once, part("ddd", "d")], ["a", "b", "c", "d"])
    assert [(one["name"], one["commit"]) for one in again["variants"]] == [*trained, ("d", "ddd")]
    for parts, names, message in (
        ([part("aaa", "a"), part("bbb", "a")], ["a"], "in two of these"),
        ([part("aaa", "a")], ["a", "b"], "differ in b"),
        ([part("aaa", "a"), part("bbb", "b") | {"seed": 2}], ["a", "b"], "not of one kind"),
    ):
        with pytest.raises(SystemExit, match=message):
            joined(parts, names)


# The core beside its peers


@pytest.fixture(scope="module")
def peers() -> dict[str, Any]:
    return json.loads((ROOT / "results" / "core" / "peers.json").read_text())


def test_readme_and_docs_quote_the_peers_benchmark(peers: dict[str, Any]) -> None:
    written = runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))["as_markdown"](peers)
    assert (ROOT / "results" / "core" / "peers.md").read_text() == written
    assert written in (ROOT / "docs" / "cost.md").read_text()
    readme = (ROOT / "README.md").read_text().partition("## What it costs")[2]
    for method in ("barrier", "penalty", "Lagrangian", "augmented Lagrangian", "Lagrangian, by index"):
        ratios = " | ".join(f"{one['over the fastest peer']:.2f}" for one in peers["steps"][method].values())
        assert f"| {method} | {ratios} |" in readme
    assert (ROOT / "docs/pictures/peers.png").read_bytes() == (ROOT / "results/core/peers.png").read_bytes()


def test_no_peer_is_faster(peers: dict[str, Any]) -> None:
    """What the committed run found; a new one is for ``make peers``."""
    for method, sizes in peers["steps"].items():
        for number, found in sizes.items():
            if found["over the fastest peer"] is not None:
                assert found["over the fastest peer"] <= (1.5 if number == "10" else 1.0), (method, number)
    memory = peers["peak MB of ten million multipliers"]
    assert memory["ringfence"] <= 1.2 * min(memory["cooper"], memory["humancompatible-train"])


def test_readme_quotes_the_core_benchmark() -> None:
    ratios = json.loads((ROOT / "results" / "core" / "cuda.json").read_text())["ratios"]
    steps = [f"{ratio:.3f}" for what, ratio in ratios.items() if what.startswith("a training step")]
    readme = (ROOT / "README.md").read_text()
    assert f"| {' | '.join(steps)} |" in readme
    loop = next(ratio for what, ratio in ratios.items() if what.endswith("scalar loop"))
    assert f"1/{loop:.0f} of the time of a loop over scalars" in readme
