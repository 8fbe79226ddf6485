"""`ringfence train` and `ringfence compare promise12`: help without torch, YAML both ways, mistakes, Ctrl-C."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from children import python
from prepared_sets import make_prepared
from ringfence.cli import main, train
from ringfence.weak import BoxCompareSettings, TrainSettings, WeakSegmentation, from_preset
from ringfence.weak.constraints.registry import kinds, settings_of
from ringfence.weak.experiments.parsing import as_config

COMMANDS = {
    "train": from_preset(TrainSettings, "boxes"),
    "compare promise12": from_preset(BoxCompareSettings, "promise12"),
    "compare boxes": from_preset(BoxCompareSettings, "boxes"),
}
CONFIG = """\
network:
  class_path: torch.nn.Conv2d
  init_args: {kernel_size: 5, padding: 2}
training: {epochs: 3, batch_size: 4, device: cpu}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a prepared set and a config."""
    make_prepared(tmp_path / "set", cases=3)
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments", ["train --print_config", "train boxes-small --print_config", "compare boxes --print_config"])  # fmt: skip
def test_a_config_needs_no_torch(arguments: str) -> None:
    code = f"import sys\nfrom ringfence.cli import main\ntry:\n    main({arguments.split()})\nfinally:\n    assert 'torch' not in sys.modules"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_explains_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    page = " ".join(capsys.readouterr().out.split())
    config = "[PREPARED | CONFIG] " if command == "train" else ""
    assert f"usage: ringfence {command} {config}[options]" in page
    for group, values in as_config(COMMANDS[command]).items():
        for name in values if isinstance(values, dict) and group != "constraints" else [None]:
            assert f"--{group}.{name} " in page if name else f"--{group} " in page, (group, name)
    for option in ("--config", "--out FOLDER", "--resume"):
        assert option in page
    for kind, one in kinds().items():
        assert re.search(rf"\b{kind}\b", page[page.index("Constraints and their settings") :]), kind
        assert all(setting in page for setting in settings_of(one)), kind


def printed_constraints(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        main(["train", *arguments, "--print_config"])
    return yaml.safe_load(capsys.readouterr().out)["constraints"]


def test_constraints_are_changed_added_and_left_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in what --print_config shows, wherever they stand on the line."""
    begun = {"strips": {"width": 5}, "outside": {}, "box_size": {}}
    assert printed_constraints(capsys) == begun
    changed = printed_constraints(capsys, "--constraints.strips.width", "3", "--constraints.compactness={}")
    assert changed == begun | {"strips": {"width": 3}, "compactness": {}}
    assert printed_constraints(capsys, "--constraints.box_size", "null") == {"strips": {"width": 5}, "outside": {}}
    own = ["--constraints.mine.class_path=a.B", "--constraints.mine.init_args.most=3", "--constraints.mine.init_args.least=1"]  # fmt: skip
    assert printed_constraints(capsys, *own)["mine"] == {"class_path": "a.B", "init_args": {"most": 3, "least": 1}}
    (place / "tiny.yaml").write_text(
        "constraints: {size: {slack: 0.2}, mine: {class_path: a.B, init_args: {a: 1}}}"
    )
    assert printed_constraints(capsys, "tiny.yaml").keys() == {"size", "mine"}
    changed = printed_constraints(
        capsys, "tiny.yaml", "--constraints.mine.init_args.b=2", "--constraints.outside={}"
    )
    assert changed == {
        "size": {"slack": 0.2},
        "mine": {"class_path": "a.B", "init_args": {"a": 1, "b": 2}},
        "outside": {},
    }
    alone = ["--constraints", "{strips: {}}", "--constraints.strips.width", "2"]
    assert printed_constraints(capsys, *alone) == {"strips": {"width": 2}}


