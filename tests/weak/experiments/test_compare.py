"""The comparison, end to end at tiny size: measured, kept, resumable, and without a labelled pixel."""

from __future__ import annotations

import csv
import json
import re
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import children
from ringfence import files
from ringfence.cli import main
from ringfence.segmentation import Region
from ringfence.weak import (
    NetworkSettings,
    OptimiserSettings,
    ScheduleSettings,
    SyntheticSettings,
    compare,
    from_preset,
)
from ringfence.weak.experiments import compare as comparing
from ringfence.weak.experiments import one_training
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.task import Task
from ringfence.weak.training import fit as training
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import PICTURES_FILE, OneRun

QUIET = Console(quiet=True)
SMALL = from_preset(SyntheticSettings, "synthetic-small")
TINY_NETWORK = NetworkSettings(
    "torch.nn.Conv2d", {"in_channels": 1, "out_channels": 2, "kernel_size": 5, "padding": 2}
)


def tiny(**changes: object) -> SyntheticSettings:
    settings = replace(
        SMALL,
        data=replace(SMALL.data, size=24, train=10, validation=5),
        network=TINY_NETWORK,
        training=replace(SMALL.training, epochs=3, batch_size=4, device="cpu"),
    )
    return replace(settings, **changes)


def heeding_ctrl_c() -> None:
    """What is started in the background of a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def rows(folder: Path, method: str, seed: int = 0) -> list[dict[str, str]]:
    with (folder / f"seed-{seed}" / method / "metrics.csv").open() as lines:
        return list(csv.DictReader(lines))


def untimed(epochs: list[dict[str, str]]) -> list[dict[str, str]]:
    """What an epoch that is computed again has again; what it took is another time's."""
    return [{name: value for name, value in row.items() if not name.startswith("seconds_")} for row in epochs]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compare(tiny(), tmp_path_factory.mktemp("compare") / "run", console=QUIET).path


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured_in_every_epoch(finished: Path, method: str) -> None:
    epochs = rows(finished, method)
    assert [row["epoch"] for row in epochs] == ["1", "2", "3"]
    for row in epochs:
        for measure in (
            "dice",
            "train_loss",
            "satisfaction",
            "satisfaction/size",
            "satisfaction/centroid",
            "worst",
            "lr",
        ):
            assert row[measure] != "", measure
        assert float(row["seconds_train"]) > 0.0
        assert 0.0 <= float(row["satisfaction"]) <= 1.0
    assert epochs[0]["stability"] == ""  # there is nothing before the first epoch
    assert all(row["stability"] for row in epochs[1:])
    if method != "full_supervision":
        assert all(float(row["mean_multiplier/size"]) >= 0.0 for row in epochs)


def test_schedules_follow_the_epochs(finished: Path) -> None:
    settings = tiny()
    epochs = rows(finished, "log_barrier")
    assert [float(row["t"]) for row in epochs] == pytest.approx([1.0, 1.1, 1.21])
    assert [float(row["temperature"]) for row in epochs] == pytest.approx([1.0, 0.1**0.5, 0.1], rel=1e-4)
    cosine = [settings.training.lr * fraction for fraction in (1.0, 0.75, 0.25)]  # (1 + cos(π e/3)) / 2
    assert [float(row["lr"]) for row in epochs] == pytest.approx(cosine)


def test_a_finished_run_keeps_weights_and_pictures_that_load_safely(finished: Path) -> None:
    folder = finished / "seed-0" / "log_barrier"
    assert sorted(path.name for path in folder.iterdir()) == [
        "metrics.csv",
        "model.safetensors",
        PICTURES_FILE,
        "result.json",
    ]
    kept = load_file(folder / PICTURES_FILE)
    task = disc_task(tiny().data, 0)
    assert torch.equal(kept["image"], task.validation["image"][:, 0])
    module = training.make_module(tiny(), task, "log_barrier", 0)
    module.network.load_state_dict(read_model(folder / "model.safetensors")[0].state_dict())
    predicted = module.eval()(task.validation["image"]).argmax(dim=1)
    assert torch.equal(predicted.to(torch.uint8), kept["predicted"])
    assert json.loads((folder / "result.json").read_text())["epochs"] == 3


