"""Trainings on several ranks: the same as one process's; and what happens to them if one is killed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.losses.dice import DiceLoss
from ranks_training import ALIKE, EPOCHS, asked, dice, network_of, run
from torch import Tensor

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak.experiments.train import train
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.world import World
from ringfence.weak.training.together.global_batch import dice_loss

HERE = Path(__file__).parent
SIZES = (2, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trainings by one, two and four processes."""
    path = tmp_path_factory.mktemp("ranks")
    make_prepared(path / "set", cases=4, shape=(6, 12, 10))
    run(World(), path)
    for size in SIZES:
        launch(run, size, "gloo", path)
    return path


def kept(path: Path) -> dict[str, Any]:
    return torch.load(path / "last.ckpt", weights_only=True)  # type: ignore[no-any-return]


def check_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Epochs' rows, weights, λ, t and what the monitor remembers."""
    rows, others = one["callbacks"]["History"]["rows"], other["callbacks"]["History"]["rows"]
    assert len(rows) == len(others) == EPOCHS
    for row, same in zip(rows, others, strict=True):
        assert row.keys() == same.keys()
        for name in row:
            if not name.startswith("seconds"):
                assert math.isclose(row[name], same[name], rel_tol=1e-6, abs_tol=1e-6) or (
                    math.isnan(row[name]) and math.isnan(same[name])
                ), (name, row[name], same[name])
    assert one["state_dict"].keys() == other["state_dict"].keys()
    for name, value in one["state_dict"].items():
        if "num_batches_tracked" not in name:  # with parts of batches there are more of them
            torch.testing.assert_close(other["state_dict"][name], value, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*ALIKE, "accumulated", "unused", "augmented"])
def test_ranks_train_what_one_process_trains(folder: Path, name: str, size: int) -> None:
    """18 images in batches of 7, the last of which has fewer rows than there are ranks."""
    check_equal(kept(folder / "of 1" / name), kept(folder / f"of {size}" / name))
    files = {file.name for file in (folder / "of 1" / name).iterdir()}
    assert {file.name for file in (folder / f"of {size}" / name).iterdir()} == files


def test_parts_of_a_batch_are_the_whole_batch(folder: Path) -> None:
    """Without batch norms: with them, each part has its own mean."""
    whole = network_of(asked(folder, "log_barrier"), "Small", norm=False)
    train(whole, folder / "whole", progress=False)
    check_equal(kept(folder / "whole"), kept(folder / "of 1/accumulated"))


@pytest.mark.parametrize("size", SIZES)
def test_batch_norm_and_dice_loss_are_of_all_ranks(folder: Path, size: int) -> None:
    """In float64, with their gradients and running statistics; one process uses torch's own."""
    one = torch.load(folder / "rank0of1.pt", weights_only=True)
    several = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True) for rank in range(size)]
    for name, value in one["norm"].items():
        found: list[Tensor] = [theirs["norm"][name] for theirs in several]
        together = torch.stack(found).sum(dim=0) if "gradient" in name else found[-1]
        torch.testing.assert_close(together, value, rtol=1e-9, atol=1e-9, msg=name)
    torch.testing.assert_close(sum(theirs["dice"] for theirs in several), one["dice"])


def test_dice_loss_is_monais() -> None:
    logits, labels = torch.randn(3, 3, 6, 5), torch.randint(0, 3, (3, 6, 5))
    monai = DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True)
    torch.testing.assert_close(dice_loss(logits, labels), monai(logits, labels[:, None]))
    assert dice(World())[-1] > 0


@pytest.mark.parametrize("size", SIZES)
def test_one_rank_that_diverges_ends_all(folder: Path, size: int) -> None:
    found = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True) for rank in range(size)]
    assert len({one["diverged"] for one in found}) == 1
    assert "training diverged in epoch 2, step 1: the loss is not finite" in found[0]["diverged"]
    assert (folder / f"of {size}/sick/diverged.safetensors").exists()


@pytest.mark.parametrize("size", SIZES)
def test_ranks_that_were_told_different_things_are_refused(folder: Path, size: int) -> None:
    found = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True)["different"] for rank in range(size)]
    assert set(found) == {
        "rank 0 and rank 1 differ in training.lr (training.lr is '0.001' on rank 0, and '0.002' on rank 1): give "
        "all ranks the same command and the same files"
    }


def command(folder: Path, out: Path, *more: str) -> list[str]:
    options = [
        "--data.prepared",
        str(folder / "set"),
        "--out",
        str(out),
        "--network.class_path",
        "ranks_training.Mortal",
    ]
    options += ["--network.init_args", "{}", "--optimiser.class_path", "torch.optim.SGD", "--method", "lagrangian"]
    options += [f"--training.{name}={value}" for name, value in TRAINING.items()]
    options += [
        "--augment.flip=[]",
        *(f"--augment.{name}=0" for name in ("shift", "scale", "intensity", "bias", "noise")),
    ]
    return ["train", *options, *more]


TRAINING = {
    "epochs": EPOCHS,
    "batch_size": 7,
    "lr": 1e-5,
    "device": "cpu",
    "prior": "null",
    "keep_checkpoint": "true",
}


def called(words: list[str], die: str = "", tag: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TAG": tag, **({"DIE": die} if die else {})}
    return subprocess.run(
        words, env={**os.environ, **own}, capture_output=True, text=True, timeout=280, check=False
    )


def left_behind(tag: str) -> list[str]:
    """Processes that have the tag in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TAG={tag}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


RINGFENCE = [sys.executable, "-m", "ringfence"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
TORCHRUN += ["--nproc_per_node", "2"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads the process table of Linux")
def test_a_killed_rank_ends_the_run_and_any_number_of_ranks_goes_on(folder: Path) -> None:
    """Killed in the second of three epochs; the model is that of a run that nobody killed."""
    reference = folder / "reference"
    train(network_of(asked(folder, "lagrangian"), "Small"), reference, progress=False)

    launched = folder / "launched"
    ended = called([*RINGFENCE, *command(folder, launched, "--training.devices", "2")], "1:5", "launched")
    assert ended.returncode == 2
    said = ended.stderr.strip().splitlines()[-1]
    assert said == (
        "ringfence train: rank 1 is gone (killed by SIGKILL; for want of memory, perhaps), and the others were "
        f"ended. Every finished epoch is kept: go on with --resume --out {launched}"
    )
    assert "Traceback" not in ended.stderr
    assert left_behind("launched") == []
    resumed = called([*TORCHRUN, "-m", "ringfence", "train", "--out", str(launched), "--resume"], tag="resumed")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("The model is ") == 1
    check_equal(kept(reference), kept(launched))

    elastic = folder / "elastic"
    ended = called([*TORCHRUN, "-m", "ringfence", *command(folder, elastic)], "0:5", "elastic")
    assert ended.returncode != 0
    assert (
        "ringfence train: rank 0 is gone: killed, perhaps for want of memory? What started it may say more. Every "
        f"finished epoch is kept: go on with --resume --out {elastic}" in ended.stderr
    )
    assert left_behind("elastic") == []
    assert main(["train", "--out", str(elastic), "--resume"]) == 0
    check_equal(kept(reference), kept(elastic))
