"""benchmarks/plan.py: trainings from masks that an earlier record has are neither made again nor made up."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("plan")


def record(path: Path, commit: str, *trainings: tuple[str, str, int, float]) -> Path:
    rows = [{"set": name, "from": kind, "seed": seed, "dice": dice} for name, kind, seed, dice in trainings]
    path.write_text(json.dumps({"environment": {"commit": commit}, "trainings": rows}))
    return path


def test_masks_are_those_of_the_sets_and_seeds_that_are_asked_for(script: ModuleType, tmp_path: Path) -> None:
    first = record(tmp_path / "a", "aaa", ("x", "masks", 0, 0.7), ("x", "boxes", 0, 0.1), ("y", "masks", 0, 0.6))
    second = record(tmp_path / "b", "bbb", ("x", "masks", 0, 0.8), ("x", "masks", 1, 0.9), ("z", "masks", 0, 0.2))
    found = script.masks_of([first, second], ["x", "y"], [0])
    assert [(one["set"], one["seed"], one["dice"], one["commit"]) for one in found] == [
        ("x", 0, 0.8, "bbb"),  # the later record's, and once
        ("y", 0, 0.6, "aaa"),
    ]
    assert [one["dice"] for one in script.masks_of([first, second], ["x"], [0, 1])] == [0.8, 0.9]
    with pytest.raises(SystemExit, match="no training from masks of y with seed 1"):
        script.masks_of([first, second], ["x", "y"], [0, 1])


def test_the_table_says_where_masks_are_from(script: ModuleType, tmp_path: Path) -> None:
    earlier = record(tmp_path / "a", "0123456789", ("x", "masks", 0, 0.8))
    facts = {"torch": "2", "cpu": "some", "gpu": "none", "commit": "abcdefghij"}
    boxes = {"set": "x", "from": "boxes", "seed": 0, "dice": 0.6, "rounds": None}
    found = {
        "command": "python x",
        "environment": facts,
        "trainings": [*script.masks_of([earlier], ["x"], [0]), boxes],
    }
    script.write(found, tmp_path / "out")
    table = (tmp_path / "out.md").read_text()
    assert "| x | 0.600 | – | 0.800 | 0.750 |" in table
    assert table.endswith("commit abcdefg (masks: 0123456).\n")


def test_what_plans_reach_is_what_the_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    reached = importlib.import_module("plan_reached")
    record = json.loads((ROOT / "results/plan/reached.json").read_text(encoding="utf-8"))
    assert record["rows"] == {part: [reached.read(row) for row in rows] for part, rows in reached.ROWS.items()}
    assert reached.as_markdown(record) == (ROOT / "results/plan/reached.md").read_text(encoding="utf-8")


def test_a_row_is_that_of_its_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    reached = importlib.import_module("plan_reached")
    rows = [{"set": "x", "from": kind} for kind in ("boxes", "boxes", "masks")] + [{"set": "y", "from": "boxes"}]
    means = {"x": {"boxes": 0.8, "masks": 0.9, "ratio": 0.8 / 0.9}, "y": {"boxes": 0.1}}
    (tmp_path / "some.json").write_text(json.dumps({"trainings": rows, "means": means}))
    found = reached.read(reached.Row("all of it", "some", "x", 0.9), tmp_path)
    facts = {"torch": "2", "cpu": "some", "gpu": "none", "commit": "abcdefghij with changes"}
    table = reached.as_markdown({"command": "python x", "environment": facts, "rows": {"part": [found]}})
    assert "| **part** | | | | | | |\n| all of it | 2 / 1 | 0.800 | 0.900 | 0.889 | 0.9 | `some` |\n" in table
    assert table.endswith("`python x`, torch 2, some, commit abcdefg with changes.\n")


def test_it_is_not_given_with_what_it_says_itself(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["plan.py", "x", "--masks-of", "a", "--only", "masks", "--out", "o"])
    with pytest.raises(SystemExit):
        script.main()
