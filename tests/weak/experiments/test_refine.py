"""Refinement, end to end at tiny size: who teaches whom, which round is kept, and what a killed run goes on with."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from refine_ranks import EPOCHS, asked, run
from rich.console import Console

from children import quick_processes
from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak import from_preset, train
from ringfence.weak.experiments.refine import Round, best_of, check_refine, settled, student
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.prepared.prepared_set import read_prepared
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.world import World
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.teaching import KnownOf, taught_labels
from ringfence.weak.tasks.windows import UNSURE
from ringfence.weak.training.divergence import Diverged
from ringfence.weak.training.history import History
from ringfence.weak.training.methods import LogBarrier, Penalty
from ringfence.weak.training.run_folder import OneRun

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set, and a run of two rounds of refinement in ``run``, with what it said in ``said.txt``."""
    path = tmp_path_factory.mktemp("refine")
    make_prepared(path / "set")
    said = StringIO()
    train(asked(path, 2), path / "run", console=Console(file=said, width=200))
    (path / "said.txt").write_text(said.getvalue())
    return path


def facts(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "result.json").read_text())
    return found


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def test_the_best_round_is_kept_and_each_says_what_it_reached(folder: Path) -> None:
    result, said = facts(folder / "run"), (folder / "said.txt").read_text()
    rounds = result["rounds"]
    assert isinstance(rounds, list)
    measured = [facts(folder / f"run/round-{one['round']}")["last_epoch"]["box_iou"] for one in rounds]
    assert [one["box_iou"] for one in rounds] == measured
    assert result["round"] == max(one for one, iou in enumerate(measured) if iou >= 0.95 * max(measured))
    assert result["seed"] == 0
    assert len(rounds) >= 2
    assert all(measured[number] > max(measured[:number]) for number in range(1, len(rounds) - 1))
    best = folder / f"run/round-{result['round']}"
    for name in ("model.safetensors", "metrics.csv", "pictures.safetensors"):
        assert (folder / "run" / name).read_bytes() == (best / name).read_bytes()
    assert facts(best)["seed"] == 1000 * int(str(result["round"]))
    for one in rounds:
        line = f"round {one['round']} of 2 at most: box IoU {one['box_iou']:.3f}, DSC {one['dice']:.3f}"
        assert line in said
    assert f"kept: round {result['round']}, " in said


@pytest.mark.parametrize("number", [1, 2])
def test_teachers_are_the_mean_of_the_models_before_averaged_over_flips(folder: Path, number: int) -> None:
    teacher = folder / f"run/teacher-{number}"
    if not teacher.exists():
        pytest.skip("rounds ended before")
    settings, prepared = asked(folder, 2), read_prepared(folder / "set")
    task = box_task(settings.data, settings.constraints, prepared)
    networks = [read_model(folder / f"run/round-{one}/model.safetensors")[0] for one in range(number)]
    x = task.train["image"].float() / 255.0
    with torch.no_grad():
        answers = [one(x).softmax(dim=1) for one in networks]
        answers += [one(x.flip(-1)).softmax(dim=1).flip(-1) for one in networks]
    mean = torch.stack(answers).mean(dim=0).numpy()
    stored = np.concatenate([np.load(teacher / case.file)["mask"] for case in prepared.of("train")])
    samples = [(p, KnownOf.of(task.train, row)) for row, p in enumerate(mean)]
    expected, first = [], 0
    for case in prepared.of("train"):
        expected += taught_labels(samples[first : first + case.shape[0]], 0.2)
        first += case.shape[0]
    assert (stored != expected).mean() < 1e-3  # a batch's size changes the last bit
    said = json.loads((teacher / "labels.json").read_text())
    assert said["unsure"] == (stored == UNSURE).sum() > 0
    assert said["labelled"] == ((stored > 0) & (stored < UNSURE)).sum() > 0


