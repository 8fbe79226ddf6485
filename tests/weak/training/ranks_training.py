"""What each rank does in test_ranks.py, and networks that misbehave: importable by the processes that it starts."""

from __future__ import annotations

import atexit
import faulthandler
import math
import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.weak.experiments.on_ranks import check_same_everywhere
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.experiments.train import _train
from ringfence.weak.ranks.world import World
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.divergence import Diverged
from ringfence.weak.training.loading.shards import share
from ringfence.weak.training.settings import (
    AugmentSettings,
    NetworkSettings,
    OptimiserSettings,
    ScheduleSettings,
    TrainingSettings,
)
from ringfence.weak.training.together.batch_norm import norms_of_all_ranks
from ringfence.weak.training.together.global_batch import dice_loss

EPOCHS = 3
HANGS = 240.0
"""Seconds after which a rank shows where it is: sooner than who waits for it gives up."""
PLAIN = AugmentSettings([], average=True, shift=0.0, scale=0.0, intensity=0.0, bias=0.0, noise=0.0)
ALIKE = ("log_barrier", "lagrangian", "relu_lagrangian", "augmented_lagrangian", "full_supervision")


class Small(nn.Module):
    """Two convolutions with a norm between them: the smallest network with everything that ranks must agree on."""

    def __init__(self, in_channels: int, out_channels: int, norm: bool = True) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3) if norm else nn.Identity()
        self.last = nn.Conv2d(3, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


class Bright(nn.Module):
    """The brighter, the likelier: too little, so that levels are needed."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(0.85))

    def forward(self, x: Tensor) -> Tensor:
        smooth = nn.functional.avg_pool2d(x[:, :1], 3, 1, 1)
        return torch.cat([torch.zeros_like(smooth), 4.0 * (smooth - self.threshold)], dim=1)


class Unused(Small):
    """Has weights that nothing depends on."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.spare = nn.Linear(2, 2)


class Mortal(Small):
    """Is killed in a step of training, on the rank and in the step that DIE names: ``1:7``; or fails: ``1:7:fault``."""

    steps = 0

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        if "DIE" in os.environ:  # a process of its own
            faulthandler.dump_traceback_later(HANGS)
            atexit.register(tell_threads)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():
            Mortal.steps += 1
            rank, step, *how = os.environ["DIE"].split(":") if os.environ.get("DIE") else ("", "0")
            if rank == os.environ.get("RANK", "0") and Mortal.steps == int(step):
                if how:
                    raise RuntimeError("a fault of the network's")
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def tell_threads() -> None:
    """Which threads this process still has: gloo's may abort it, if it ends before they do."""
    names = [(one / "comm").read_text().strip() for one in Path("/proc/self/task").iterdir()]
    print(f"threads at the end of rank {os.environ['RANK']}: {names}", file=sys.stderr)


class Sick(Small):
    """Gives numbers that are none on rank 1, in its fourth step."""

    steps = 0

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        if self.training and torch.is_grad_enabled():
            Sick.steps += 1
            if Sick.steps == 4 and os.environ.get("RANK") == "1":
                return logits * torch.nan
        return logits


@cache
def usual_settings() -> TrainSettings:
    """Of the preset; read once."""
    return from_preset(TrainSettings, "boxes").changed(
        {"full_supervision.dice": 0.5, "relu_lagrangian.interval": 2}
    )


def asked(folder: Path, method: str, **training: Any) -> TrainSettings:
    """A training of a few seconds; 18 images in batches of 7, so that with 4 ranks one has no share of the last."""
    begun = replace(
        usual_settings(),
        network=NetworkSettings(f"{__name__}.Small", {}),
        optimiser=OptimiserSettings("torch.optim.SGD", {}),
        schedule=ScheduleSettings(),
        augment=PLAIN,
        data=BoxDataSettings(prepared=str(folder / "set")),
        method=method,
    )
    usual: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 7, "lr": 1e-5, "device": "cpu", "prior": None}
    if method == "full_supervision":
        usual["lr"] = 0.1
    return replace(begun, training=TrainingSettings(**{**usual, "keep_checkpoint": True, **training}))


def network_of(settings: TrainSettings, name: str, **arguments: Any) -> TrainSettings:
    """The same with another network of this file."""
    return replace(settings, network=NetworkSettings(f"{__name__}.{name}", arguments))


