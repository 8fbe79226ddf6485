"""What a stranger adds joins without a change to ringfence: a file of theirs, named by its path."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor
from torchmetrics import MeanMetric

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.report import read_comparison
from ringfence.report.curves import curves_figure
from ringfence.report.table import table_markdown
from ringfence.weak import (
    BoxDataSettings,
    NetworkSettings,
    OptimiserSettings,
    ScheduleSettings,
    SyntheticSettings,
    TrainingSettings,
    TrainSettings,
    compare,
    from_preset,
    make_constraints,
    read_prepared,
    train,
)
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.training import measures
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.run_folder import PICTURES_FILE

QUIET = Console(quiet=True)
CONV = {"kernel_size": 5, "padding": 2}
TINY = """\
data: {size: 24, train: 6, validation: 4}
network: {class_path: torch.nn.Conv2d, init_args: {in_channels: 1, out_channels: 2, kernel_size: 5, padding: 2}}
training: {epochs: 1, batch_size: 4, device: cpu}
"""

TOY_METHOD = '''
from dataclasses import dataclass
from typing import ClassVar

import ringfence as rf
from ringfence import weak


@dataclass(frozen=True)
class Toy(weak.ConstrainedSettings):
    """Toy method: a penalty by another name."""

    name: ClassVar = "toy"
    title: ClassVar = "The toy"
    colour: ClassVar = "#123456"

    strength: float = 1.0

    def make(self, setup):
        return rf.Penalty(self.strength, **self.options(setup))
'''

TOY_CONSTRAINT = '''
from dataclasses import dataclass

import ringfence as rf
from ringfence import weak


@dataclass(frozen=True)
class Small(weak.Constraint):
    """V <= most, whatever the image."""

    most: float = 50.0

    def residual(self, region, targets, unit):
        return rf.at_most(region.size, self.most, scale=self.most if unit == "relative" else 1.0)
'''

TOY_LAYOUT = """
from ringfence.weak import Layout, Source, SourceCase, SourceVolume
from ringfence.weak.datasets import Option, with_validation


def find(path, validation=None, suffix="scan"):
    cases = tuple(
        SourceCase(one.name, (SourceVolume(one / f"{suffix}.nii"),), SourceVolume(one / "label.nii"))
        for one in sorted(path.glob("p*"))
    )
    source = Source("toy", "Toys", ("CT",), ("toy",), (1,), cases, (cases[-1].name,), "the last one")
    return with_validation(source, validation)


TOY = Layout("toy", "a folder for each toy", find, options=(Option("suffix", "name of the scans"),), size=(16, 16))
"""

TOY_NETWORK = """
from torch import nn


class Twice(nn.Module):
    def __init__(self, in_channels, out_channels, width=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, out_channels, 1)
        )

    def forward(self, images):
        return self.layers(images)
"""

TOY_OPTIMISER = '''
import torch


class SignDescent(torch.optim.Optimizer):
    """w <- w - lr sign(g)."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(group["lr"] * weight.grad.sign())
        return loss


