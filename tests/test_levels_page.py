"""benchmarks/levels.py and its like: what they say of a training is what it said, and tables are their records'."""

from __future__ import annotations

import csv
import importlib
import json
import math
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from prepared_sets import make_prepared
from ringfence.weak import TrainSettings, from_preset, train

ROOT = Path(__file__).parent.parent


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import levels

    return levels


def test_at_even_odds_it_is_what_the_training_measured(levels: ModuleType, tmp_path: Path) -> None:
    """By the last epoch: of a training without levels at odds of 1, and of one with them at those that it chose."""
    make_prepared(tmp_path / "set", cases=6)
    for calibrate in (False, True):
        asked = from_preset(TrainSettings, "boxes-small").changed(
            {
                "data.prepared": str(tmp_path / "set"),
                "data.folds": 3,
                "data.fold": 1,
                "network.class_path": "torch.nn.Conv2d",
                "network.init_args": {"kernel_size": 5, "padding": 2},
                "training.epochs": 3,
                "training.lr": 1e-2,
                "training.device": "cpu",
                "training.calibrate": calibrate,
            }
        )
        run = tmp_path / f"run-{calibrate}"
        train(asked, run, progress=False)
        with (run / "metrics.csv").open() as lines:
            last = list(csv.DictReader(lines))[-1]
        found = levels.looked_at(run)
        measured = found["dice_chosen"] if calibrate else found["dice"][found["odds"].index(1.0)]
        assert measured == pytest.approx(float(last["dice"]), abs=1e-5)
        assert (found["set"], found["fold"], found["method"]) == ("set", 1, "log_barrier")
        if calibrate:
            assert [math.log(1.0 / odds) for odds in found["chosen"]] == pytest.approx(
                [float(last["level"])], abs=1e-5
            )


@pytest.mark.parametrize("name", ["levels", "edges", "unseen"])
def test_the_table_is_its_records(name: str, levels: ModuleType) -> None:
    record = json.loads((ROOT / f"results/plan/earlier/{name}.json").read_text(encoding="utf-8"))
    assert levels.as_markdown(record) == (ROOT / f"results/plan/earlier/{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["visible", "looseness", "views", "teaching"])
def test_what_is_seen_is_its_record(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module(name)
    record = json.loads((ROOT / f"results/plan/{name}.json").read_text(encoding="utf-8"))
    assert script.as_markdown(record) == (ROOT / f"results/plan/{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", ["full_supervision", "log_barrier"])
def test_as_it_was_judged_it_is_what_the_training_measured(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned by a quarter of as much as in training, with a quarter of each neighbour; else it is another Dice."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    views = importlib.import_module("views")
    make_prepared(tmp_path / "set", cases=6)
    asked = from_preset(TrainSettings, "boxes-small").changed(
        {
            "method": method,
            "data.prepared": str(tmp_path / "set"),
            "data.folds": 3,
            "network.class_path": "torch.nn.Conv2d",
            "network.init_args": {"kernel_size": 5, "padding": 2},
            "constraints.strips.width": 4,
            "augment.turn": 20.0,
            "training.epochs": 12,
            "training.lr": 3e-2,
            "training.device": "cpu",
            "training.calibrate": True,
            "training.neighbours": 0.25,
        }
    )
    train(asked, tmp_path / "run", progress=False)
    with (tmp_path / "run" / "metrics.csv").open() as lines:
        last = list(csv.DictReader(lines))[-1]
    found = views.looked_at(tmp_path / "run")
    assert (found["turn"], found["method"]) == (20.0, method)
    judged = found["dice"][views.TURNS.index((0.25,))][views.SHARES.index(0.25)]
    assert judged == pytest.approx(float(last["dice"]), abs=1e-5)
    assert judged > (0.3 if method == "full_supervision" else 0.0)  # a few steps from boxes find little
    others = [found["dice"][0][0], found["dice"][1][0], found["dice"][0][2]]
    assert all(abs(one - judged) > 1e-5 for one in others)  # turns and neighbours matter


def test_a_teachers_labels_are_compared_with_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: Dice of the labels that a second network was given, none of them left out as unsure."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    teaching = importlib.import_module("teaching")
    prepared, run = make_prepared(tmp_path / "set", cases=4), tmp_path / "run"
    asked = from_preset(TrainSettings, "boxes-small").changed(
        {
            "data.prepared": str(tmp_path / "set"),
            "network.class_path": "torch.nn.Conv2d",
            "network.init_args": {"kernel_size": 5, "padding": 2},
            "training.epochs": 4,
            "training.lr": 3e-2,
            "training.device": "cpu",
            "refine": 1,
            "refinement.unsure": 0.0,
        }
    )
    train(asked, run, progress=False)
    for name in ("config.yaml", "environment.json"):
        shutil.copy(run / name, run / "round-0" / name)
    by_hand = []
    for case in prepared.of("train"):
        truth, labels = np.asarray(prepared.load(case)[1]), np.load(run / "teacher-1" / case.file)["mask"]
        by_hand.append(2.0 * ((truth == 1) & (labels == 1)).sum() / ((truth == 1).sum() + (labels == 1).sum()))
    found = teaching.looked_at(run / "round-0")["labels"]
    assert found["labels"][0] == pytest.approx(np.mean(by_hand), abs=1e-3)
    assert found["labels"][0] > 0.3
    truth, other = np.zeros((4, 5), bool), np.zeros((4, 5), bool)
    truth[:2], other[1:3] = True, True
    assert teaching.compared(other, truth) == [0.5, 0.5, 0.5]
    assert teaching.compared(truth, truth) == [1.0, 0.0, 0.0]
