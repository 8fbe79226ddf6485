"""Many cases by worker processes and by ranks: the same as by one process; and what happens if one of them ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
import torch
from case_jobs import Number, ending, squares
from case_ranks import different_options, killed_rank, three_commands

import children
from children import quick_processes
from ringfence import memory
from ringfence.weak.building.build import prepare
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.ranks.cases import Crew, WorkerLost, _packed
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.together import RankFailed
from ringfence.weak.ranks.world import World

NUMBERS = [Number(f"c{value}", value) for value in range(7)]
UNET = {
    "spatial_dims": 2,
    "in_channels": 1,
    "out_channels": 2,
    "features": [4, 4, 4, 4, 4, 4],
    "norm": "batch",
    "act": "relu",
    "upsample": "nontrainable",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five patients, of which one's file is cut off, a model, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "source").mkdir()
    random = np.random.default_rng(0)
    for number in range(1, 6):
        name, side = f"Case{number:02}", 16 + number
        mask = np.zeros((3, side, side), np.uint8)
        mask[1, 4:10, 5:12] = 1
        for file, voxels in (
            (name, random.integers(0, 900, mask.shape).astype(np.int16)),
            (f"{name}_segmentation", mask),
        ):
            image = sitk.GetImageFromArray(voxels)
            image.SetSpacing((0.5, 0.5, 3.0))
            sitk.WriteImage(image, str(folder / "source" / f"{file}.mhd"))
    (folder / "source" / "Case03.raw").write_bytes(b"")
    torch.manual_seed(0)
    path = "monai.networks.nets.BasicUNet"
    card = ModelCard(path, UNET, ("T2",), ("prostate",), Preprocessing((32, 32)), flips=("left-right",))
    network = Tempered(build_network(path, UNET)).eval()
    with torch.no_grad():  # so that half of an image is foreground
        logits = network(torch.rand(2, 1, 32, 32))
        network.offset[1] -= (logits[:, 1] - logits[:, 0]).median()
    save_model(folder / "model.safetensors", network, card)
    three_commands(World(), folder / "source", folder / "model.safetensors", folder / "one")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_one_process_does_them_in_order() -> None:
    results = list(Crew().results(squares, (2,), NUMBERS))
    assert [value for value, *_ in results] == [0, 1, 4, 9, 16, 25, 36]
    assert {pid for _, pid, *_ in results} == {os.getpid()}
    for wrong in (0, -1, 1000):
        with pytest.raises(ValueError, match=rf"--workers: {wrong} must be from 1 to 256"):
            Crew(wrong)


def test_workers_results_come_in_order_and_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_MEMORY", "6GB")
    results = list(Crew(2).results(squares, (3,), NUMBERS))
    assert [value for value, *_ in results] == [value**3 for value in range(7)]
    assert len({pid for _, pid, *_ in results} - {os.getpid()}) == 2
    threads = max(1, torch.get_num_threads() // 2)
    assert {one[2:] for one in results} == {(threads, 3 * 10**9)}
    assert memory.limit() == 6 * 10**9
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        (
            "killed",
            WorkerLost,
            r"a worker is gone at c2 \(killed by SIGKILL; for want of memory, perhaps: fewer --wor",
        ),
        ("full", OSError, r"out/c2.nii cannot be written: the disk is full"),
    ],
)
def test_a_worker_that_ends_badly_ends_all(how: str, error: type[Exception], message: str) -> None:
    with quick_processes(), pytest.raises(error, match=message):
        list(Crew(2).results(ending, (how,), NUMBERS))
    assert multiprocessing.active_children() == []


def test_a_fault_in_a_worker_comes_with_its_traceback() -> None:
    try:
        raise KeyError("nowhere")
    except KeyError as error:
        kind, text = _packed(error)
    assert kind is RuntimeError
    assert text.startswith("in a worker:\nTraceback")
    assert text.endswith("KeyError: 'nowhere'")


def test_ctrl_c_ends_all_workers(tmp_path: Path) -> None:
    """As a terminal does it: every process of the group is told."""
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs have it switched off
        "from pathlib import Path\nfrom case_jobs import Number, slow\nfrom ringfence.weak.ranks.cases import Crew\n"
        "if __name__ == '__main__':\n"
        f"    list(Crew(2).results(slow, (Path({str(tmp_path)!r}),), [Number(str(n), n) for n in range(4)]))\n"
    )
    script = tmp_path.parent / f"{tmp_path.name}.py"
    script.write_text(code, encoding="utf-8")
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    process = children.started([sys.executable, script], variables={"PYTHONPATH": paths})
    until = time.monotonic() + children.PATIENCE
    while len(begun := list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, said = children.ended(process)
    assert "KeyboardInterrupt" in said
    assert said.count("Traceback") == 1  # ours; the workers have nothing to say
    assert list(tmp_path.iterdir()) == []  # they had the time to clean up
    for one in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(int(one.name), 0)


def test_three_commands_by_workers_write_the_same_files(data: Path) -> None:
    with quick_processes():
        three_commands(World(), data / "source", data / "model.safetensors", data / "workers", workers=2)
    assert files(data / "workers") == files(data / "one")
    assert {"set/manifest.json", "masks/Case01.mhd", "masks/Case05_prostate_probability.mhd"} <= files(
        data / "one"
    ).keys()
    text = (data / "one" / "scores.csv").read_text(encoding="utf-8")
    assert text.endswith("['Case03', 'Case03']")
    assert ",inf," not in text  # every mask has something in it


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_TIMEOUT", "180")


@pytest.mark.usefixtures("soon")
def test_three_commands_by_ranks_write_the_same_files(data: Path) -> None:
    with quick_processes():
        launch(three_commands, 2, "gloo", data / "source", data / "model.safetensors", data / "ranks")
    assert files(data / "ranks") == files(data / "one")


@pytest.mark.usefixtures("soon")
def test_ranks_that_are_asked_for_different_things_are_refused(data: Path) -> None:
    with (
        quick_processes(),
        pytest.raises(RankFailed, match=r"ranks 0 and 1 differ in options \(.*\): start all with the same command"),
    ):
        launch(different_options, 2, "gloo", data / "source", data / "different")
    assert not (data / "different").exists()


@pytest.mark.usefixtures("soon")
def test_a_killed_rank_ends_all_and_the_same_command_goes_on(data: Path) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 is gone \(killed by SIGKILL"):
        launch(killed_rank, 2, "gloo", data / "source", data / "killed")
    assert not (data / "killed" / "manifest.json").exists()
    done = prepare("promise12", data / "source", data / "killed", size=(16, 16), skip_failures=True)
    assert done.kept == 2
    assert files(data / "killed") == {
        name.removeprefix("set/"): content
        for name, content in files(data / "one").items()
        if name.startswith("set/")
    }
