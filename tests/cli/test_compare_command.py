"""`ringfence compare` and `ringfence report`: help without torch, YAML both ways, mistakes answered by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from children import python
from ringfence.cli import main
from ringfence.weak import SyntheticSettings, from_preset
from ringfence.weak.experiments.parsing import as_config

TINY = """\
methods: [penalty, full_supervision]
data: {size: 24, train: 8, validation: 4}
network:
  class_path: torch.nn.Conv2d
  init_args: {in_channels: 1, out_channels: 2, kernel_size: 5, padding: 2}
training: {epochs: 2, batch_size: 4, device: cpu}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return file


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["compare", "synthetic", "--help"], ["report", "--help"], ["compare", "synthetic", "--preset", "synthetic-paper", "--print_config"]])  # fmt: skip
def test_help_and_config_need_no_torch(arguments: list[str]) -> None:
    code = f"import sys\nfrom ringfence.cli import main\ntry:\n    main({arguments})\nfinally:\n    assert 'torch' not in sys.modules"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", "synthetic", "--help"])
    assert stop.value.code == 0
    page = " ".join(capsys.readouterr().out.split())
    for option in (
        "--config",
        "--print_config",
        "--preset synthetic-small|synthetic-paper",
        "--out FOLDER",
        "--resume",
        "--seeds N",
        "--log_barrier.t X",
        "--network.class_path",
    ):
        assert option in page, option
    assert "(default: 64)" in page


@pytest.mark.parametrize("preset", ["synthetic-small", "synthetic-paper"])
def test_a_printed_config_reads_back_as_itself(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> dict:
        with pytest.raises(SystemExit):
            main(["compare", "synthetic", *arguments, "--print_config"])
        return yaml.safe_load(capsys.readouterr().out)

    first, expected = printed("--preset", preset), as_config(from_preset(SyntheticSettings, preset))
    assert {name: first[name] for name in expected} == expected
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(first))
    assert printed("--config", str(tmp_path / "c.yaml")) == first
    (tmp_path / "c.yaml").write_text(f"preset: {preset}\nlog_barrier: {{t: 7.0}}\n")
    assert printed("--config", str(tmp_path / "c.yaml"))["data"] == first["data"]
    assert printed("--config", str(tmp_path / "c.yaml"))["log_barrier"]["t"] == 7.0
    assert (
        printed("--config", str(tmp_path / "c.yaml"), "--log_barrier.t", "8")["log_barrier"]["t"] == 8.0
    )  # the later wins


