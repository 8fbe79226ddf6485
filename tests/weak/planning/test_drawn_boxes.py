"""benchmarks/drawn_boxes.py draws boxes as benchmarks/generated_sets.py does."""

from __future__ import annotations

import csv
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ENDS = ("row_low", "row_high", "column_low", "column_high")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Any, Path]:
    """drawn_boxes.py, and a small set of generated_sets.py."""
    pytest.importorskip("nibabel")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    sets = importlib.import_module("generated_sets")
    small = replace(sets.KINDS["targets"], shape=(4, 64, 64), cases=2)
    monkeypatch.setitem(sets.KINDS, "targets", small)
    sets.write_set("targets", tmp_path / "set", masks=True)
    return importlib.import_module("drawn_boxes"), tmp_path / "set"


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_a_steady_hand_draws_the_boxes_of_the_set(scripts: tuple[Any, Path], tmp_path: Path) -> None:
    drawn, images = scripts
    drawn.draw(images, drawn.Hand(), tmp_path / "tight.csv")
    assert rows(tmp_path / "tight.csv") == rows(images / "boxes.csv")
    assert rows(tmp_path / "tight.csv")


def test_a_loose_hand_draws_larger_ones_and_an_unsteady_one_others(
    scripts: tuple[Any, Path], tmp_path: Path
) -> None:
    drawn, images = scripts
    hands = {"tight": drawn.Hand(), "loose": drawn.Hand(loose=0.2), "jitter": drawn.Hand(jitter=0.1)}
    found = {}
    for name, hand in hands.items():
        drawn.draw(images, hand, tmp_path / f"{name}.csv")
        found[name] = [[int(row[end]) for end in ENDS] for row in rows(tmp_path / f"{name}.csv")]
    for tight, loose in zip(found["tight"], found["loose"], strict=True):
        assert loose[0] <= tight[0] <= tight[1] <= loose[1]
        assert loose[2] <= tight[2] <= tight[3] <= loose[3]
    assert found["loose"] != found["tight"]
    moved = [
        (one - other, max(tight[1] - tight[0], tight[3] - tight[2]))
        for tight, jitter in zip(found["tight"], found["jitter"], strict=True)
        for one, other in zip(jitter, tight, strict=True)
    ]
    assert any(step for step, _ in moved)
    assert all(abs(step) <= 0.1 * side + 1 for step, side in moved)