class Halved(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer):
        super().__init__(optimizer, lambda epoch: 0.5**epoch)
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; afterwards the registry of methods is as it was."""
    before = dict(METHODS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    yield tmp_path
    METHODS.clear()
    METHODS.update(before)


def epochs(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def settings(folder: Path, **changes: object) -> TrainSettings:
    begun = from_preset(TrainSettings, "boxes-small")
    small = replace(
        begun,
        data=BoxDataSettings(prepared=str(folder)),
        network=NetworkSettings("torch.nn.Conv2d", CONV),
        training=TrainingSettings(epochs=2, batch_size=4, lr=0.002, device="cpu"),
    )
    return replace(small, **changes)


# A method


def test_a_method_is_compared_with_the_others(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "toy_a.py").write_text(TOY_METHOD)
    command = ["compare", "synthetic", "--config", "tiny.yaml", "--methods", "log_barrier", "toy_a.Toy"]
    assert main([*command, "--toy.strength", "3", "--out", "run"]) == 0
    assert "The toy" in capsys.readouterr().out
    stored = yaml.safe_load((place / "run/config.yaml").read_text())
    assert (stored["methods"], stored["toy"]["strength"]) == (["log_barrier", "toy_a.Toy"], 3.0)
    assert len(epochs(place / "run/seed-0/toy/metrics.csv")) == 1
    assert "| The toy |" in (place / "run/table.md").read_text()
    comparison = read_comparison(place / "run")
    assert list(comparison.epochs) == ["log_barrier", "toy"]
    (line,) = [one for one in curves_figure(comparison, place / "c.png").axes[0].get_lines() if one.get_label() == "The toy"]  # fmt: skip
    assert line.get_color() == "#123456"
    # its strength is what it trained with: that of a penalty with the same one
    assert main(["compare", "synthetic", "--config", "tiny.yaml", "--methods", "penalty", "--penalty.strength", "3", "--penalty.unit", "pixels", "--penalty.final_temperature", "1", "--out", "other"]) == 0  # fmt: skip
    both = [epochs(place / file)[0] for file in ("run/seed-0/toy/metrics.csv", "other/seed-0/penalty/metrics.csv")]
    assert both[0]["train_loss"] == both[1]["train_loss"]


def test_a_method_goes_on_after_an_interruption_and_reports_without_being_there(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "toy_b.py").write_text(TOY_METHOD)
    step = WeakSegmentation.training_step

    def stopped(module: WeakSegmentation, *arguments: object) -> Tensor:
        if module.current_epoch == 1:
            raise KeyboardInterrupt
        return step(module, *arguments)

    command = ["compare", "synthetic", "--config", "tiny.yaml", "--methods", "toy_b.Toy", "--training.epochs", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(WeakSegmentation, "training_step", stopped)
        assert main([*command, "--toy.strength", "2", "--out", "run"]) == 130
    assert "go on with: ringfence compare synthetic --out run --resume" in capsys.readouterr().err
    del METHODS["toy"]  # another process
    assert main(["compare", "synthetic", "--out", "run", "--resume"]) == 0
    assert len(epochs(place / "run/seed-0/toy/metrics.csv")) == 2
    del METHODS["toy"]
    assert main(["report", "run"]) == 0
    assert "| toy |" in (place / "run/table.md").read_text()


def test_a_method_trains_one_model_and_is_in_the_help(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "toy_c.py").write_text(TOY_METHOD)
    make_prepared(place / "set", cases=3)
    with pytest.raises(SystemExit):
        main(["train", "--method", "toy_c.Toy", "--help"])
    page = capsys.readouterr().out
    assert "Toy method: a penalty by another name" in page
    assert "--toy.strength X" in page
    (place / "mine.yaml").write_text(
        "method: toy_c.Toy\ntoy: {strength: 0.5, weights: {strips: 8.0}}\n"
        f"network: {{class_path: torch.nn.Conv2d, init_args: {CONV}}}\ntraining: {{epochs: 1, device: cpu}}\n"
    )
    assert main(["train", "mine.yaml", "--data.prepared", "set", "--out", "run"]) == 0
    assert read_model(place / "run/model.safetensors")[1].method == "toy"
    assert yaml.safe_load((place / "run/config.yaml").read_text())["toy"]["strength"] == 0.5
    capsys.readouterr()
    assert main(["train", "--method", "toy_c.Toi", "--data.prepared", "set"]) == 2
    assert "method: toy_c has no 'Toi'; did you mean 'Toy'?" in capsys.readouterr().err
    assert main(["train", "--method", "toy_c.Toy", "--toy.strenght", "2", "--data.prepared", "set"]) == 2
    assert "there is no option 'toy.strenght'; did you mean 'toy.strength'?" in capsys.readouterr().err


# A constraint


@pytest.mark.parametrize("installed", [False, True])
def test_a_constraint_by_its_class_path(
    installed: bool, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the current folder, where a command finds it, and where Python does: its settings are plain either way."""
    module = f"toy_constraints_{installed}"
    (place / f"{module}.py").write_text(TOY_CONSTRAINT)
    if installed:
        monkeypatch.syspath_prepend(str(place))
    make_prepared(place / "set", cases=3)
    own = {"class_path": f"{module}.Small", "init_args": {"most": 30.0}}
    content = {
        "constraints": {"outside": {}, "small": own},
        "network": {"class_path": "torch.nn.Conv2d", "init_args": CONV},
        "training": {"epochs": 1, "device": "cpu"},
        "log_barrier": {"weights": {"small": 2.0}},
    }
    (place / "mine.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "mine.yaml", "--data.prepared", "set", "--out", "run"]) == 0
    assert "satisfaction/small" in epochs(place / "run/metrics.csv")[0]
    assert yaml.safe_load((place / "run/config.yaml").read_text())["constraints"]["small"] == own
    assert main(["train", "--out", "run", "--resume"]) == 0
    capsys.readouterr()
    assert main(["train", "mine.yaml", "--data.prepared", "set", "--constraints.small.init_args.mots", "3"]) == 2
    assert "constraints.small.mots: there is no such setting; did you mean 'most'?" in capsys.readouterr().err


def test_a_constraint_as_an_object_is_the_same(place: Path) -> None:
    (place / "toy_objects.py").write_text(TOY_CONSTRAINT)
    make_prepared(place / "set", cases=3)
    by_path = {"class_path": "toy_objects.Small", "init_args": {"most": 30.0}}
    (small,) = make_constraints({"small": by_path}).values()
    histories = []
    for name, one in (("object", small), ("path", by_path)):
        asked = settings(place / "set", constraints={"small": one, "outside": {}})
        trained = train(asked, place / name, console=QUIET)
        histories.append([{k: v for k, v in row.items() if "seconds" not in k} for row in trained.history])
        assert yaml.safe_load((place / name / "config.yaml").read_text())["constraints"]["small"] == by_path
    assert str(histories[0]) == str(histories[1])
    train(
        settings(place / "set", constraints={"small": small, "outside": {}}),
        place / "object",
        resume=True,
        console=QUIET,
    )


# A layout of data sets


def test_a_layout_is_prepared_and_trained_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "toy_layout.py").write_text(TOY_LAYOUT)
    random = np.random.default_rng(0)
    for name in ("p0", "p1", "p2"):
        (place / "src" / name).mkdir(parents=True)
        label = np.zeros((16, 16, 3), np.uint8)
        label[4:10, 5:12, 1] = 1
        image = (100 * label + random.normal(0, 10, label.shape)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(image, np.eye(4)), place / "src" / name / "ct.nii")
        nibabel.save(nibabel.Nifti1Image(label, np.eye(4)), place / "src" / name / "label.nii")
    with pytest.raises(SystemExit):
        main(["prepare", "toy_layout.TOY", "--help"])
    assert "--suffix VALUE" in capsys.readouterr().out
    assert main(["prepare", "toy_layout.TOY", "src", "set", "--suffix", "ct"]) == 0
    prepared = read_prepared(place / "set")
    assert (prepared.name, prepared.size, prepared.classes) == ("Toys", (16, 16), ("toy",))
    assert [case.name for case in prepared.of("validation")] == ["p2"]
    assert train(settings(place / "set"), place / "run", console=QUIET).model_file.exists()


