"""What a training and a comparison leave behind, read back in Python; and runs of older versions."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak import (
    BoxDataSettings,
    NetworkSettings,
    SyntheticSettings,
    Trained,
    TrainingSettings,
    TrainSettings,
    compare,
    from_preset,
    train,
)

QUIET = Console(quiet=True)
NETWORK = NetworkSettings("torch.nn.Conv2d", {"kernel_size": 5, "padding": 2})
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    make_prepared(folder / "set", cases=3)
    begun = from_preset(TrainSettings, "boxes")
    asked = replace(
        begun,
        data=BoxDataSettings(str(folder / "set")),
        network=NETWORK,
        training=TrainingSettings(epochs=2, batch_size=4, device="cpu"),
    )
    return train(asked, str(folder / "run"), console=QUIET)


def test_a_training_has_its_epochs_and_its_model(trained: Trained) -> None:
    assert [row["epoch"] for row in trained.history] == [1.0, 2.0]
    assert math.isnan(trained.history[0]["stability"])  # there is nothing before the first epoch
    last = trained.history[-1]
    assert str(trained) == (
        f"Trained model {trained.path / 'model.safetensors'}: 2 epochs, dice {last['dice']:.3f}, "
        f"satisfaction {last['satisfaction']:.3f}"
    )
    assert f"<td>{last['satisfaction']:.4g}</td>" in trained._repr_html_()
    again = Trained(str(trained.path))  # of a folder from yesterday
    assert str(again.history) == str(trained.history)
    found = again.load(device="cpu").predict(np.random.default_rng(0).normal(size=(2, 30, 30)))
    assert found.mask.shape == (2, 30, 30)


def test_a_comparison_has_its_results(tmp_path: Path) -> None:
    small = from_preset(SyntheticSettings, "synthetic-small")
    asked = replace(
        small,
        methods=["penalty", "full_supervision"],
        data=replace(small.data, size=24, train=4, validation=2),
        network=NETWORK,
        training=TrainingSettings(epochs=1, device="cpu", prior=0.01),
    )
    folder = compare(asked, tmp_path / "run", console=QUIET)
    assert {one["method"] for one in folder.results} == {"penalty", "full_supervision"}
    assert str(folder).splitlines()[0] == f"Comparison {tmp_path / 'run'}"
    assert "penalty" in folder._repr_html_()


def test_epochs_follow_the_number_of_images_and_stay_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 images in batches of 4: 30 steps are 10 epochs."""
    make_prepared(tmp_path / "set", cases=3)
    command = [
        "train",
        "--data.prepared",
        str(tmp_path / "set"),
        "--training.device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    network = ["--network.class_path", "torch.nn.Conv2d", "--network.init_args", json.dumps(NETWORK.init_args)]
    steps = ["--training.epochs", "null", "--training.steps", "33", "--training.batch_size", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "ringfence.weak.training.run_folder.OneRun.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert main([*command, *network, *steps]) == 130
    assert len(Trained(tmp_path / "run").history) == 11
    assert main(["train", "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert len(Trained(tmp_path / "run").history) == 11
    assert json.loads((tmp_path / "run/result.json").read_text())["epochs"] == 11


@pytest.mark.parametrize(
    ("kept", "command"),
    [("promise12/comparison", "compare promise12"), ("synthetic/comparison/small", "compare synthetic")],
)
def test_a_run_of_an_older_version_is_not_gone_on_with_by_mistake(
    kept: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings were others: it says so, and which, and nothing is changed."""
    shutil.copytree(ROOT / "results" / kept, tmp_path / "run")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert main([*command.split(), "--out", str(tmp_path / "run"), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "begun with settings that this command does not know, by an older ringfence perhaps" in error
    assert "`ringfence report` still reads it; begin a new one with --out" in error
    assert error.count("\n") == 1
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert isinstance(yaml.safe_load((tmp_path / "run/config.yaml").read_text()), dict)
