"""Folds of the training cases: every case is held out once, and those for validation never come in."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prepared_sets import described_anew, make_prepared
from ringfence.cli import main
from ringfence.documents import read_yaml
from ringfence.weak import BoxDataSettings, plan, planned
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing
from ringfence.weak.prepared.folds import with_fold
from ringfence.weak.tasks.boxes import box_task, prepared_of

BOX = {"strips": {"width": 2}, "outside": {}}


def a_set(masks: list[bool], order: list[int]) -> PreparedSet:
    """Cases in some order; the last is for validation."""
    cases = [Case(f"case{n}", "train", f"{n}.npz", "", (2, 8, 8), None, masks[n]) for n in order]
    last = Case("validated", "validation", "v.npz", "", (2, 8, 8), None, True)
    return PreparedSet(Path("set"), "set", Preprocessing((8, 8)), ("T2",), ("object",), (*cases, last))


@given(st.data())
def test_every_case_is_held_out_once(data: st.DataObject) -> None:
    masks = data.draw(st.lists(st.booleans(), min_size=2, max_size=9))
    judged = sum(masks) or len(masks)
    if judged < 2:
        return
    order = data.draw(st.permutations(range(len(masks))))
    folds = data.draw(st.integers(2, judged))
    held_out: Counter[str] = Counter()
    for fold in range(folds):
        found = with_fold(a_set(masks, order), fold, folds)
        train, judges = ({case.name for case in found.of(split)} for split in ("train", "validation"))
        assert train | judges == {f"case{n}" for n in order}
        assert train
        assert len(judges) in (judged // folds, -(-judged // folds))
        assert judges == {
            case.name for case in with_fold(a_set(masks, sorted(order)), fold, folds).of("validation")
        }
        assert [case.split for case in found.cases if case.name == "validated"] == ["unused"]
        held_out.update(judges)
    assert held_out == Counter(f"case{n}" for n in order if masks[n] or not any(masks))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="data.folds 4: set has 3 cases with a mask for training, and each fold"):
        with_fold(a_set([True, True, True, False], [0, 1, 2, 3]), 0, 4)
    with pytest.raises(ValueError, match="data.folds 3: set has 2 cases for training"):
        with_fold(a_set([False, False], [0, 1]), 0, 3)
    with pytest.raises(ValueError, match="data.folds must be a whole number, at least 2, got 1"):
        BoxDataSettings(folds=1)
    with pytest.raises(ValueError, match="data.fold 5: folds are 0 to 4"):
        BoxDataSettings(folds=5, fold=5)
    with pytest.raises(ValueError, match="data.fold 1: say how many there are, data.folds"):
        BoxDataSettings(fold=1)


def test_a_task_has_the_folds_cases_alone(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=5)
    # nothing of the case for validation is read: it need not even be there
    (prepared.path / prepared.of("validation")[0].file).unlink()
    for fold in (0, 1):
        data = BoxDataSettings(prepared=str(prepared.path), folds=2, fold=fold)
        assert [case.name for case in prepared_of(data).of("validation")] == [f"case{fold}", f"case{fold + 2}"]
        task = box_task(data, BOX)
        assert task.count == 12
        assert task.names[0] == f"slice 0 of case{1 - fold}"
        made = plan(data, "cpu")
        assert made.fingerprint.cases == 2
        assert (planned(made).data.folds, planned(made).data.fold) == (2, fold)


def test_boxes_of_all_cases_may_be_in_the_file(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=5, masked=False)
    prepared = described_anew(replace(prepared, cases=tuple(replace(one, masked=False) for one in prepared.cases)))
    file = tmp_path / "boxes.csv"
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["case", "slice", "class", "row_low", "row_high", "column_low", "column_high"])
        rows.writerows([case.name, 2, "class 1", 6, 18, 5, 15] for case in prepared.cases)
    data = BoxDataSettings(prepared=str(prepared.path), boxes=str(file), folds=4, fold=1)
    task = box_task(data, BOX)
    assert task.count == 18
    assert (task.validation["case"] < 0).all()  # no mask to judge by
    assert (task.validation["box"] > 0).any()


def test_training_notes_its_fold_and_goes_on_with_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared, out = make_prepared(tmp_path / "set").path, tmp_path / "run"
    words = [
        "--data.prepared",
        str(prepared),
        "--training.device",
        "cpu",
        "--training.epochs",
        "1",
        "--out",
        str(out),
    ]
    words += ["--network.init_args.features", "[2, 2, 2, 2, 2, 2]", "--data.folds", "3"]
    assert main(["train", "plan", *words, "--data.fold", "2"]) == 0
    said = capsys.readouterr()
    assert "12 training images" in said.err
    stored = read_yaml(out / "config.yaml")
    assert (stored["data"]["folds"], stored["data"]["fold"]) == (3, 2)
    assert main(["train", "--resume", "--out", str(out), "--data.fold", "1"]) == 2
    assert "data.fold: was 2, now 1" in capsys.readouterr().err
