"""Training from labels that brightness gives (`refinement.looks`), end to end at tiny size."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
from refine_ranks import asked, run_looking
from rich.console import Console

from children import quick_processes
from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak import train
from ringfence.weak.appearance.labels import looked_labels
from ringfence.weak.experiments.refine import first_lesson, label_bytes, student
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.teacher import LOOKS, look
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.prepared.prepared_set import read_prepared
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.world import World
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.taught import taught
from ringfence.weak.tasks.windows import UNSURE
from ringfence.weak.training.history import History
from ringfence.weak.training.progress import ProgressBars

QUIET = Console(quiet=True)
EPOCHS = 12


def looking(folder: Path, refine: int = 0, **data: object) -> TrainSettings:
    return asked(folder, refine, dict(data), epochs=EPOCHS).changed({"refinement.looks": True})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set, a run in ``run``, and what it said in ``said.txt``."""
    path = tmp_path_factory.mktemp("looks")
    make_prepared(path / "set")
    said = StringIO()
    train(looking(path), path / "run", console=Console(file=said, width=200))
    (path / "said.txt").write_text(said.getvalue())
    return path


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def test_labels_are_those_of_each_slice_and_the_network_has_them_for_masks(folder: Path) -> None:
    settings, prepared = looking(folder), read_prepared(folder / "set")
    task = box_task(settings.data, settings.constraints, prepared)
    boxes, whole = task.train["box"].numpy(), task.train["whole"].numpy().all(axis=-1)
    expected = []
    for case in prepared.of("train"):
        image, _ = prepared.load(case)
        for one in image:
            expected.append(looked_labels(one, boxes[len(expected)], whole[len(expected)], UNSURE))
    teacher = folder / "run/teacher-0"
    stored = np.concatenate([np.load(teacher / case.file)["mask"] for case in prepared.of("train")])
    np.testing.assert_array_equal(stored, expected)
    about = json.loads((teacher / "labels.json").read_text())
    assert about["looks"] == LOOKS
    assert about["labelled"] == ((stored > 0) & (stored < UNSURE)).sum() > 100
    assert f"labels from brightness: {about['labelled']:,} pixels of a class" in (folder / "said.txt").read_text()
    learnt = taught(task, prepared, teacher).train
    np.testing.assert_array_equal(learnt["mask"][:, 0].numpy(), stored == 1)
    np.testing.assert_array_equal(learnt["unsure"][:, 0].numpy(), stored == UNSURE)