def test_the_preset_may_stand_in_any_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("preset: synthetic-paper\n")
    (tmp_path / "b.yaml").write_text("log_barrier: {t: 2.0}\n")
    files = ["--config", str(tmp_path / "a.yaml"), "--config", str(tmp_path / "b.yaml")]
    with pytest.raises(SystemExit):
        main(["compare", "synthetic", *files, "--print_config"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["preset"], printed["data"]["size"], printed["log_barrier"]["t"]) == (
        "synthetic-paper",
        256,
        2.0,
    )


def test_another_network_begins_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(
            [
                "compare",
                "synthetic",
                "--network.class_path",
                "a.B",
                "--network.init_args.in_channels",
                "1",
                "--print_config",
            ]
        )
    assert yaml.safe_load(capsys.readouterr().out)["network"] == {
        "class_path": "a.B",
        "init_args": {"in_channels": 1},
    }


def test_a_run_its_report_and_its_resumption(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["compare", "synthetic", "--config", str(config), "--out", str(out), "--seeds", "3", "4"]) == 0
    printed = capsys.readouterr()
    assert "Penalty" in printed.out
    assert "0.712 (0.022)" in printed.out  # the paper's number beside ours
    for name in ("table.csv", "table.md", "curves.png", "pictures.png", "barrier.png"):
        assert str(out / name) in printed.out
        assert (out / name).stat().st_size > 100
    assert (out / "seed-4" / "penalty" / "metrics.csv").exists()

    assert main(["compare", "synthetic", "--config", str(config), "--out", str(out)]) == 2
    assert "already holds another run" in capsys.readouterr().err
    assert (
        main(["compare", "synthetic", "--out", str(out), "--resume"]) == 0
    )  # nothing left to do, the report again
    assert main(["compare", "synthetic", "--out", str(out), "--resume", "--training.epochs", "9"]) == 2
    assert (
        "has finished its 2 epochs, and cannot go on to 9: its checkpoint was not kept" in capsys.readouterr().err
    )
    assert main(["compare", "synthetic", "--out", str(out), "--resume", "--training.epochs", "1"]) == 2
    assert "training.epochs: was 2, now 1" in capsys.readouterr().err

    more = ["--resume", "--methods", "log_barrier", "--seeds", "5"]
    assert main(["compare", "synthetic", "--out", str(out), *more]) == 0
    assert [file.parent.name for file in out.glob("seed-5/*/metrics.csv")] == ["log_barrier"]
    assert "Log-barrier extension (1 of 3 seeds)" in (out / "table.md").read_text()

    assert main(["report", str(out), "--out", str(tmp_path / "elsewhere"), "--pictures", "1"]) == 0
    assert (tmp_path / "elsewhere" / "table.md").read_text() == (out / "table.md").read_text()


def test_another_network_does_not_inherit_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Net(nn.Conv2d):\n    def __init__(self):\n        super().__init__(1, 2, 3, padding=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = [
        "--data.size",
        "16",
        "--data.train",
        "4",
        "--data.validation",
        "2",
        "--training.epochs",
        "1",
        "--methods",
        "penalty",
    ]
    assert main(["compare", "synthetic", "--network.class_path", "mine.Net", "--out", "run", *options]) == 0
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["network"] == {
        "class_path": "mine.Net",
        "init_args": {},
    }


def test_without_out_the_run_goes_to_a_new_folder(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "synthetic", "--config", str(config)]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("synthetic-")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "which task? `ringfence compare synthetic`"),
        (["compare", "sintetic"], "there is no task 'sintetic'; did you mean 'synthetic'?"),
        (["compare", "synthetic", "--preset", "huge"], "there is no preset 'huge'; There are: boxes, boxes-small"),
        (["compare", "synthetic", "--preset", "synthetic"], "there is no preset 'synthetic'; did you mean 'synthetic-"),
        (["compare", "synthetic", "--preset", "boxes"], "preset 'boxes' is not for ringfence compare synthetic; these are: synthetic-small, synthetic-paper"),
        (["compare", "synthetic", "--scale", "paper"], "there is no option 'scale' any more: scales are presets, as in --preset synthetic-paper"),
        (["compare", "synthetic", "--trainig.lr", "1"], "there is no option 'trainig.lr'; did you mean 'training.lr'?"),
        (["compare", "synthetic", "--lr", "1"], "there is no option 'lr'; did you mean 'training.lr'?"),
        (["compare", "synthetic", "--training.lr", "fast"], "training.lr: expected float. Got value: fast"),
        (["compare", "synthetic", "--training.epochs", "2.5"], "training.epochs: expected int or null. Got value: 2.5"),
        (["compare", "synthetic", "--training.batch_size", "2.5"], "training.batch_size: expected int. Got value: 2.5"),
        (["compare", "synthetic", "--log_barrier.unit", "cm"], "log_barrier.unit: expected one of pixels, relative, odds. Got value: cm"),
        (["compare", "synthetic", "--prest", "paper"], "there is no option 'prest'; did you mean 'preset'?"),
        (["compare", "synthetic", "--log-barrier.t", "5"], "there is no option 'log-barrier.t'; did you mean 'log_barrier.t'?"),
        (["compare", "synthetic", "--constraints.size.slack", "1"], "there is no option 'constraints.size': the task's are its own"),
        (["compare", "synthetic", "--out", ""], "--out needs the name of a folder"),
        (["compare", "synthetic", "--resume"], "--resume needs --out FOLDER: which run should go on?"),
        (["compare", "synthetic", "--config", "/nowhere.yaml"], "--config /nowhere.yaml: No such file or directory"),
        (["compare", "synthetic", "--out", "/nowhere/x", "--resume"], "/nowhere/x holds no run (there is no config.yaml in it)"),
        (["compare", "synthetic", "--methods", "barier"], "there is no method 'barier'; did you mean 'log_barrier'"),
        (["report", "/nowhere"], "/nowhere holds no comparison: there is no seed-*/METHOD/metrics.csv in it"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert error.startswith(f"ringfence {arguments[0]}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainig: {lr: 1}\n", "there is no option 'trainig.lr'; did you mean 'training.lr'?"),
        ("training: {ephocs: 1}\n", "there is no option 'training.ephocs'; did you mean 'training.epochs'?"),
        ("refine: 1\n", "there is no option 'refine' here: `ringfence train` alone refines; leave it out"),
        ("sedes: [1]\n", "there is no option 'sedes'; did you mean 'seeds'?"),
        ("seeds: one\n", "seeds:"),
        ("seeds: 3\n", "methods, seeds, data.patch and augment.flip must be lists: write [it]"),
        ("training:\n", "the file of --config holds no settings: a name with nothing below it"),
        ("data: 5\n", "data has settings of its own, as in data.size; got 5"),
        ("training: {compile: null}\n", "training.compile must have a value; leave the line out for the default"),
        ("training: {schedule: cosine}\n", "there is no option 'training.schedule'"),
        ("a: [1\n", "is not YAML"),
    ],
)
def test_a_mistake_in_a_config_gets_one_message(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert main(["compare", "synthetic", "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["comprae"])
    assert stop.value.code == 2
    assert "no command 'comprae'; did you mean 'compare'?" in capsys.readouterr().err
