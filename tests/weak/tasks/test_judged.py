"""Which cases a training is judged by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prepared_sets import make_prepared
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.judged import judged_cases
from ringfence.weak.tasks.settings import BoxDataSettings


def for_training(prepared: PreparedSet, count: int) -> PreparedSet:
    cases = [replace(prepared.cases[0], name=f"case{number}", split="train") for number in range(count)]
    return replace(prepared, cases=tuple(cases))


def test_those_for_validation_if_there_are_any(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    assert judged_cases(prepared) == prepared.of("validation")


@pytest.mark.parametrize(
    ("count", "judged"), [(1, 1), (2, 2), (4, 4), (7, 7), (8, 4), (12, 4), (19, 5), (20, 4), (21, 5), (100, 20)]
)
def test_without_any_a_fifth_or_four(tmp_path: Path, count: int, judged: int) -> None:
    found = judged_cases(for_training(make_prepared(tmp_path / "set"), count))
    assert len(found) == len(set(found)) == judged
    assert found[0].name == "case0"


def test_all_are_trained_on_and_dice_of_none_is_known(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=8, shape=(3, 24, 20))
    prepared = replace(prepared, cases=tuple(replace(case, split="train") for case in prepared.cases))
    prepared.write_manifest()
    task = box_task(BoxDataSettings(prepared=str(prepared.path)), {"strips": {"width": 2}})
    assert task.count == 24
    assert len(task.validation["image"]) == 4 * 3
    assert torch.equal(task.validation["image"][3:6], task.train["image"][6:9])
    assert bool((task.validation["case"] < 0).all())