def ruined(folder: Path, tmp_path: Path, *lost: str) -> Path:
    """The run as it was when it was killed: without what it wrote later."""
    shutil.copytree(folder / "run", tmp_path / "run")
    for name in ("result.json", "model.safetensors", *lost):
        for path in (tmp_path / "run").glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "lost",
    [
        (),  # all rounds are there
        ("round-1", "round-2", "teacher-2", "teacher-1/labels.json", "teacher-1/case1.npz"),
        ("round-1", "round-2", "teacher-2", "teacher-1", "round-0/result.json", "round-0/model.safetensors"),
    ],
)
def test_a_killed_run_goes_on_at_its_round(folder: Path, tmp_path: Path, lost: tuple[str, ...]) -> None:
    run = ruined(folder, tmp_path, *lost)
    kept = {path: path.stat().st_mtime_ns for path in run.glob("round-*/model.safetensors")}
    train(asked(folder, 2), run, resume=True, console=QUIET)
    assert weights(run) == weights(folder / "run")
    assert facts(run)["rounds"] == facts(folder / "run")["rounds"]
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    train(asked(folder, 2), run, resume=True, console=QUIET)  # nothing is left to do


def test_a_round_that_is_interrupted_goes_on_in_its_epoch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = History.on_train_epoch_start

    def stop(history: History, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if module.current_epoch == 2 and history.folder.name == "round-1":
            raise KeyboardInterrupt
        start(history, trainer, module)

    with monkeypatch.context() as patch:
        patch.setattr(History, "on_train_epoch_start", stop)
        with pytest.raises(KeyboardInterrupt):
            train(asked(folder, 2), tmp_path / "run", console=QUIET)
    assert (tmp_path / "run/round-1/last.ckpt").exists()
    assert not (tmp_path / "run/model.safetensors").exists()
    train(asked(folder, 2), tmp_path / "run", resume=True, console=QUIET)
    assert weights(tmp_path / "run") == weights(folder / "run")
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_streamed_is_the_same(folder: Path, tmp_path: Path) -> None:
    streamed = asked(folder, 2, {"streamed": "always", "workers": 0})
    train(streamed, tmp_path / "run", console=QUIET)
    assert weights(tmp_path / "run") == weights(folder / "run")


def test_volumes_are_refined_in_patches(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", shape=(9, 24, 20))
    settings = asked(tmp_path, 1, {"patch": [6, 20, 16]}, batch_size=2, epochs=3)
    settings = replace(
        settings, network=replace(settings.network, class_path="torch.nn.Conv3d", init_args={"kernel_size": 1})
    )
    train(settings, tmp_path / "run", console=QUIET)
    assert len(facts(tmp_path / "run")["rounds"]) == 2


def test_two_processes_refine_as_one_does(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", cases=4, shape=(6, 12, 10))
    run(World(), tmp_path)
    with quick_processes():
        launch(run, 2, "gloo", tmp_path)
    one, two = tmp_path / "of 1", tmp_path / "of 2"
    assert {path.relative_to(one) for path in one.rglob("*")} == {path.relative_to(two) for path in two.rglob("*")}
    for case in ("case0", "case1", "case2"):
        first, second = (np.load(path / f"teacher-1/{case}.npz")["mask"] for path in (one, two))
        np.testing.assert_array_equal(first, second)
    assert facts(one)["round"] == facts(two)["round"]
    for number in (0, 1):
        first, second = (read_model(path / f"round-{number}")[0].state_dict() for path in (one, two))
        for name, value in first.items():
            torch.testing.assert_close(second[name], value, rtol=1e-5, atol=1e-6)
        last = [facts(path / f"round-{number}")["last_epoch"]["box_iou"] for path in (one, two)]
        assert last[0] == pytest.approx(last[1])


def test_a_round_that_diverges_is_left_out(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ruined(folder, tmp_path, "round-1", "round-2", "teacher-2")

    def diverges(*_: object) -> None:
        raise Diverged("training diverged in epoch 1")

    with monkeypatch.context() as patch:
        patch.setattr("ringfence.weak.experiments.refine.train_one", diverges)
        train(asked(folder, 2), run, resume=True, console=QUIET)
    assert facts(run)["round"] == 0
    assert weights(run) == weights(run / "round-0")


def test_a_teacher_without_an_answer_ends_it(folder: Path, tmp_path: Path) -> None:
    said = StringIO()
    settings = asked(folder, 2, epochs=1, lr=1e-9, prior=1e-6)
    train(settings, tmp_path / "run", console=Console(file=said, width=200))
    assert "There is nothing to refine: no class was found in any of its boxes" in said.getvalue()
    assert facts(tmp_path / "run")["round"] == 0
    assert not (tmp_path / "run/round-1").exists()


def round_of(number: int, box_iou: float) -> Round:
    return Round(number, OneRun(Path()), box_iou, math.nan)


def test_the_best_round_needs_no_mask() -> None:
    assert best_of([round_of(0, 0.5), round_of(1, 0.6), round_of(2, 0.56)]).number == 1
    assert best_of([round_of(0, 0.5), round_of(1, 0.6), round_of(2, 0.58)]).number == 2
    assert best_of([round_of(0, 0.5), round_of(1, 0.47)]).number == 0
    assert best_of([round_of(0, 0.5), round_of(1, 0.5)]).number == 1
    assert best_of([round_of(0, math.nan), round_of(1, math.nan)]).number == 1


def test_a_student_has_the_constraints_as_they_end(folder: Path) -> None:
    settings = asked(folder, 2)
    task = box_task(settings.data, settings.constraints)
    taught = student(settings, task, 2)
    own, before = taught.method_settings["log_barrier"], settings.method_settings["log_barrier"]
    assert isinstance(own, LogBarrier)
    assert isinstance(before, LogBarrier)
    assert (own.t, own.mu, own.final_t) == (before.final_t, 1.0, None)
    assert taught.seed == 2000
    assert list(own.weights) == list(task.constraints)
    assert own.weights["outside"] == pytest.approx(0.1 / (24 * 20 * own.t))
    assert own.weights["strips"] == pytest.approx(0.1 * before.weights["strips"] / (24 * 20 * own.t))
    odds = student(settings.with_method("log_barrier", unit="odds"), task, 1).method_settings["log_barrier"]
    assert isinstance(odds, LogBarrier)
    assert odds.weights["outside"] == pytest.approx(own.weights["outside"] * float(task.train["yardstick"].mean()))
    free = student(settings.changed({"refinement.constraints": 0.0}), task, 1).method_settings["log_barrier"]
    assert isinstance(free, LogBarrier)
    assert set(free.weights.values()) == {0.0}
    grown = settled(LogBarrier(t=1.0, mu=1.1), 11)
    assert isinstance(grown, LogBarrier)
    assert grown.t == pytest.approx(1.1**10)
    assert settled(Penalty(strength=2.0, mu=1.5), 3) == Penalty(strength=4.5, mu=1.0)
    relative = student(replace(settings, method="penalty"), task, 1).method_settings["penalty"]
    assert isinstance(relative, Penalty)
    boxes = [one for one in task.train["box"].reshape(-1, 2, 2).tolist() if one[0][1] > one[0][0]]
    mean = sum((bottom - top) * (right - left) for (top, bottom), (left, right) in boxes) / len(boxes)
    assert relative.weights["outside"] == pytest.approx(0.1 * mean / (24 * 20))


def test_what_cannot_be_refined_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["train", "boxes-small", "--data.prepared", str(folder / "set"), "--out", str(tmp_path / "run")]
    for words, line in (
        (["--refine", "1", "--method", "full_supervision"], "refine 1: a model's answers take the place of masks"),
        (["--refine", "-1"], "refine must be a whole number, at least 0, got -1"),
        (["--refinement.unsure", "1"], "refinement.unsure is a fraction from 0 to below 1, got 1.0"),
        (["--refinement.constraints", "-1"], "refinement.constraints must be finite and not negative, got -1.0"),
    ):
        assert main([*usual, *words]) == 2
        said = capsys.readouterr().err
        assert line in said
        assert "Traceback" not in said
        assert not (tmp_path / "run").exists()
    assert main(["train", "--out", str(folder / "run"), "--resume", "--training.epochs", str(EPOCHS + 1)]) == 2
    assert "training.epochs: the rounds of" in capsys.readouterr().err
    many = replace(read_prepared(folder / "set"), classes=tuple(map(str, range(255))), labels=())
    with pytest.raises(ValueError, match="room for 254 classes, and .* has 255"):
        check_refine(from_preset(TrainSettings, "boxes-small").changed({"refine": 1}), many, tmp_path, False)
