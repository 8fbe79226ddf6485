"""Numbers quoted in README, docs and results/ are those of the committed files, and each says how it was obtained."""

from __future__ import annotations

import csv
import importlib
import json
import re
import runpy
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from ringfence.report.comparison import Comparison, read_comparison
from ringfence.report.table import table_csv, table_markdown

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
COMPARISONS = sorted(file.parent for file in RESULTS.rglob("environment.json"))
JSON = sorted(file for file in RESULTS.rglob("*.json") if file.name != "environment.json")
RECORDS = [file for file in JSON if file.parent.name in ("tuning", "ablation")]
PLANS = sorted(file for file in RESULTS.rglob("*.yaml") if file.name != "config.yaml")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *RESULTS.rglob("README.md")])


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/records.py, as the scripts beside it import it."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("records")


# How a number was obtained stands beside it


@pytest.mark.parametrize("file", JSON, ids=shown)
def test_a_record_says_how_it_was_made(file: Path) -> None:
    record = json.loads(file.read_text())
    script = re.match(r"python (benchmarks/\w+\.py|tests/faults)", record["command"])
    assert script is not None
    assert (ROOT / script[1]).exists()
    assert {"python", "torch", "cpu", "gpu"} <= record["environment"].keys()
    assert "seed" in record or "--seed" in record["command"]


@pytest.mark.parametrize("folder", COMPARISONS, ids=shown)
def test_a_comparison_says_how_it_was_made_and_its_tables_follow_from_its_epochs(folder: Path) -> None:
    facts = json.loads((folder / "environment.json").read_text())
    assert {"command", "commit", "started", "python", "torch", "cpu", "gpu"} <= facts.keys()
    config = yaml.safe_load((folder / "config.yaml").read_text())
    comparison = read_comparison(folder)
    assert set(comparison.seeds) <= set(config["seeds"])
    assert (folder / "table.csv").read_text() == table_csv(comparison)
    assert (folder / "table.md").read_text() == table_markdown(comparison)


def test_every_file_is_of_a_record_a_comparison_or_a_page_and_every_folder_has_a_page() -> None:
    for file in RESULTS.rglob("*"):
        if file.is_dir() or file.name == "README.md":
            continue
        beside = file.with_suffix(".json").exists() and file.suffix in (".json", ".md", ".yaml", ".png")
        assert beside or any(folder in file.parents for folder in COMPARISONS), shown(file)
        folder = next(one for one in file.parents if (one / "README.md").exists())
        assert folder.is_relative_to(RESULTS)
        assert folder.parent in (RESULTS, *RESULTS.iterdir()), f"no README.md for {shown(file)}"


