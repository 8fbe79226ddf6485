"""docs/quality.md quotes the correlations as they were measured, and their tables are those of the records."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECORDS = {number: ROOT / "results" / "plan" / f"quality-{number}.json" for number in (0, 1)}


def test_the_page_quotes_the_records() -> None:
    page = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    found = {number: json.loads(file.read_text())["correlations"]["by case"] for number, file in RECORDS.items()}
    for name, title in (
        ("agreement", "agreement of two models"),
        ("flip_agreement", "agreement of flips"),
        ("uncertainty", "uncertainty"),
        ("box_iou", "box agreement"),
        ("satisfaction", "satisfaction"),
    ):
        columns = ((1, "all"), (1, "found"), (0, "all"), (1, "plain"), (0, "plain"))
        cells = [f"{found[number][name][which]:+.2f}" for number, which in columns]
        assert f"| {title} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize("number", RECORDS)
def test_a_table_is_made_of_its_record(number: int) -> None:
    as_markdown = runpy.run_path(str(ROOT / "benchmarks" / "quality.py"))["as_markdown"]
    file = RECORDS[number]
    assert file.with_suffix(".md").read_text(encoding="utf-8") == as_markdown(json.loads(file.read_text()))
