"""A constraint of one's own, as examples/own_constraint.py has it: short, true of what it says, and trained with."""

from __future__ import annotations

import csv
import importlib.util
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from true_masks import batch_of, found

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak.constraints.motion import Motion

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_constraint.py"


@pytest.fixture
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("example_of_own_constraint", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_it_is_short_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Residual [3, 1]: 2 of 2 constraints satisfied")
    assert second.startswith("Residual [3, 1]: 0 of 2 constraints satisfied, worst violation 240 ")


def test_it_is_true_of_images_that_flip_and_not_asked_of_those_that_shift(example: ModuleType) -> None:
    mask = torch.zeros(3, 1, 12, 14, dtype=torch.bool)
    mask[0, 0, 4:8, 2:9] = mask[1, 0, 0, 5] = True
    clearance = example.Clearance(pixels=2)
    batch = batch_of(mask, {"clearance": clearance})
    assert clearance.residual(found(mask), batch, "pixels").present.flatten().tolist() == [True, False, True]
    flipped = batch | clearance.moved(
        batch, Motion.resampled(torch.tensor([[-1.0, 1.0]] * 3), torch.zeros(3, 2), (12, 14))
    )
    residual = clearance.residual(found(mask.flip(2)), flipped, "pixels")
    assert residual.present.flatten().tolist() == [True, False, True]
    assert float(residual.violation.max()) <= 1e-3
    for motion in (
        Motion.resampled(torch.ones(3, 2), torch.full((3, 2), 0.1), (12, 14)),
        Motion.resampled(torch.full((3, 2), 1.1), torch.zeros(3, 2), (12, 14)),
        Motion.crop(torch.ones(3, 2, dtype=torch.long), (12, 14), (10, 10)),
    ):
        assert not bool(clearance.moved(batch, motion)["clear"].any())
    wrong = torch.zeros_like(mask)
    wrong[:, :, 0] = True
    assert float(clearance.residual(found(wrong), batch, "pixels").violation.max()) == pytest.approx(14.0, abs=1e-3)


def test_it_trains_by_its_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLE, tmp_path / "clearance_of_mine.py")
    make_prepared(tmp_path / "set", cases=3, shape=(3, 24, 20))
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--preset", "boxes-small", "--data.prepared", "set", "--out", "run"]
    arguments += ["--training.epochs", "1", "--training.device", "cpu"]
    arguments += ["--network.class_path", "torch.nn.Conv2d"]
    arguments += ["--network.init_args", "{in_channels: 1, out_channels: 2, kernel_size: 3, padding: 1}"]
    own = "{class_path: clearance_of_mine.Clearance, init_args: {pixels: 3}}"
    arguments += ["--constraints.clearance", own]
    try:
        assert main(arguments) == 0
    finally:
        sys.modules.pop("clearance_of_mine", None)
    with next(tmp_path.glob("run/**/metrics.csv")).open() as file:
        header = next(csv.reader(file))
    assert any("clearance" in name for name in header), header
    assert any("strips" in name for name in header)