def test_pages_have_the_tables_as_they_were_measured() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "docs_tables.py"))
    for page in script["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert script["filled"](text) == text, "run python benchmarks/docs_tables.py"
        assert len(script["BLOCK"].findall(text)) >= 2


@pytest.mark.parametrize("plan", PLANS, ids=shown)
def test_recorded_trainings_are_those_of_their_plan(plan: Path) -> None:
    planned = yaml.safe_load(plan.read_text())
    for one in json.loads(plan.with_suffix(".json").read_text())["variants"]:
        settings = dict(planned[one["name"]])
        assert settings.pop("method") == one["method"]
        assert settings.items() >= one["settings"].items()


# Tables made of records


@pytest.mark.parametrize("file", RECORDS, ids=shown)
def test_a_table_is_made_of_its_record_and_its_base_and_differences_leave_nothing_out(
    file: Path, records: ModuleType
) -> None:
    record = json.loads(file.read_text())
    assert file.with_suffix(".md").read_text() == records.as_markdown(record)
    trained = [
        records.Training(one["name"], one["method"], one["settings"], ()) for one in record.get("variants", [])
    ]
    base, methods = records.base_of(trained), {one.method for one in trained}
    for one in trained:
        others = tuple(f"{method}." for method in methods - {one.method})
        apart = records.differences(one, base, methods)
        together = {
            k: v for k, v in (base | apart).items() if not k.startswith(others) and v is not records.DEFAULT
        }
        assert together == {k: v for k, v in one.settings.items() if not k.startswith(others)}


def test_a_table_states_the_base_once_and_in_a_row_what_differs(records: ModuleType) -> None:
    def variant(name: str, method: str, **settings: object) -> dict[str, Any]:
        measured = {"dice": 0.5, "dice_sd": 0.0, "best_epoch": 0.75, "satisfaction": 0.25}
        return {
            "name": name,
            "method": method,
            "settings": {k.replace("__", "."): v for k, v in settings.items()},
        } | measured

    facts = {"torch": "2", "cpu": "two cores", "gpu": "none", "commit": "abc"}
    variants = [
        variant("a", "penalty", data__width=3, penalty__weights={"strips": 30.0}),
        variant("b", "penalty", data__width=3, penalty__weights={"strips": 30.0}, penalty__mu=2.0),
        variant("c", "penalty", data__width=3, lagrangian__dual_lr=9.0),  # of a method that it is not trained with
        variant("d", "lagrangian", data__width=5, lagrangian__dual_lr=1e-3),
    ]
    record = {"command": "python x.py", "seed": 7, "environment": facts, "variants": variants}
    assert records.as_markdown(record).splitlines() == [
        "Base: the defaults at the commit below, and",
        "",
        "- `data`: width 3",
        "- `penalty`: weights {strips: 30}",
        "- `lagrangian`: dual_lr 0.001",
        "",
        "| variant | method | difference from the base | 3D DSC, last fifth (sd) | best epoch | satisfaction |",
        "|---|---|---|---|---|---|",
        "| a | penalty | – | 0.500 (0.000) | 0.750 | 25.0% |",
        "| b | penalty | mu 2 | 0.500 (0.000) | 0.750 | 25.0% |",
        "| c | penalty | weights (default) | 0.500 (0.000) | 0.750 | 25.0% |",
        "| d | lagrangian | data.width 5 | 0.500 (0.000) | 0.750 | 25.0% |",
        "",
        "Written by `python x.py`, seed 7, torch 2, two cores, commit: abc.",
    ]  # fmt: skip


def test_records_of_several_calls_are_joined_in_the_order_of_the_plan(records: ModuleType) -> None:
    def part(commit: str, *names: str) -> dict[str, Any]:
        facts = {"gpu": "one", "commit": commit}
        return {"command": "c", "seed": 1, "environment": facts, "variants": [{"name": name} for name in names]}

    once = records.joined([part("aaa", "c", "a"), part("bbb", "b")], ["a", "b", "c"])
    trained = [("a", "aaa"), ("b", "bbb"), ("c", "aaa")]
    assert [(one["name"], one["commit"]) for one in once["variants"]] == trained
    again = records.joined([once, part("ddd", "d")], ["a", "b", "c", "d"])
    assert [(one["name"], one["commit"]) for one in again["variants"]] == [*trained, ("d", "ddd")]
    for parts, names, message in (
        ([part("aaa", "a"), part("bbb", "a")], ["a"], "in two of these"),
        ([part("aaa", "a")], ["a", "b"], "differ in b"),
        ([part("aaa", "a"), part("bbb", "b") | {"seed": 2}], ["a", "b"], "not of one kind"),
    ):
        with pytest.raises(SystemExit, match=message):
            records.joined(parts, names)


# What pages quote of the comparisons

TARGETS = {"0.835", "0.880"}
"""Of others' papers, and what we meant to reach: quoted in results/promise12/, and in no file of ours."""
THREE_DIGITS = re.compile(r"(?<![\d.-])-?[01]\.\d{3}(?![\d.])")
FORMATS = {  # of a quoted table's columns, from a row of table.csv
    "DSC, ours": lambda row: f"{float(row['dice']):.3f}" + with_spread(row["dice_sd_between_seeds"]),
    "DSC, paper": lambda row: f"{float(row['paper_dice']):.3f}" if row["paper_dice"] else "–",
    "seeds": lambda row: row["seeds"],
    "satisfaction": lambda row: f"{100 * float(row['satisfaction']):.1f} %",
    "stability": lambda row: f"{100 * float(row['stability']):.1f} %",
}
FORMATS["limits that hold"] = FORMATS["constraints that hold"] = FORMATS["satisfaction"]
FORMATS["of those, still so an epoch later"] = FORMATS["stability"]


def with_spread(between_seeds: str) -> str:
    return f" ± {float(between_seeds):.3f}" if between_seeds else ""


def quoted_tables(page: Path) -> Iterator[tuple[Path, list[dict[str, str]]]]:
    """The page's tables of "DSC, ours", each with the table.csv that the first link after it leads to."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^\| method \|.*DSC, ours.*\n\|[-|]+\n((?:\|.*\n)+)", text, flags=re.MULTILINE):
        header, _, *lines = (split(line) for line in match[0].splitlines())
        link = re.search(r"\]\(([^)]*)table\.md\)", text[match.end() :])
        assert link is not None, f"{shown(page)}: no link to the table's source"
        yield page.parent / link[1] / "table.csv", [dict(zip(header, line, strict=True)) for line in lines]


def split(line: str) -> list[str]:
    return [cell.strip().replace("**", "") for cell in line.strip("|\n").split("|")]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_quoted_tables_are_those_of_the_files(page: Path) -> None:
    for source, quoted in quoted_tables(page):
        with source.open() as lines:
            rows = list(csv.DictReader(lines))
        assert len(quoted) == len(rows)
        titles = [row.title for row in read_comparison(source.parent).rows()]
        for row, line, title in zip(rows, quoted, titles, strict=True):
            assert line["method"].partition(" (")[0] == title.partition(" (")[0]
            for column, cell in line.items():
                if column in FORMATS:
                    assert cell == FORMATS[column](row), f"{title}, {column}"


def test_the_tables_of_both_experiments_are_quoted_somewhere() -> None:
    quoted = {source.resolve().parent for page in PAGES for source, _ in quoted_tables(page)}
    assert {RESULTS / "promise12" / "comparison", RESULTS / "synthetic" / "comparison" / "paper"} <= quoted


@cache
def measured(folder: Path) -> frozenset[str]:
    """Every mean that one may quote of an experiment, with three digits."""
    numbers: list[float] = []
    for one in COMPARISONS:
        if folder not in one.parents:
            continue
        comparison = read_comparison(one)
        for row in comparison.rows():
            numbers += [row.dice, row.spread, row.between_seeds, *comparison.paper.get(row.method, ())]
        numbers += [mean for last in (comparison.last, 10) for mean in last_epochs(comparison, last)]
        for scores in (one / "evaluation").glob("*.csv"):
            with scores.open() as lines:
                numbers.append(statistics.fmean(float(row["dice"]) for row in csv.DictReader(lines)))
    for file in JSON:
        if folder in file.parents:
            numbers += all_numbers(json.loads(file.read_text()))
    return frozenset(f"{number:.3f}" for number in numbers)


def last_epochs(comparison: Comparison, last: int) -> Iterator[float]:
    for seeds in comparison.epochs.values():
        for rows in seeds.values():
            yield statistics.fmean(row["dice"] for row in rows[-last:])


def all_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for name, one in value.items():
            if name not in ("environment", "every_fifth_epoch", "seconds_per_epoch", "satisfaction"):
                yield from all_numbers(one)
    elif isinstance(value, list):
        for one in value:
            yield from all_numbers(one)
    elif isinstance(value, (int, float)):
        yield value
    elif isinstance(value, str):  # what a variant sets, as in training.lr=0.001
        yield from map(float, re.findall(r"(?<==)\d+\.\d+\b", value))


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_numbers_in_the_text_are_in_the_files_it_names(page: Path) -> None:
    """In README and docs, by section; a page of results/ is about its own experiment (and may name another)."""
    text = page.read_text(encoding="utf-8")
    own = {RESULTS / page.relative_to(RESULTS).parts[0]} if RESULTS in page.parents else set()
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        named = {
            RESULTS / name for name in re.findall(r"results/(core|promise12|synthetic|speed|plan)\b", section)
        } | own
        named = {folder for folder in named if folder.is_dir()}
        if named:
            unknown = set(THREE_DIGITS.findall(section)) - TARGETS.union(*(measured(folder) for folder in named))
            assert not unknown, section.splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_mean_stands_with_its_own_spread(page: Path) -> None:
    rows = [row for folder in COMPARISONS for row in read_comparison(folder).rows()]
    known = {f"{row.dice:.3f} ± {row.between_seeds:.3f}" for row in rows}
    text = page.read_text(encoding="utf-8").replace("**", "")
    assert set(re.findall(r"\d\.\d{3} ± \d\.\d{3}", text)) <= known


def test_the_baselines_of_the_comparison_are_the_best_that_were_tried() -> None:
    """As results/promise12/tuning/README.md says; what is measured in pixels was carried over to another size."""
    used = yaml.safe_load((RESULTS / "promise12" / "comparison" / "config.yaml").read_text())
    files = [RESULTS / "promise12" / "tuning" / name for name in ("baselines-128px.json", "lagrangians-128px.json")]
    tried: dict[str, list[dict[str, Any]]] = {}
    for one in (one for file in files for one in json.loads(file.read_text())["variants"]):
        tried.setdefault(one["method"], []).append(one)
    for method, variants in tried.items():
        best = max(variants, key=lambda one: (round(one["dice"], 3), one["satisfaction"]))
        own = {k.partition(".")[2]: v for k, v in best["settings"].items() if k.startswith(f"{method}.")}
        for name, value in own.items():
            if name not in ("dual_lr", "rho") or own["unit"] == "relative":
                assert used[method][name] == value, f"{method}.{name}"


def test_masks_scored_by_evaluate_have_the_dice_of_the_last_epoch() -> None:
    """Another way to the same number: predicted from the model file on a CPU, scored by MONAI."""
    folder = RESULTS / "promise12" / "comparison"
    epochs = read_comparison(folder).epochs
    files = [file for file in (folder / "evaluation").glob("*.csv") if not file.stem.endswith("-largest")]
    assert files
    for file in files:
        with file.open() as lines:
            scores = [float(row["dice"]) for row in csv.DictReader(lines)]
        assert statistics.fmean(scores) == pytest.approx(epochs[file.stem][0][-1]["dice"], abs=0.002)


# What README and docs quote of the core


@pytest.fixture(scope="module")
def peers() -> dict[str, Any]:
    return json.loads((RESULTS / "core" / "peers.json").read_text())


def test_docs_quote_the_peers_benchmark(peers: dict[str, Any]) -> None:
    written = runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))["as_markdown"](peers)
    assert (RESULTS / "core" / "peers.md").read_text() == written
    assert written in (ROOT / "docs" / "cost.md").read_text()
    assert (ROOT / "docs/pictures/peers.png").read_bytes() == (RESULTS / "core/peers.png").read_bytes()


def test_readme_quotes_the_core_benchmarks(peers: dict[str, Any]) -> None:
    """Whatever rows of these tables README has."""
    readme = (ROOT / "README.md").read_text()
    for method, sizes in peers["steps"].items():
        ratios = [one["over the fastest peer"] for one in sizes.values()]
        rows = re.findall(rf"^\| {re.escape(method)} \|((?: \d\.\d\d \|)+)$", readme, flags=re.MULTILINE)
        for row in rows:
            assert row.strip(" |") == " | ".join(f"{ratio:.2f}" for ratio in ratios)
    table, memory = peers["table of a million, batches of 32"], peers["peak MB of ten million multipliers"]
    least = min(number for name, number in memory.items() if name not in ("ringfence", "one-liner"))
    cuda = json.loads((RESULTS / "core" / "cuda.json").read_text())["ratios"]
    steps = [f"{ratio:.3f}" for what, ratio in cuda.items() if what.startswith("a training step")]
    loop = next(ratio for what, ratio in cuda.items() if what.endswith("scalar loop"))
    for pattern, expected in (
        (r"(\d\.\d\d) of cooper's time", f"{table['over the fastest peer']:.2f}"),
        (r"(\d\.\d\d)\s+of\s+the\s+best\s+peer's\s+memory", f"{memory['ringfence'] / least:.2f}"),
        (r"1/(\d+) of the time of a loop", f"{loop:.0f}"),
        (r"^\| ((?:\d\.\d{3}(?: \| )?){5}) \|$", " | ".join(steps)),
    ):
        assert set(re.findall(pattern, readme, flags=re.MULTILINE)) <= {expected}


def test_from_a_thousand_residuals_on_no_peer_is_faster(peers: dict[str, Any]) -> None:
    """As README, CHANGELOG and docs/cost.md say of the committed run; a new one is for ``make peers``."""
    for method, sizes in peers["steps"].items():
        for number, found in sizes.items():
            if int(number) >= 1000 and found["over the fastest peer"] is not None:
                assert found["over the fastest peer"] <= 1.0, (method, number)
