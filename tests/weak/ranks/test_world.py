"""Who takes part, read from launchers' variables; and processes that do not meet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.experiments.on_ranks import on_ranks
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.ranks.together import Failure
from ringfence.weak.ranks.world import NoMeeting, World, first_host, free_port, meet, patience, world_of_environment

SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_NAME": "train",
}


@given(size=st.integers(2, 64), data=st.data())
def test_what_a_world_tells_others_is_what_they_read(size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    world = World(rank, size, "host", 1234, rank % 4, 4, rank // 4, max(1, size // 4), hosted=True, attempt=2)
    assert world_of_environment(world.variables()) == world


def test_the_world_of_srun() -> None:
    assert world_of_environment(SRUN) == World(5, 8, "gpu07", 22110, 1, 4, 1, 2)
    assert world_of_environment({**SRUN, "MASTER_ADDR": "here", "MASTER_PORT": "99"}).address == "here"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # a batch script, or salloc's shell: srun would set steps
        {**SRUN, "SLURM_JOB_NAME": "interactive"},
        {**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"RANK": "3", "WORLD_SIZE": "1"},  # left over from something else
    ],
)
def test_a_shell_in_a_job_is_one_process(variables: dict[str, str]) -> None:
    assert world_of_environment(variables) == World()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID='x' in the environment should be a whole number"),
        ({"SLURM_PROCID": "8"}, "rank 8 of 8 processes"),
    ],
)
def test_variables_that_make_no_sense_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world_of_environment({**SRUN, **changes})


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("n1", "n1"),
        ("n[5-9,12],m1", "n5"),
        ("n[3]", "n3"),
        ("a,b", "a"),
        ("a b", "a"),
        ("gpu-a[01-02]-x", "gpu-a01-x"),
    ],
)
def test_the_first_host_of_slurms_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_who_is_missing_is_said() -> None:
    port = free_port()
    with pytest.raises(NoMeeting) as caught:
        meet(World(0, 3, "127.0.0.1", port), timeout=3.0)  # a busy machine needs some of it to open the place
    assert str(caught.value).startswith(f"1 of 3 processes came to 127.0.0.1:{port} in 3 s; missing: rank 1, 2. ")


def test_a_place_where_nobody_is() -> None:
    port, began = free_port(), time.monotonic()
    with pytest.raises(NoMeeting, match=f"2 processes were to meet at 127.0.0.1:{port}, and after 0.2 s nobody is"):
        meet(World(1, 2, "127.0.0.1", port), timeout=0.2)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "1e9"])
def test_a_time_out_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_TIMEOUT", text)
    with pytest.raises(ValueError, match="RINGFENCE_TIMEOUT should be a number of seconds above 0"):
        patience()


@given(st.builds(Failure, st.integers(0, 99), st.sampled_from(["mistake", "fault"]), st.text()))
def test_a_failure_is_read_as_it_was_written(failure: Failure) -> None:
    assert Failure.unpacked(failure.packed()) == failure


@pytest.mark.parametrize(
    ("changes", "variables", "message"),
    [
        ({"nodes": 2}, {}, "training.nodes 2: start the command on each of them, as in `torchrun --nnodes 2"),
        ({"devices": 3}, {"RANK": "0"}, "training.devices 3 × training.nodes 1 is 3, and 2 processes were started"),
    ],
)
def test_numbers_of_processes_that_cannot_be(
    changes: dict[str, int], variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (World(0, 2, "127.0.0.1", 1).variables() if variables else {}).items():
        monkeypatch.setenv(name, value)
    asked = from_preset(TrainSettings, "boxes").changed({f"training.{name}": one for name, one in changes.items()})
    with pytest.raises(ValueError, match=message):
        on_ranks(print, asked.changed({"training.device": "cpu"}), Path("nowhere"))


def test_others_that_are_named_by_number_alone() -> None:
    with pytest.raises(
        ValueError, match="WORLD_SIZE=2 is in the environment, and RANK, MASTER_ADDR, MASTER_PORT are not"
    ):
        world_of_environment({"WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="and MASTER_PORT is not"):
        world_of_environment({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"})
    assert world_of_environment({"WORLD_SIZE": "1"}) == World()


def test_more_processes_than_cores_could_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    asked = from_preset(TrainSettings, "boxes").changed({"training.devices": 99, "training.device": "cpu"})
    with pytest.raises(ValueError, match="99 processes on 2 cores .* use 2, and at most 8"):
        on_ranks(print, asked, Path("nowhere"))


def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    asked = from_preset(TrainSettings, "boxes").changed({"training.devices": 2})
    with pytest.raises(ValueError, match="2 processes need a GPU each, and torch sees 1 on this machine"):
        on_ranks(print, asked, Path("nowhere"))
