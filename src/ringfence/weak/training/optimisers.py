"""Optimisers and learning-rate schedules by name: torch's, or any of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ringfence import class_path
from ringfence.weak.training.settings import OptimiserSettings, ScheduleSettings

LENGTHS: Final = ("T_max", "total_iters", "total_steps")
"""What torch's schedulers call the number of epochs."""


def make_optimiser(settings: OptimiserSettings, lr: float, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimiser, with this learning rate, and fused where its class can be."""
    known = class_path.parameters(class_path.find(settings.class_path, "optimiser.class_path"))
    usual = {name: value for name, value in {"lr": lr, "fused": True}.items() if name in known}
    if any(settings.init_args.get(name) for name in ("foreach", "differentiable")):
        usual.pop("fused", None)  # torch allows one of them
    return class_path.make(
        settings.class_path, usual | settings.init_args, "optimiser", Optimizer, list(parameters)
    )


def make_schedule(settings: ScheduleSettings, optimiser: Optimizer, epochs: int) -> LRScheduler | None:
    """The schedule, stepped once an epoch; None for a constant rate."""
    if settings.class_path is None:
        return None
    known = class_path.parameters(class_path.find(settings.class_path, "schedule.class_path"))
    usual = {name: epochs for name in LENGTHS if name in known}
    return class_path.make(settings.class_path, usual | settings.init_args, "schedule", LRScheduler, optimiser)


def check_optimiser(optimiser: OptimiserSettings, schedule: ScheduleSettings, lr: float, epochs: int) -> None:
    """Refuse an optimiser or a schedule that cannot be made, before anything is trained."""
    made = make_optimiser(optimiser, lr, nn.Linear(1, 1).parameters())
    make_schedule(schedule, made, epochs)
