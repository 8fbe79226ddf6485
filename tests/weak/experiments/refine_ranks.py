"""Refined trainings for test_refine.py: importable by the processes that it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.train import _train
from ringfence.weak.ranks.world import World
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.refinement import RefinementSettings
from ringfence.weak.training.settings import NetworkSettings, TrainingSettings

EPOCHS = 4


def asked(folder: Path, refine: int = 1, data: dict[str, Any] | None = None, **training: Any) -> TrainSettings:
    """A convolution that learns a threshold in a second or two, and is refined."""
    begun = from_preset(TrainSettings, "boxes-small")
    usual: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 7, "lr": 0.1, "device": "cpu"}
    return replace(
        begun,
        network=NetworkSettings("torch.nn.Conv2d", {"kernel_size": 5, "padding": 2}),
        training=TrainingSettings(**(usual | training)),
        data=BoxDataSettings(prepared=str(folder / "set"), **(data or {})),
        refine=refine,
        refinement=RefinementSettings(unsure=0.2),
    )


def run(world: World, folder: Path) -> None:
    """In float64, where the order of sums makes no difference that a label would show."""
    torch.set_num_threads(1)
    _train(world, asked(folder, precision="64"), folder / f"of {world.size}", False, False, None)


def run_looking(world: World, folder: Path) -> None:
    """Likewise, from labels that brightness gives."""
    torch.set_num_threads(1)
    settings = asked(folder, 0, precision="64").changed({"refinement.looks": True})
    _train(world, settings, folder / f"of {world.size}", False, False, None)