def run(world: World, folder: Path) -> None:
    """Everything that is compared between numbers of ranks."""
    torch.set_num_threads(1)
    if world.several:
        faulthandler.dump_traceback_later(HANGS)
    out = folder / f"of {world.size}"

    def go(name: str, settings: TrainSettings, resume: bool = False) -> None:
        _train(world, settings, out / name, resume, False, None)

    for method in ALIKE:
        go(method, asked(folder, method))
    parts = network_of(asked(folder, "log_barrier", accumulate=3), "Small", norm=False)
    go("accumulated", parts)
    go("unused", network_of(asked(folder, "log_barrier"), "Unused"))
    go("calibrated", network_of(asked(folder, "log_barrier", calibrate=True), "Bright"))
    go("augmented", replace(asked(folder, "log_barrier", neighbours=0.2), augment=AugmentSettings(turn=20.0)))
    found: dict[str, Any] = {"norm": normed(world), "rounded": rounded(world), "dice": dice(world)}
    if world.several:
        try:
            go("sick", network_of(asked(folder, "log_barrier"), "Sick"))
        except Diverged as error:
            found["diverged"] = str(error)
        try:
            check_same_everywhere({"training.lr": 1e-3 * (1 + world.rank), "manifest": "same"})
        except ValueError as error:
            found["different"] = str(error)
    torch.save(found, folder / f"rank{world.rank}of{world.size}.pt")


def normed(world: World) -> dict[str, Tensor]:
    """Two steps through batch norms of every kind, in float64, with rows that are spread unevenly and a ghost."""
    found: dict[str, Tensor] = {}
    for axes, kind in ((1, nn.BatchNorm1d), (2, nn.BatchNorm2d), (3, nn.BatchNorm3d)):
        for name, options in (("usual", {}), ("plain", {"affine": False}), ("mean", {"momentum": None})):
            torch.manual_seed(axes)
            norm = kind(4, **options, dtype=torch.float64)
            weight = torch.randn(4, dtype=torch.float64)
            for rows in (7, 3):  # of three rows, the fourth rank has none
                x = 100.0 + torch.randn(rows, 4, *[5] * axes, dtype=torch.float64)
                mine = share(torch.arange(rows), world.rank, world.size)
                own = x[mine if len(mine) else [0]].requires_grad_()
                with norms_of_all_ranks(norm) if world.several else nullcontext() as ghost:
                    if world.several:
                        ghost.here = not len(mine)
                    y = norm(own)
                    counts = float(len(mine) > 0)
                    (counts * (y.sin() * weight.view(1, -1, *[1] * axes)).sum()).backward()
                gradient = torch.zeros_like(x)
                if len(mine):
                    gradient[mine] = own.grad
                found[f"{axes} {name} {rows} gradient"] = gradient
            for key, value in norm.state_dict().items():
                found[f"{axes} {name} {key}"] = value.double()
            for key, value in norm.named_parameters():
                found[f"{axes} {name} gradient of {key}"] = value.grad
            assert "forward" not in vars(norm)
    return found


def rounded(world: World) -> Tensor:
    """A batch norm of bfloat16, as autocast has it: of this rank's rows, the answer and its gradient."""
    torch.manual_seed(0)
    norm, x = nn.BatchNorm2d(4), (30.0 + 4.0 * torch.randn(7, 4, 5, 5)).bfloat16()
    mine = share(torch.arange(7), world.rank, world.size)
    own = (x[mine] if world.several else x[mine].float()).requires_grad_()
    with norms_of_all_ranks(norm) if world.several else nullcontext():
        y = norm(own)
        y.sin().sum().backward()
    assert y.dtype == own.dtype
    found = torch.zeros(2, *x.shape)
    found[0, mine], found[1, mine] = y.detach().float(), own.grad.float()
    return found


def dice(world: World) -> Tensor:
    """The gradient of the Dice loss of five rows, of which some ranks have none."""
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 3, 6, 5, dtype=torch.float64), torch.randint(0, 3, (3, 6, 5))
    mine = share(torch.arange(3), world.rank, world.size)
    own = logits[mine if len(mine) else [0]].requires_grad_()
    loss = dice_loss(own, labels[mine if len(mine) else [0]], counts=len(mine) > 0)
    loss.backward()
    gradient = torch.zeros_like(logits)
    if len(mine):
        gradient[mine] = own.grad / world.size  # as DDP takes the mean
    return torch.cat([gradient.flatten(), loss.detach()[None] / world.size])


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