# A measure


class Boldness(MeanMetric):
    """The mean fraction of an image that is called foreground."""

    def update(self, logits: Tensor, batch: dict[str, Tensor]) -> None:
        super().update((logits.argmax(dim=1) > 0).float().mean())


def test_a_measure_is_computed_kept_and_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bold = measures.Measure("boldness", "how bold", lambda value: f"{100 * value:.0f} of 100", Boldness)
    monkeypatch.setitem(measures.MEASURES, "boldness", bold)
    small = from_preset(SyntheticSettings, "synthetic-small")
    asked = replace(
        small,
        methods=["penalty"],
        data=replace(small.data, size=24, train=6, validation=4),
        network=NetworkSettings("torch.nn.Conv2d", CONV),
        training=replace(small.training, epochs=1, device="cpu"),
    )
    folder = compare(asked, place / "run", console=QUIET).path
    value = float(epochs(folder / "seed-0/penalty/metrics.csv")[0]["boldness"])
    assert 0.0 <= value <= 1.0
    kept = load_file(folder / "seed-0/penalty" / PICTURES_FILE)  # all four images
    assert value == pytest.approx(float((kept["predicted"] > 0).float().mean()), rel=1e-5)
    comparison = read_comparison(folder)
    assert comparison.rows()[0].measures["boldness"] == pytest.approx(value)
    text = table_markdown(comparison)
    assert "| how bold | epoch time |" in text
    assert f"| {100 * value:.0f} of 100 |" in text


# An optimiser, a schedule, a network


def test_an_optimiser_and_a_schedule_by_their_class_paths(place: Path) -> None:
    (place / "toy_optimisers.py").write_text(TOY_OPTIMISER)
    make_prepared(place / "set", cases=3)
    asked = settings(
        place / "set",
        optimiser=OptimiserSettings("toy_optimisers.SignDescent", {}),
        schedule=ScheduleSettings("toy_optimisers.Halved", {}),
    )
    rates = [row["lr"] for row in train(asked, place / "run", console=QUIET).history]
    assert rates == pytest.approx([0.002, 0.001])
    (place / "one.yaml").write_text(f"network: {{class_path: torch.nn.Conv2d, init_args: {CONV}}}\n")
    command = ["train", "one.yaml", "--data.prepared", "set", "--training.epochs", "1", "--training.device", "cpu"]
    named = ["--optimiser.class_path", "torch.optim.SGD", "--optimiser.init_args.momentum", "0.9"]
    none = ["--schedule.class_path", "null"]
    assert main([*command, *named, *none, "--out", "sgd"]) == 0
    stored = yaml.safe_load((place / "sgd/config.yaml").read_text())
    assert stored["optimiser"] == {"class_path": "torch.optim.SGD", "init_args": {"momentum": 0.9}}
    assert stored["schedule"]["class_path"] is None


def test_a_network_is_trained_saved_and_used_when_trusted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "toy_networks.py").write_text(TOY_NETWORK)
    make_prepared(place / "set", cases=3)
    command = [
        "train",
        "--data.prepared",
        "set",
        "--training.epochs",
        "1",
        "--training.device",
        "cpu",
        "--out",
        "run",
    ]
    assert main([*command, "--network.class_path", "toy_networks.Twice", "--network.init_args.width", "3"]) == 0
    assert (
        "Next: ringfence predict run/model.safetensors IMAGES OUT --trust toy_networks.Twice"
        in capsys.readouterr().out
    )
    scan = np.random.default_rng(0).normal(size=(20, 24, 3)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(scan, np.eye(4)), place / "scan.nii")
    assert main(["predict", "run/model.safetensors", "scan.nii", "masks"]) == 2
    assert "say so with --trust toy_networks.Twice" in capsys.readouterr().err
    assert main(["predict", "run/model.safetensors", "scan.nii", "masks", "--trust", "toy_networks.Twice"]) == 0
    assert nibabel.load(place / "masks/scan.nii").shape == (20, 24, 3)