@pytest.mark.parametrize("method", [method for method in METHODS if method != "full_supervision"])
def test_no_labelled_pixel_is_used(tmp_path: Path, method: str) -> None:
    """Training masks that are noise, with the bounds of the true ones, give the very same network."""

    def weights(task: Task, name: str) -> dict[str, torch.Tensor]:
        with ProgressBars(QUIET, 1, 3) as bars:
            one_training.train_one(tiny(), task, method, 0, OneRun(tmp_path / name), bars)
        return read_model(tmp_path / name / "model.safetensors")[0].state_dict()

    task = disc_task(tiny().data, 0)
    noise = replace(task, train=task.train | {"mask": torch.rand(task.train["mask"].shape) < 0.5})
    before, after = weights(task, "true"), weights(noise, "noise")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("method", ["lagrangian", "relu_lagrangian", "log_barrier", "full_supervision"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, finished: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(methods=[method, "penalty"])

    class Impatient(ProgressBars):
        def epoch(self, title: str) -> None:
            super().epoch(title)
            seen.append(title)
            if len(seen) == 2:  # in the middle of the second epoch's end, before its checkpoint
                raise KeyboardInterrupt

    seen: list[str] = []
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(comparing, "ProgressBars", Impatient)
        with pytest.raises(KeyboardInterrupt):
            compare(settings, tmp_path / "run", console=QUIET)
    assert signal.getsignal(signal.SIGINT) is handler  # Ctrl-C works again
    assert (tmp_path / "run" / "seed-0" / method / "last.ckpt").exists()
    compare(settings, tmp_path / "run", resume=True, console=QUIET)
    assert untimed(rows(tmp_path / "run", method)) == untimed(rows(finished, method))
    one, other = (
        read_model(folder / "seed-0" / method / "model.safetensors")[0].state_dict()
        for folder in (finished, tmp_path / "run")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert rows(tmp_path / "run", "penalty")


SCHEDULES = "torch.optim.lr_scheduler"


@pytest.mark.parametrize(
    ("optimiser", "schedule"),
    [
        (("torch.optim.SGD", {"momentum": 0.9}), (f"{SCHEDULES}.ExponentialLR", {"gamma": 0.5})),
        (("torch.optim.AdamW", {"amsgrad": True}), (f"{SCHEDULES}.OneCycleLR", {"max_lr": 0.1})),
        (("torch.optim.RMSprop", {"momentum": 0.5}), (None, {})),
    ],
)
def test_an_interrupted_run_goes_on_with_any_optimiser_and_schedule(
    tmp_path: Path, optimiser: tuple, schedule: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(
        methods=["augmented_lagrangian"],
        optimiser=OptimiserSettings(*optimiser),
        schedule=ScheduleSettings(*schedule),
    )
    compare(settings, tmp_path / "whole", console=QUIET)
    epoch = ProgressBars.epoch

    def stopped(bars: ProgressBars, title: str) -> None:
        epoch(bars, title)
        if bars._progress.tasks[1].completed == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBars, "epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            compare(settings, tmp_path / "parts", console=QUIET)
    assert len(rows(tmp_path / "parts", "augmented_lagrangian")) == 2
    compare(settings, tmp_path / "parts", resume=True, console=QUIET)
    both = [untimed(rows(tmp_path / name, "augmented_lagrangian")) for name in ("whole", "parts")]
    assert both[0] == both[1]
    if schedule[0]:
        assert len({row["lr"] for row in both[0]}) == 3
    weights = [
        read_model(tmp_path / name / "seed-0" / "augmented_lagrangian" / "model.safetensors")[0].state_dict()
        for name in ("whole", "parts")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, file = training.WholeCheckpoints(), tmp_path / "last.ckpt"
    keeper.save_checkpoint({"epoch": 1}, file)
    keeper.teardown()

    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupted)
    keeper.save_checkpoint({"epoch": 2}, file)
    with pytest.raises(KeyboardInterrupt):
        keeper.teardown()
    assert torch.load(file, weights_only=True) == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    settings = tiny(methods=["penalty"])
    folder = compare(settings, tmp_path / "run", console=QUIET).path / "seed-0" / "penalty"
    (folder / "result.json").unlink()
    (folder / "last.ckpt").write_bytes(b"junk")
    with pytest.raises(
        ValueError, match=r"last.ckpt is damaged \(.+\): remove it to train this method from its beginning"
    ):
        compare(settings, tmp_path / "run", resume=True, console=QUIET)


def test_validation_is_not_part_of_an_epochs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.WeakSegmentation.validation_step

    def slow(self: object, *args: object) -> None:
        time.sleep(0.5)
        honest(self, *args)

    monkeypatch.setattr(training.WeakSegmentation, "validation_step", slow)
    folder = compare(tiny(methods=["penalty"]), tmp_path / "run", console=QUIET).path
    row = rows(folder, "penalty")[-1]
    assert float(row["seconds_validation"]) >= 0.5
    assert float(row["seconds_train"]) < float(row["seconds_validation"])


def test_the_logged_multipliers_are_the_barriers(finished: Path) -> None:
    """λ of the last epoch, from the formula and the kept weights: per image, whatever the batch."""
    settings, task = tiny(), disc_task(tiny().data, 0)
    module = training.make_module(settings, task, "log_barrier", 0)
    module.network.load_state_dict(
        read_model(finished / "seed-0" / "log_barrier" / "model.safetensors")[0].state_dict()
    )
    with torch.no_grad():
        region = Region(module.eval()(task.validation["image"]))
    row, t = rows(finished, "log_barrier")[-1], 1.1**2
    f = task.measure(settings.method_settings["log_barrier"].unit)(region, task.validation)["size"].f.double()
    expected = torch.where(f <= -1 / t**2, -1 / (t * f), t)
    assert float(row["mean_multiplier/size"]) == pytest.approx(expected.mean().item(), rel=1e-3)
    assert float(row["max_multiplier/size"]) == pytest.approx(expected.max().item(), rel=1e-3)


def test_a_finished_training_is_not_done_again(tmp_path: Path) -> None:
    settings = tiny(methods=["penalty"])
    folder = compare(settings, tmp_path / "run", console=QUIET).path
    files = {path: path.stat().st_mtime_ns for path in (folder / "seed-0").rglob("*") if path.is_file()}
    compare(settings, folder, resume=True, console=QUIET)
    assert files == {path: path.stat().st_mtime_ns for path in (folder / "seed-0").rglob("*") if path.is_file()}


def test_a_seed_has_images_weights_and_an_order_of_its_own(tmp_path: Path) -> None:
    folder = compare(tiny(methods=["penalty"], seeds=[0, 1]), tmp_path / "run", console=QUIET).path
    assert rows(folder, "penalty", 0)[0]["train_loss"] != rows(folder, "penalty", 1)[0]["train_loss"]
    one, other = disc_task(tiny().data, 0), disc_task(tiny().data, 1)
    assert not torch.equal(one.train["image"], other.train["image"])


def test_tensorboard_when_asked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    settings = tiny(methods=["penalty"], training=replace(tiny().training, tensorboard=True))
    folder = compare(settings, tmp_path / "run", console=QUIET).path
    assert list((folder / "seed-0" / "penalty").glob("tensorboard/events.out.tfevents.*"))


@pytest.mark.parametrize(("epochs", "said"), [(3, [1, 2]), (24, [3, 5, 8, 10, 12, 15, 17, 20, 22])])
def test_some_lines_a_training_where_there_is_no_terminal(tmp_path: Path, epochs: int, said: list[int]) -> None:
    settings = tiny(methods=["penalty"], training=replace(tiny().training, epochs=epochs))
    with (tmp_path / "log").open("w") as log:
        compare(settings, tmp_path / "run", console=Console(file=log))
    *between, last = (tmp_path / "log").read_text().splitlines()
    assert [line.partition(", epoch ")[2] for line in between] == [f"{one} of {epochs}" for one in said]
    assert last.startswith("seed 0, penalty")
    assert f"{epochs} epochs in" in last


def test_bars_with_the_time_left_where_there_is_one(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        console = Console(file=log, force_terminal=True, width=120)
        compare(tiny(methods=["penalty", "log_barrier"]), tmp_path / "run", console=console)
    text = (tmp_path / "log").read_text()
    assert "all epochs" in text
    assert "6/6" in text
    assert "seed 0, log barrier: DSC" in text


def test_the_time_left_is_that_of_what_is_left() -> None:
    """Bars move once an epoch, and an epoch may take minutes; what an earlier session did is not this one's pace."""
    clock = [0.0]
    bars = ProgressBars(QUIET, trainings=4, epochs=5)
    bars._progress.get_time = lambda: clock[0]
    bars._progress.start_task(bars._all)
    bars.skip()
    bars.skip()
    bars.begin("third", done=1)
    for _ in range(3):
        clock[0] += 100.0
        bars.epoch("third")
    task = bars._progress.tasks[0]
    assert (task.completed, task.total) == (3, 9)
    assert task.time_remaining == pytest.approx(600.0, rel=0.01)


def change(**values: object) -> SyntheticSettings:
    settings = tiny()
    for name, value in values.items():
        group, _, field = name.partition("__")
        if group in METHODS:
            settings = settings.with_method(group, **{field: value})
        else:
            new = replace(getattr(settings, group), **{field: value}) if field else value
            settings = replace(settings, **{group: new})
    return settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["log_barier"]}, "there is no method 'log_barier'; did you mean 'log_barrier'"),
        ({"methods": []}, r"methods needs at least one, each once; got \[\]"),
        ({"seeds": [1, 1]}, r"seeds needs at least one, each once; got \[1, 1\]"),
        ({"seeds": [-1]}, "seeds must be a whole number, at least 0, got -1"),
        ({"seeds": [2**31]}, r"seeds must be below 2\^31"),
        ({"data__radius": 13.0}, "a disc of radius 13 does not fit an image of 24×24 pixels"),
        ({"data__radius": 0.3}, "a disc of radius 0.3 may lie between pixels: give at least 0.707"),
        ({"data__train": 0}, "data.train must be a whole number, at least 1, got 0"),
        ({"data__size_slack": 1.5}, r"slack is a fraction from 0 to (below )?1, got 1\.5"),
        ({"data__centroid_slack": 0.0}, "data.centroid_slack must be positive and finite, got centroid_slack=0.0"),
        ({"training__epochs": 0}, "training.epochs must be a whole number, at least 1, got 0"),
        ({"training__lr": -1.0}, r"training.lr must be positive and finite, got lr=-1\.0"),
        ({"training__prior": 1.0}, r"training.prior is a fraction from 0 to below 1, got 1\.0"),
        ({"log_barrier__temperature": 0.0}, r"temperature must be positive and finite, got temperature=0\.0"),
        ({"log_barrier__t": -1.0}, r"t must be positive and finite, got t=-1\.0"),
        ({"lagrangian__dual_lr": -1.0}, "lagrangian: dual_lr must be finite and not negative"),
        ({"network__class_path": "torch.nn.Conv9d"}, "network.class_path: torch.nn has no 'Conv9d'; did you mean 'Conv"),
        ({"network": NetworkSettings("monai.networks.nets.BasicUNet", {"spatial_dims": 2}), "data__size": 8, "data__radius": 2.0}, "BasicUNet cannot take images"),
        ({"optimiser__class_path": "torch.optim.Adamm"}, "optimiser.class_path: torch.optim has no 'Adamm'; did you mean 'Adam"),
        ({"schedule__init_args": {"gama": 1}}, "schedule.init_args: .* does not take"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_there_is_a_folder(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        compare(change(**changes), tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU on this machine")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a GPU was asked for \(cuda\), and torch sees none"):
        compare(change(training__device="cuda"), tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reports it as a RuntimeError about a stream; the user is told about the disk, and what to do."""

    def full(*args: object, **kwargs: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")

    monkeypatch.setattr(training.torch, "save", full)
    monkeypatch.setattr(
        one_training.shutil,
        "disk_usage",
        lambda path: SimpleNamespace(free=10**9 if not list(Path(path).rglob("metrics.csv")) else 0),
    )
    message = r"the disk of .*run is full; free some room. Every finished epoch is kept: go on with --resume --out .*/run$"
    with pytest.raises(OSError, match=message):
        compare(tiny(methods=["penalty"]), tmp_path / "run", console=QUIET)


def test_a_loss_that_explodes_is_said_so(tmp_path: Path) -> None:
    settings = change(training__lr=3e38, methods=["full_supervision"])
    with pytest.raises(ValueError, match=r"not finite"):
        compare(settings, tmp_path / "run", console=QUIET)


def test_ctrl_c_ends_with_one_message_and_the_command_it_names_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real thing: a process, a signal, an exit status, and the command it names."""
    out = tmp_path / "run"
    options = ["--methods", "penalty", "--data.size", "24", "--data.train", "16", "--data.validation", "4"]
    options += ["--training.epochs", "200", "--training.device", "cpu", "--network.class_path", "torch.nn.Conv2d"]
    options += ["--network.init_args", json.dumps(TINY_NETWORK.init_args)]
    process = children.started(
        [sys.executable, "-m", "ringfence", "compare", "synthetic", *options, "--out", str(out)],
        variables={"OMP_NUM_THREADS": "1"},
        preexec_fn=heeding_ctrl_c,
    )
    metrics = out / "seed-0" / "penalty" / "metrics.csv"
    until = time.monotonic() + children.PATIENCE
    while not (metrics.exists() and (metrics.parent / "last.ckpt").exists()) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = children.ended(process)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    found = re.search(r"stopped\. Every finished epoch is kept; go on with: ringfence (.*)\n", errors)
    assert found is not None, errors
    assert shlex.split(found[1]) == ["compare", "synthetic", "--out", str(out), "--resume"]
    before = rows(out, "penalty")
    assert 1 <= len(before) < 200
    assert main(shlex.split(found[1])) == 0
    after = rows(out, "penalty")
    assert [int(row["epoch"]) for row in after] == list(range(1, 201))  # it went on, and lost nothing
    # The signal may come after an epoch's row and before its checkpoint: then the epoch is computed again.
    assert untimed(after[: len(before)]) == untimed(before)
    assert "Penalty" in capsys.readouterr().out