def test_what_is_around_smaller_images_is_not_looked_at(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a set at a common spacing: rows 2 to 23 and columns 1 to 18 are the image."""
    settings, prepared = looking(folder), read_prepared(folder / "set")
    task = box_task(settings.data, settings.constraints, prepared)
    cases = tuple(replace(case, shape=(6, 21, 17), inside=((2, 23), (1, 18))) for case in prepared.cases)
    looked = []

    def labels(image: object, boxes: object, tight: object, unsure: int, known: np.ndarray) -> np.ndarray:
        looked.append(known)
        return np.zeros((24, 20), np.uint8)

    monkeypatch.setattr("ringfence.weak.experiments.teacher.looked_labels", labels)
    look(task, replace(prepared, cases=cases), tmp_path / "teacher-0", World())
    expected = np.zeros((24, 20), bool)
    expected[2:23, 1:18] = True
    assert len(looked) == 6 * len(prepared.of("train"))
    for known in looked:
        np.testing.assert_array_equal(known, expected)


def test_without_rounds_nothing_is_said_of_them(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    assert "kept: round" not in said
    assert "at most" not in said
    assert not list((folder / "run").glob("round-*"))
    assert "rounds" not in json.loads((folder / "run/result.json").read_text())


def test_it_is_another_network_than_constraints_alone_make(folder: Path, tmp_path: Path) -> None:
    train(asked(folder, 0, epochs=EPOCHS), tmp_path / "run", console=QUIET)
    assert weights(tmp_path / "run") != weights(folder / "run")


@pytest.mark.parametrize("lost", [(), ("teacher-0/labels.json", "teacher-0/case1.npz")])
def test_a_killed_run_goes_on(folder: Path, tmp_path: Path, lost: tuple[str, ...]) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder / "run", run)
    for name in ("result.json", "model.safetensors", *lost):
        (run / name).unlink()
    train(looking(folder), run, resume=True, console=QUIET)
    assert weights(run) == weights(folder / "run")


def test_a_run_that_is_interrupted_goes_on_in_its_epoch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = History.on_train_epoch_start

    def stop(history: History, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if module.current_epoch == 5:
            raise KeyboardInterrupt
        start(history, trainer, module)

    with monkeypatch.context() as patch:
        patch.setattr(History, "on_train_epoch_start", stop)
        with pytest.raises(KeyboardInterrupt):
            train(looking(folder), tmp_path / "run", console=QUIET)
    assert (tmp_path / "run/last.ckpt").exists()
    train(looking(folder), tmp_path / "run", resume=True, console=QUIET)
    assert weights(tmp_path / "run") == weights(folder / "run")


def test_a_run_is_made_longer_if_constraints_end_as_they_did(folder: Path, tmp_path: Path) -> None:
    begun = looking(folder).changed({"training.epochs": 2, "training.keep_checkpoint": True})
    train(begun, tmp_path / "run", console=QUIET)
    train(begun.changed({"training.epochs": 3}), tmp_path / "run", resume=True, console=QUIET)
    assert json.loads((tmp_path / "run/result.json").read_text())["epochs"] == 3
    grown = begun.with_method("log_barrier", final_t=None, mu=1.1)
    train(grown, tmp_path / "grown", console=QUIET)
    with pytest.raises(ValueError, match=r"learns from labels, and has its constraints as they are after 2 epochs"):
        train(grown.changed({"training.epochs": 3}), tmp_path / "grown", resume=True, console=QUIET)


def test_streamed_is_the_same(folder: Path, tmp_path: Path) -> None:
    train(looking(folder, streamed="always", workers=0), tmp_path / "run", console=QUIET)
    assert weights(tmp_path / "run") == weights(folder / "run")


def test_rounds_follow(folder: Path, tmp_path: Path) -> None:
    train(looking(folder, refine=1), tmp_path / "run", console=QUIET)
    assert weights(tmp_path / "run/round-0") == weights(folder / "run")
    assert (tmp_path / "run/teacher-1/labels.json").exists()
    assert len(json.loads((tmp_path / "run/result.json").read_text())["rounds"]) == 2


def test_two_processes_look_as_one_does(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", cases=4)
    run_looking(World(), tmp_path)
    with quick_processes():
        launch(run_looking, 2, "gloo", tmp_path)
    one, two = tmp_path / "of 1", tmp_path / "of 2"
    for case in ("case0", "case1", "case2"):
        first, second = (np.load(path / f"teacher-0/{case}.npz")["mask"] for path in (one, two))
        np.testing.assert_array_equal(first, second)
    first, second = (read_model(path)[0].state_dict() for path in (one, two))
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, rtol=1e-5, atol=1e-6)


def test_where_nothing_shows_constraints_alone_are_learnt_from(tmp_path: Path) -> None:
    """Boxes that are as large as the image have no surroundings."""
    make_prepared(tmp_path / "set", cases=2)
    box = "case,slice,class,row_low,row_high,column_low,column_high\ncase0,2,class 1,0,24,0,20\n"
    (tmp_path / "boxes.csv").write_text(box)
    said = StringIO()
    settings = looking(tmp_path, boxes=str(tmp_path / "boxes.csv"))
    train(settings, tmp_path / "run", console=Console(file=said, width=200))
    assert "No object is told from its surroundings by brightness" in said.getvalue()
    plain = replace(settings, refinement=replace(settings.refinement, looks=False))
    train(plain, tmp_path / "plain", console=QUIET)
    first, second = (read_model(tmp_path / name)[0].state_dict() for name in ("run", "plain"))
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


def test_boxes_in_space_give_no_labels_to_their_slices(tmp_path: Path) -> None:
    """What they hold in a slice, they are not drawn around: along both axes a box must be tight."""
    make_prepared(tmp_path / "set", cases=2)
    header = "case,slice_low,slice_high,class,row_low,row_high,column_low,column_high\n"
    (tmp_path / "boxes.csv").write_text(header + "case0,1,5,class 1,5,17,3,18\n")
    said = StringIO()
    begun = looking(tmp_path, boxes=str(tmp_path / "boxes.csv")).changed({"training.epochs": 1})
    settings = replace(
        begun, constraints={name: one for name, one in begun.constraints.items() if name != "strips"}
    )
    train(settings, tmp_path / "run", console=Console(file=said, width=200))
    assert "No object is told from its surroundings by brightness" in said.getvalue()


def test_it_is_trained_with_the_seed_of_the_run_and_room_for_its_labels(folder: Path) -> None:
    settings, prepared = looking(folder).changed({"seed": 3}), read_prepared(folder / "set")
    task = box_task(settings.data, settings.constraints, prepared)
    with ProgressBars(QUIET, 1, 2) as bars:
        now, learnt = first_lesson(settings, task, prepared, folder / "run", bars, World())
    assert now == student(settings, task, 0) != settings
    assert now.seed == 3
    assert "unsure" in learnt.train
    slices = sum(case.shape[0] for case in prepared.of("train"))
    assert label_bytes(settings, prepared) == slices * 24 * 20
    assert label_bytes(settings.changed({"refine": 2}), prepared) == 3 * slices * 24 * 20


def test_marked_pixels_are_right(folder: Path, tmp_path: Path) -> None:
    """A corner of a box, and a pixel of the object, marked as what they do not look like."""
    before = np.load(folder / "run/teacher-0/case0.npz")["mask"][2]
    rows, columns = np.nonzero(before == 1)
    corner, middle = (rows.min(), columns.min()), (round(rows.mean()), round(columns.mean()))
    assert (before[corner], before[middle]) == (0, 1)
    lines = ["case,slice,class,row,column"]
    lines += [
        f"case0,2,{name},{row},{column}" for name, (row, column) in (("class 1", corner), ("background", middle))
    ]
    (tmp_path / "scribbles.csv").write_text("\n".join(lines) + "\n")
    settings = looking(folder).changed({"constraints.scribbles.file": str(tmp_path / "scribbles.csv")})
    train(settings.changed({"training.epochs": 1}), tmp_path / "run", console=QUIET)
    after = np.load(tmp_path / "run/teacher-0/case0.npz")["mask"][2]
    assert (after[corner], after[middle]) == (1, 0)
    assert (after != before).sum() == 2


def test_what_it_cannot_do_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "boxes-small", "--data.prepared", str(folder / "set"), "--out", str(tmp_path / "run")]
    words += ["--refinement.looks"]
    for more, line in (
        (["true", "--method", "full_supervision"], "labels from brightness take the place of masks"),
        (["true", "--data.patch", "16", "16", "16"], "labels from brightness are of slices"),
        (["sometimes"], "refinement.looks"),
    ):
        assert main([*words, *more]) == 2
        said = capsys.readouterr().err
        assert line in said
        assert "Traceback" not in said
        assert not (tmp_path / "run").exists()
