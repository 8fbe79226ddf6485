"""benchmarks/cross_validate.py: what it trains on, and what it says of it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prepared_sets import make_prepared

ROOT = Path(__file__).parent.parent


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("cross_validate")


def training(variant: str, fold: int, seed: int, dice: float) -> dict[str, Any]:
    return {"variant": variant, "fold": fold, "seed": seed, "dice": dice}


def test_folds_are_compared_with_each_other(script: ModuleType, tmp_path: Path) -> None:
    facts = {"torch": "2", "cpu": "some", "gpu": "none", "commit": "0123456789"}
    record = {"command": "python x", "seed": [0, 1], "set": "mine", "folds": 2, "variants": ["plan", "a=1"]}
    trainings = [
        training("plan", 0, 0, 0.5),
        training("plan", 0, 1, 0.7),
        training("plan", 1, 0, 0.8),
        training("a=1", 0, 0, 0.7),
        training("a=1", 1, 0, 0.75),
    ]
    script.write(record | {"environment": facts, "trainings": trainings}, tmp_path / "out")
    found = json.loads((tmp_path / "out.json").read_text())["variants_over_folds"]
    assert found["plan"]["folds"] == {"0": pytest.approx(0.6), "1": 0.8}
    assert (found["plan"]["dice"], found["plan"]["least"], found["plan"]["most"]) == pytest.approx((0.7, 0.6, 0.8))
    assert found["a=1"]["gain"] == pytest.approx(0.025)  # 0.1 in a fold, -0.05 in the other
    table = (tmp_path / "out.md").read_text()
    assert "| plan | 0.700 (0.600 to 0.800) | – | – |" in table
    assert "| a=1 | 0.725 (0.700 to 0.750) | +0.025 | 1 of 2 |" in table
    (tmp_path / "out.md").unlink()
    script.main(["--rewrite", "--out", str(tmp_path / "out")])
    assert (tmp_path / "out.md").read_text() == table


def test_what_was_before_refinement_has_a_column(script: ModuleType, tmp_path: Path) -> None:
    facts = {"torch": "2", "cpu": "some", "gpu": "none", "commit": "0123456789"}
    record = {"command": "python x", "seed": [0], "set": "mine", "folds": 3, "variants": ["plan", "refine=1"]}
    trainings = [
        training("refine=1", fold, 0, after) | {"rounds": [{"dice": before}, {"dice": after}]}
        for fold, (before, after) in enumerate([(0.5, 0.6), (0.8, 0.79), (0.65, 0.7)])
    ]
    trainings += [training("plan", fold, 0, 0.6) for fold in range(3)]
    script.write(record | {"environment": facts, "trainings": trainings}, tmp_path / "out")
    table = (tmp_path / "out.md").read_text()
    assert "| mine | Dice over folds | before refinement | against plan | better in |" in table
    assert "| plan | 0.600 (0.600 to 0.600) | – | – | – |" in table
    assert "| refine=1 | 0.697 (0.600 to 0.790) | 0.650; then better in 2 of 3 | +0.097 | 2 of 3 |" in table


@pytest.mark.parametrize(
    "more", [[], ["--only", "1"], ["--device", "cpu", "--boxes", "b.csv", "--last", "3", "--no-plan"]]
)
def test_it_says_the_command_that_it_was_given(
    more: list[str], script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = [training("a=1", 0, 0, 0.5)]
    monkeypatch.setattr(script, "done", lambda jobs, workers: iter(trained))
    script.main(["set", "--folds", "2", "--set", "a=1", *more, "--out", str(tmp_path / "first")])
    said = json.loads((tmp_path / "first.json").read_text())
    again = [*said["command"].split()[2:], "--out", str(tmp_path / "second")]
    script.main(again)
    assert json.loads((tmp_path / "second.json").read_text())["command"] == said["command"]


def test_it_trains_every_variant_on_every_fold(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = make_prepared(tmp_path / "set", cases=4)
    (prepared.path / prepared.of("validation")[0].file).unlink()  # which nobody may look at
    small = ["training.epochs=1", "network.init_args.features=[2,2,2,2,2,2]"]
    words = [str(prepared.path), "--folds", "3", "--only", "0", "2", "--device", "cpu", "--no-plan"]
    words += ["--set", *small, "--set", *small, "method=full_supervision", "--out", str(tmp_path / "out")]
    script.main([*words, "--keep", str(tmp_path / "runs")])
    kept = {path.name for path in (tmp_path / "runs").iterdir()}
    assert kept == {f"fold-{fold}-variant-{number}-seed-0" for fold in (0, 2) for number in (0, 1)}
    assert all((tmp_path / "runs" / name / "model.safetensors").exists() for name in kept)
    record = json.loads((tmp_path / "out.json").read_text())
    assert [(one["variant"].count("="), one["fold"]) for one in record["trainings"]] == [
        (2, 0),
        (3, 0),
        (2, 2),
        (3, 2),
    ]
    assert all(0.0 <= one["dice"] <= 1.0 for one in record["trainings"])
    assert record["command"].startswith("python benchmarks/cross_validate.py")
    assert len(capsys.readouterr().out.splitlines()) == 4
    with pytest.raises(SystemExit, match="NAME=VALUE"):
        script.change("data.margin")
