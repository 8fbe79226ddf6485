"""Counts are merged line by line, the table shows them, the page holds the table, and a fault is an exit status."""

from __future__ import annotations

import json
from pathlib import Path

from faults import record as records
from faults.fuzzing import as_counts

PAGE = "before\n\n<!-- table -->\nold\n<!-- end of table -->\n\nafter\n"


def test_lines_are_merged_and_shown(tmp_path: Path) -> None:
    from collections import Counter

    records.merge(tmp_path, "fuzz", "nifti", as_counts(Counter(accepted=3, refused=4)), seed=5, seconds=1.0)
    records.merge(
        tmp_path, "kills", "train", {"kills": 7, "differ": 0, "stuck": 0, "left over": 0}, seed=5, seconds=2.0
    )
    record = records.read_record(tmp_path)
    assert records.faults(record) == 0
    records.merge(tmp_path, "fuzz", "manifest", as_counts(Counter(traceback=2)), seed=5, seconds=1.0)
    record = records.read_record(tmp_path)
    assert records.faults(record) == 2
    assert record["seed"] == 5
    assert record["command"].startswith("python tests/faults")
    assert {"python", "torch", "cpu", "gpu", "commit"} <= record["environment"].keys()
    text = (tmp_path / "faults.md").read_text()
    assert "| nifti | 7 | 3 | 4 | 0 |" in text
    assert "| **all** | 9 | 3 | 4 | 0 | 2 |" in text
    assert "| train | 7 | 0 | 0 | 0 |" in text


def test_every_fault_of_every_part_counts(tmp_path: Path) -> None:
    for part, names in records.FAULTS_OF.items():
        for name in names:
            assert records.faults({part: {"x": {name: 1}}}) == 1


def test_the_page_holds_the_table_of_the_committed_record(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    record = {"seed": 0, "pairs": {"a, b": {"rounds": 3, "wrong": 0}}}
    for _ in range(2):
        records.write_page(record, page)
        assert (
            page.read_text()
            == f"before\n\n<!-- table -->\n\n{records.as_markdown(record)}\n<!-- end of table -->\n\nafter\n"
        )
    committed = records.ROOT / "results" / "faults" / records.FILE
    if committed.exists():
        record = json.loads(committed.read_text())
        table = records.as_markdown(record)
        assert (committed.parent / records.MARKDOWN).read_text() == table
        assert table in records.PAGE.read_text(encoding="utf-8")
