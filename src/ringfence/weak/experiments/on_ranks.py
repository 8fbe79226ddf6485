"""One command on several processes: those that torchrun or srun started, or that ``training.devices`` asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from ringfence.environment import environment
from ringfence.hints import listed, shown
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.together import RankFailed, together
from ringfence.weak.ranks.world import World, from_all, met, world_of_environment
from ringfence.weak.training.accelerator import choose_accelerator
from ringfence.weak.training.fit import FitSettings
from ringfence.weak.training.run_folder import CONFIG
from ringfence.weak.training.settings import TrainingSettings

PER_CORE: Final = 4
"""Processes for each core of a CPU, at most: nobody gains by more than one."""


def on_ranks(work: Callable[..., None], settings: FitSettings, out: Path, *arguments: Any) -> None:
    """Call ``work(world, settings, out, *arguments)`` in every process that takes part: most often in this one.

    Args:
        work: a function of a module: new processes must find it.
        settings: what to do; they say how many processes are wanted.
        out: the run's folder; rank 0's counts, for a default has the time in its name.
        *arguments: as they are for this process. Processes that are started here get the same.
    """
    training, world = settings.training, world_of_environment()
    backend = _checked_backend(training, world)
    try:
        if world.several:
            with together(world, backend):
                work(world, settings, Path(from_all(str(out))[0]), *arguments)
        elif training.devices > 1:
            launch(work, training.devices, backend, settings, out, *arguments)
        else:
            work(world, settings, out, *arguments)
    except RankFailed as error:
        kept = f". Every finished epoch is kept: go on with --resume --out {out}" if _gone(error, out) else ""
        raise RankFailed(f"{error}{kept}") from None


def _gone(error: RankFailed, out: Path) -> bool:
    """Whether there is a run to go on with: a rank is gone, and did not refuse what was asked."""
    return " is gone" in str(error) and (out / CONFIG).exists()


def _checked_backend(training: TrainingSettings, world: World) -> str:
    """How ranks talk, if there are as many as was asked for and a GPU for each that needs one."""
    wanted = training.devices * training.nodes
    if world.several and wanted not in (1, world.size):
        raise ValueError(
            f"training.devices {training.devices} × training.nodes {training.nodes} is {wanted}, and {world.size} "
            "processes were started: leave them out, or let torchrun or srun start as many"
        )
    if not world.several and training.nodes > 1:
        raise ValueError(
            f"training.nodes {training.nodes}: start the command on each of them, as in `torchrun --nnodes "
            f"{training.nodes} --nproc_per_node {training.devices} ... ringfence train ...` or by srun"
        )
    here = world.local_size if world.several else training.devices
    if choose_accelerator(training.device) == "cpu":
        cores = os.cpu_count() or 1
        if here > PER_CORE * cores:
            raise ValueError(
                f"training.devices: {here} processes on {cores} core{'s' * (cores != 1)} would only be in each "
                f"other's way; use {cores}, and at most {PER_CORE * cores}"
            )
        return "gloo"
    there = torch.cuda.device_count()
    if here > there:
        raise ValueError(
            f"training.devices: {here} processes need a GPU each, and torch sees {there} on this machine; use at "
            f"most {there}, or --training.device cpu"
        )
    return "cpu:gloo,cuda:nccl"


def check_same_everywhere(facts: Mapping[str, Any]) -> None:
    """Refuse ranks that were told, or see, different things.

    Args:
        facts: by name: settings, checksums of data.
    """
    if not met():
        return
    versions = {name: value for name, value in environment().items() if name in ("ringfence", "torch", "python")}
    everyones = from_all({name: str(value) for name, value in {**versions, **facts}.items()})
    for rank, theirs in enumerate(everyones):
        if different := [name for name in {**everyones[0], **theirs} if theirs.get(name) != everyones[0].get(name)]:
            name = different[0]
            raise ValueError(
                f"rank 0 and rank {rank} differ in {listed(different)} ({name} is {shown(everyones[0].get(name))} "
                f"on rank 0, and {shown(theirs.get(name))} on rank {rank}): give all ranks the same command and "
                "the same files"
            )
