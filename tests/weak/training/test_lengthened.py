"""Trainings that go on for more epochs: what depends on their number is as in a training of the new length."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ranks_training import asked
from rich.console import Console

from prepared_sets import make_prepared
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.train import train
from ringfence.weak.training.settings import ScheduleSettings


def longer(settings: TrainSettings, epochs: int) -> TrainSettings:
    return settings.changed({"training.epochs": epochs})


@pytest.fixture
def settings(tmp_path: Path) -> TrainSettings:
    """t grows from 1 to 9, and the logits are sharpened."""
    make_prepared(tmp_path / "set", cases=2, shape=(4, 12, 10))
    begun = asked(tmp_path, "log_barrier", epochs=2)
    method = replace(begun.method_settings["log_barrier"], t=1.0, mu=None, final_t=9.0, final_temperature=0.5)
    return replace(begun, method_settings={**begun.method_settings, "log_barrier": method})


@pytest.mark.parametrize("schedule", ["torch.optim.lr_scheduler.CosineAnnealingLR", None])
def test_a_finished_training_goes_on(tmp_path: Path, settings: TrainSettings, schedule: str | None) -> None:
    settings = replace(settings, schedule=ScheduleSettings(schedule))
    train(settings, tmp_path / "run", progress=False)
    said = io.StringIO()
    went_on = train(
        longer(settings, 5), tmp_path / "run", resume=True, console=Console(file=said, width=500)
    ).history
    whole = train(longer(settings, 5), tmp_path / "whole", progress=False).history
    assert [row["epoch"] for row in went_on] == [1, 2, 3, 4, 5]
    for name in ("lr", "t", "temperature"):
        assert [row[name] for row in went_on[2:]] == pytest.approx([row[name] for row in whole[2:]]), name
    assert went_on[-1]["t"] == pytest.approx(9.0)
    assert "2 epochs become 5; in epoch 3 " in said.getvalue()
    assert ("the learning rate was to be 0 and is 6.55e-06" in said.getvalue()) == (schedule is not None)
    assert "t is 3" in said.getvalue()
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["training"]["epochs"] == 5
    assert json.loads((tmp_path / "run/result.json").read_text())["epochs"] == 5


def test_what_was_not_kept_cannot_go_on(tmp_path: Path, settings: TrainSettings) -> None:
    brief = settings.changed({"training.keep_checkpoint": False})
    train(brief, tmp_path / "run", progress=False)
    assert not (tmp_path / "run/last.ckpt").exists()
    before = {file: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.name == "model.safetensors"}
    with pytest.raises(
        ValueError, match="has finished its 2 epochs, and cannot go on to 4: its checkpoint was not"
    ):
        train(longer(brief, 4), tmp_path / "run", resume=True, progress=False)
    assert {file: file.read_bytes() for file in before} == before
    train(brief, tmp_path / "run", resume=True, progress=False)  # as it was


def test_fewer_epochs_are_another_training(tmp_path: Path, settings: TrainSettings) -> None:
    train(settings, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=r"training\.epochs: was 2, now 1"):
        train(longer(settings, 1), tmp_path / "run", resume=True, progress=False)


def test_another_machine_may_go_on(tmp_path: Path, settings: TrainSettings) -> None:
    """How it is done is not what is done."""
    train(settings, tmp_path / "run", progress=False)
    how = {"training.accumulate": 2, "training.device": "auto", "training.keep_checkpoint": False}
    assert len(train(settings.changed(how), tmp_path / "run", resume=True, progress=False).history) == 2
