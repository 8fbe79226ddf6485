"""A set that is not the one its manifest describes: nothing is trained on it, at the start or later."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak import TrainSettings, from_preset
from ringfence.weak.experiments import one_training
from ringfence.weak.experiments.one_training import checked_box_task

TINY = """
network: {class_path: torch.nn.Conv2d, init_args: {kernel_size: 3, padding: 1}}
training: {epochs: 2, batch_size: 4, device: cpu}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_prepared(tmp_path / "set")
    Path("tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.mark.parametrize("command", ["train tiny.yaml", "compare boxes --config tiny.yaml --methods penalty"])
@pytest.mark.parametrize("what", ["another case", "a moved mask", "floats"])
def test_a_swapped_case_is_not_trained_on(
    place: Path, capsys: pytest.CaptureFixture[str], command: str, what: str
) -> None:
    """D9: another image, a moved mask, NaN floats: each was accepted."""
    file = place / "set" / "case0.npz"
    if what == "another case":
        shutil.copy(place / "set" / "case1.npz", file)
    else:
        with np.load(file) as arrays:
            image, mask = arrays["image"], arrays["mask"]
        moved = {"image": image, "mask": np.roll(mask, 3, axis=1)}
        np.savez(file, **(moved if what == "a moved mask" else {"image": image * np.float32("nan"), "mask": mask}))
    assert main([*command.split(), "--data.prepared", "set", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "case0.npz is not the file that manifest.json describes (its checksum differs): prepare" in said
    assert not (place / "run").exists()


def test_nor_when_a_run_goes_on(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: --resume looks at the files again."""
    with monkeypatch.context() as patched:
        patched.setattr(one_training, "keep_outputs", _full)
        assert main(["train", "tiny.yaml", "--data.prepared", "set", "--out", "run"]) == 2
    assert (place / "run" / "last.ckpt").exists()
    shutil.copy(place / "set" / "case1.npz", place / "set" / "case0.npz")
    assert main(["train", "--out", "run", "--resume"]) == 2
    assert "its checksum differs" in capsys.readouterr().err
    assert not (place / "run" / "result.json").exists()


def _full(*arguments: object) -> None:
    raise ValueError("interrupted")


@pytest.mark.parametrize(("patience", "shown"), [(0.0, True), (1000.0, False)])
def test_a_bar_is_shown_when_reading_takes_long(
    place: Path, monkeypatch: pytest.MonkeyPatch, patience: float, shown: bool
) -> None:
    monkeypatch.setattr(one_training, "PATIENCE", patience)
    settings = from_preset(TrainSettings, "boxes-small", {"data.prepared": "set"})
    for quiet in (False, True):
        console = Console(file=io.StringIO(), force_terminal=True, width=100, quiet=quiet)
        checked_box_task(settings, ["log_barrier"], console)
        assert ("reading and checking the set" in console.file.getvalue()) is (shown and not quiet)
