"""What happens to a training if one of its ranks is killed: it ends with a line, and goes on with any number of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks_training import EPOCHS, asked, check_equal, kept, network_of

from children import called
from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.weak.experiments.train import train

HERE = Path(__file__).parent


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
    return ["train", "boxes", *options, *more]  # the preset of the reference, not a plan


TRAINING = {
    "epochs": EPOCHS,
    "batch_size": 7,
    "lr": 1e-5,
    "device": "cpu",
    "prior": "null",
    "keep_checkpoint": "true",
}


def by(words: list[str], die: str = "", tag: str = "") -> subprocess.CompletedProcess[str]:
    """The words as a process, of which the rank and step that ``die`` names is killed."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return called(words, variables={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TAG": tag, "DIE": die})


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


def check_threads_ended(said: str, rank: int) -> None:
    """Gloo's are joined before Python is taken down, where they might abort a process that has done its work."""
    lines = [line for line in said.splitlines() if line.startswith(f"threads at the end of rank {rank}: ")]
    assert lines
    assert not any("gloo" in line for line in lines), lines


RINGFENCE = [sys.executable, "-m", "ringfence"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
TORCHRUN += ["--nproc_per_node", "2"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads the process table of Linux")
def test_a_killed_rank_ends_the_run_and_any_number_of_ranks_goes_on(tmp_path: Path) -> None:
    """Killed in the second of three epochs; the model is that of a run that nobody killed."""
    make_prepared(tmp_path / "set", cases=4, shape=(6, 12, 10))
    reference = tmp_path / "reference"
    train(network_of(asked(tmp_path, "lagrangian"), "Small"), reference, progress=False)

    launched = tmp_path / "launched"
    ended = by([*RINGFENCE, *command(tmp_path, launched, "--training.devices", "2")], "1:5", "launched")
    assert ended.returncode == 2
    said = ended.stderr.strip().splitlines()[-1]
    assert said == (
        "ringfence train: rank 1 is gone (killed by SIGKILL; for want of memory, perhaps), and the others were "
        f"ended. Every finished epoch is kept: go on with --resume --out {launched}"
    )
    assert "Traceback" not in ended.stderr
    assert left_behind("launched") == []
    resumed = by([*TORCHRUN, "-m", "ringfence", "train", "--out", str(launched), "--resume"], tag="resumed")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("The model is ") == 1
    check_threads_ended(resumed.stderr, 0)
    check_threads_ended(resumed.stderr, 1)
    check_equal(kept(reference), kept(launched))

    elastic = tmp_path / "elastic"
    ended = by([*TORCHRUN, "-m", "ringfence", *command(tmp_path, elastic)], "0:5", "elastic")
    assert ended.returncode != 0
    assert (
        "ringfence train: rank 0 is gone: killed, perhaps for want of memory? What started it may say more. Every "
        f"finished epoch is kept: go on with --resume --out {elastic}" in ended.stderr
    )
    check_threads_ended(ended.stderr, 1)
    assert left_behind("elastic") == []
    assert main(["train", "--out", str(elastic), "--resume"]) == 0
    check_equal(kept(reference), kept(elastic))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads the process table of Linux")
def test_a_rank_with_a_fault_shows_its_traceback_and_ends_its_threads(tmp_path: Path) -> None:
    """Python keeps the last error, and with it all that was at work."""
    make_prepared(tmp_path / "set", cases=4, shape=(6, 12, 10))
    ended = by([*TORCHRUN, "-m", "ringfence", *command(tmp_path, tmp_path / "run")], "0:2:fault")
    assert ended.returncode != 0
    assert "RuntimeError: a fault of the network's" in ended.stderr
    check_threads_ended(ended.stderr, 0)