@pytest.mark.parametrize("name", ["absent", "edges", "box_size"])
def test_what_only_a_plan_has_can_be_left_out_of_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_prepared(tmp_path / "set")
    asked = ["--data.prepared", str(tmp_path / "set"), "--training.device", "cpu"]
    planned = printed_constraints(capsys, *asked)
    assert planned.keys() == {"strips", "outside", "box_size", "edges", "absent"}
    assert printed_constraints(capsys, *asked, f"--constraints.{name}", "null").keys() == planned.keys() - {name}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_config_reads_back_as_itself(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> Any:
        with pytest.raises(SystemExit):
            main([*command.split(), *arguments, "--print_config"])
        return yaml.safe_load(capsys.readouterr().out)

    file = tmp_path / "c.yaml"
    first, expected = printed(), as_config(COMMANDS[command])
    assert {name: first[name] for name in expected} == expected
    changed = printed("--data.prepared", "p", "--data.patch", "8", "16", "16", "--penalty.strength", "0.2")
    file.write_text(yaml.safe_dump(changed))
    assert changed["data"]["patch"] == [8, 16, 16]
    assert printed("--config", str(file)) == changed
    assert printed("--config", str(file), "--data.prepared", "q")["data"]["prepared"] == "q"  # the later wins
    if command == "train":
        assert printed(str(file)) == changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train", "train on what? `ringfence train PREPARED`, the folder that `ringfence prepare` wrote"),
        ("train --training.epochs 1", "data.prepared: which prepared set? Name the folder that `ringfence prepare` wrote"),
        ("train --data.prepared nowhere", "nowhere is not a prepared set: there is no manifest.json in it. Make one with `ringfence prepare"),
        ("train --data.prepard set", "there is no option 'data.prepard'; did you mean 'data.prepared'?"),
        ("train --prepared set", "there is no option 'prepared'; did you mean 'data.prepared'?"),
        ("train --methods penalty", "there is no option 'methods'; did you mean 'method'?"),
        ("train --data.prepared set --method barrier", "there is no method 'barrier'; did you mean 'log_barrier'?"),
        ("train nowhere.yaml", "--config nowhere.yaml: No such file or directory"),
        ("train tiny.yaml --data.prepared set --data.boxes nowhere.csv", "nowhere.csv does not exist; a file with boxes is needed"),
        ("train tiny.yaml --data.prepared set --data.patch 8 8", "data.patch is three numbers: slices, rows and columns; got [8, 8]"),
        ("train tiny.yaml --data.prepared set --data.patch 8 99 8", "data.patch is slices, rows and columns of a patch, at most [32, 48, 40]"),
        ("train tiny.yaml --data.prepared set --data.margin -1", "data.margin must be a whole number, at least 0, got -1"),
        ("train tiny.yaml --data.prepared set --constraints.strips.width 0", "constraints.strips.width must be a whole number, at least 1, got 0"),
        ("train tiny.yaml --data.prepared set --constraints.stripes {}", "constraints: there is no kind 'stripes'; did you mean 'strips'?"),
        ("train tiny.yaml --data.prepared set --constraints.strips 5", "--constraints.strips: settings such as '{width: 3}', {} or null; got 5"),
        ("train tiny.yaml --data.prepared set --constraints.strips {", "--constraints.strips is not YAML: while parsing a flow node expected the node content"),
        ("train tiny.yaml --data.prepared set --constraints.strips", "--constraints.strips needs a value, such as 3, {} or null"),
        ("train tiny.yaml --data.prepared set --constraints.strips --seed 1", "--constraints.strips needs a value, such as 3, {} or null"),
        ("train tiny.yaml --data.prepared set --constraints.boxsize null", "--constraints.boxsize: there is none to leave out; did you mean 'box_size'?"),
        ("train tiny.yaml --data.prepared set --constraints.strips.width", "--constraints.strips.width needs a value"),
        ("train --limits.strip_width 3", "there is no option 'limits.strip_width' any more: limits are constraints, as in --constraints.strips.width 5"),
        ("train tiny.yaml --data.prepared set --log_barrier.weights.stripes 2", "log_barrier.weights: there is no constraint 'stripes'; there are: strips, outside, box_size"),
        ("train tiny.yaml --data.prepared set --log_barrier.most_odds.outsid 2", "log_barrier.most_odds: there is no constraint 'outsid'; there are: strips, outside, box_size"),
        ("train tiny.yaml --data.prepared set --log_barrier.most_odds.outside 0", "log_barrier: most_odds.outside must be positive and finite, got most_odds.outside=0"),
        ("train tiny.yaml --data.prepared set --log_barrier.t 0", "log_barrier: t must be positive and finite, got t=0.0"),
        ("train tiny.yaml --data.prepared set --optimiser.class_path torch.optim.Adm", "optimiser.class_path: torch.optim has no 'Adm'; did you mean 'Adam'?"),
        ("train boxes-smal --data.prepared set", "there is no preset 'boxes-smal'; did you mean 'boxes-small'?"),
        ("train .", ". is not a prepared set: there is no manifest.json in it"),
        ("train --preset synthetic-small", "preset 'synthetic-small' is not for ringfence train; these are: plan, boxes, boxes-small"),
        ("train --resume", "--resume needs --out FOLDER: which run should go on?"),
        ("train --out nowhere --resume", "nowhere holds no run (there is no config.yaml in it)"),
        ("compare promise12", "data.prepared: which prepared set?"),
        ("compare promise12 --data.prepared nowhere", "nowhere is not a prepared set"),
        ("compare promise12 --data.prepared set --methods barier", "there is no method 'barier'; did you mean 'log_barrier'?"),
        ("compare promis12", "there is no task 'promis12'; did you mean 'promise12'?"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_message_and_no_folder(
    arguments: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    text = capsys.readouterr()
    assert message in text.err
    assert text.err.count("\n") == 1
    assert text.err.startswith(f"ringfence {arguments.split()[0]}: ")
    assert text.out == ""
    assert {file.name for file in place.iterdir()} == {"set", "tiny.yaml"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits: {strip_width: 3}\n", "there is no option 'limits.strip_width' any more: limits are constraints"),
        (
            "constraints: {strips: {widht: 3}}\ndata: {prepared: set}\n",
            "constraints.strips.widht: there is no such setting; did you mean 'width'?",
        ),
        ("constraints: strips\n", "constraints"),
        ("augment: {rotate: 0.1}\n", "there is no option 'augment.rotate'"),
        ("data: set\n", "data has settings of its own, as in data.prepared; got set"),
        ("data: {patch: 8}\n", "data.patch and augment.flip must be lists"),
        ("augment: {flip: left-right}\n", "data.patch and augment.flip must be lists"),
        ("augment: {flip: [sideways]}\n", "augment.flip: images can be flipped along left-right, up-down, slices"),
        ("augment: {flip: [up-down, up-down]}\n", "augment.flip: each axis to flip along once"),
        ("augment: {bias: -1}\n", "augment.bias is a fraction from 0 to below 1, got -1"),
        ("full_supervision: {dice: -1}\n", "full_supervision: dice must be finite and not negative, got -1"),
        ("data: [1\n", "is not YAML"),
    ],
)
def test_a_mistake_in_a_config_gets_one_message(
    text: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "tiny.yaml").write_text(text)
    assert main(["train", "tiny.yaml", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (place / "run").exists()


def test_another_run_is_left_as_it_was(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other").mkdir()
    (place / "other" / "mine.txt").write_text("mine")
    (place / "run").mkdir()
    (place / "run" / "config.yaml").write_text("seed: 1\n")
    command = ["train", "tiny.yaml", "--data.prepared", "set", "--out"]
    assert main([*command, "other"]) == 2
    assert "other already holds other files: name a new folder with --out. Nothing was changed" in capsys.readouterr().err  # fmt: skip
    assert main([*command, "run"]) == 2
    assert "run already holds another run: go on with it by --resume, or name a new folder" in capsys.readouterr().err  # fmt: skip
    assert [file.name for file in (place / "other").iterdir()] == ["mine.txt"]
    assert [file.name for file in (place / "run").iterdir()] == ["config.yaml"]


def test_after_ctrl_c_the_command_it_names_ends_with_the_same_numbers(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def metrics(run: str) -> list[list[str]]:
        return [line.split(",")[:-2] for line in (place / run / "metrics.csv").read_text().splitlines()]

    command = ["train", "tiny.yaml", "--data.prepared", "set", "--out"]
    assert main([*command, "whole"]) == 0
    assert re.search(r"^The model is whole/model.safetensors; .*\nNext: ringfence predict whole/model.safetensors IMAGES OUT$", capsys.readouterr().out, re.MULTILINE)  # fmt: skip

    training_step = WeakSegmentation.training_step

    def stopped(module: WeakSegmentation, *arguments: Any) -> Any:
        if module.current_epoch == 2:
            raise KeyboardInterrupt
        return training_step(module, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(WeakSegmentation, "training_step", stopped)
        assert main([*command, "stopped"]) == 130
    error = capsys.readouterr().err
    found = re.search(r"stopped\. Every finished epoch is kept; go on with: ringfence (.*)\n", error)
    assert found is not None, error
    assert not (place / "stopped" / "model.safetensors").exists()
    assert len(metrics("stopped")) == 3

    assert main([*shlex.split(found[1]), "--training.epochs", "2"]) == 2
    assert "training.epochs: was 3, now 2" in capsys.readouterr().err
    assert main(shlex.split(found[1])) == 0
    assert (place / "stopped" / "model.safetensors").exists()
    assert metrics("stopped") == metrics("whole")


def test_without_out_the_run_goes_to_a_new_folder(place: Path) -> None:
    assert main(["train", "tiny.yaml", "--data.prepared=set", "--training.epochs=1"]) == 0
    (folder,) = (place / "runs").iterdir()
    assert folder.name.startswith("train-")
    assert yaml.safe_load((folder / "config.yaml").read_text())["data"]["prepared"] == "set"


def test_a_manifest_names_its_folder_and_resume_can_be_false(place: Path) -> None:
    arguments = "train tiny.yaml --data.prepared set/manifest.json --out run --resume false"
    assert main(arguments.split()) == 0
    assert (place / "run" / "model.safetensors").exists()


def test_a_folder_is_the_set_and_a_preset_is_no_folder(place: Path) -> None:
    """`ringfence train SET` needs no option; a folder that is called as a preset is a set only if it is one."""
    assert main(["train", "set", "--config", "tiny.yaml", "--training.epochs=1", "--out", "run"]) == 0
    assert yaml.safe_load((place / "run" / "config.yaml").read_text())["data"]["prepared"] == "set"
    made = {
        "set": ["--data.prepared", "set"],
        "set/manifest.json": ["--data.prepared", "set"],
        "sets/mine": ["--data.prepared", "sets/mine"],
        "tiny.yaml": ["--config", "tiny.yaml"],
        "configs/new.yaml": ["--config", "configs/new.yaml"],
        "promise12": ["--preset", "promise12"],
        "boxs": ["--preset", "boxs"],
    }
    assert {word: train._meant(word, []) for word in made} == made
    make_prepared(place / "promise12", cases=2)
    assert train._meant("promise12", []) == ["--data.prepared", "promise12"]
    assert train._meant("promise12", ["--data.prepared=set"]) == ["--preset", "promise12"]
