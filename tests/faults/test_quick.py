"""The long run, short: sixty inputs a reader, a few kills, full disks, pairs, and every bomb. D1 to D13 are in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from children import python
from faults.command import QUICK
from faults.readers import READERS
from faults.record import FAULTS_OF

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The record, and where faults were noted; in a process of its own, since it forks."""
    folder = tmp_path_factory.mktemp("faults")
    asked = ("quick", "--out", folder / "out", "--kept", folder / "kept", "--jobs", "1")
    done = python(HERE, *asked, cwd=HERE.parent.parent)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return json.loads((folder / "out" / "faults.json").read_text()), folder / "kept"


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_accepts_what_is_right_and_refuses_the_rest_in_a_line(
    run: tuple[dict[str, Any], Path], reader: str
) -> None:
    record, kept = run
    found = record["fuzz"][reader]
    noted = kept / reader / "faults.jsonl"
    assert not noted.exists(), noted.read_text()[:3000]
    assert {name: found[name] for name in FAULTS_OF["fuzz"]} == dict.fromkeys(FAULTS_OF["fuzz"], 0)
    assert found["inputs"] == QUICK[0][2]
    assert found["accepted"] > 0
    assert found["refused"] > 5


@pytest.mark.parametrize("part", ["kills", "disks", "pairs", "bombs"])
def test_a_bad_day_costs_nothing(run: tuple[dict[str, Any], Path], part: str) -> None:
    record, kept = run
    noted = kept / f"{part}.jsonl"
    assert not noted.exists() or not noted.read_text(), noted.read_text()[:3000]
    assert set(record[part]) >= {name for one, names, _ in QUICK if one == part for name in names}
    for name, found in record[part].items():
        assert {fault: found.get(fault, 0) for fault in FAULTS_OF[part]} == dict.fromkeys(FAULTS_OF[part], 0), name


def test_commands_were_really_killed_refused_and_run_together(run: tuple[dict[str, Any], Path]) -> None:
    record, _ = run
    assert all(found["kills"] >= 3 and found["steps"] > 5 for found in record["kills"].values())
    assert all(found["failed"] > 0 for found in record["disks"].values())
    assert sum(found["one worked"] for found in record["pairs"].values()) > 0
    assert all(found["file bytes"] < 5e7 for found in record["bombs"].values())
