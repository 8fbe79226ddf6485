"""Optimisers and schedules by their class paths: torch's and one's own, with what is usual filled in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from ringfence.weak.training.optimisers import check_optimiser, make_optimiser, make_schedule
from ringfence.weak.training.settings import OptimiserSettings, ScheduleSettings

ADAM, COSINE = OptimiserSettings(), ScheduleSettings()


def parameters() -> list[nn.Parameter]:
    return list(nn.Linear(2, 1).parameters())


def rates(schedule: ScheduleSettings, epochs: int, lr: float = 1.0) -> list[float]:
    """The learning rate of each epoch."""
    optimiser = torch.optim.SGD(parameters(), lr=lr)
    made, found = make_schedule(schedule, optimiser, epochs), []
    for _ in range(epochs):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if made is not None:
            made.step()
    return found


def test_the_default_is_fused_adam_along_a_cosine() -> None:
    made = make_optimiser(ADAM, 0.25, parameters())
    assert type(made) is torch.optim.Adam
    group = made.param_groups[0]
    assert (group["lr"], tuple(group["betas"]), group["fused"]) == (0.25, (0.9, 0.99), True)
    assert rates(COSINE, 4, 0.5) == pytest.approx(
        [0.25 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4)]
    )


@pytest.mark.parametrize(
    ("class_path", "init_args", "expected"),
    [
        ("torch.optim.SGD", {"momentum": 0.9}, {"lr": 0.25, "momentum": 0.9, "fused": True}),
        ("torch.optim.AdamW", {"lr": 0.5}, {"lr": 0.5, "fused": True}),
        ("torch.optim.AdamW", {"foreach": True}, {"lr": 0.25, "foreach": True, "fused": None}),
        ("torch.optim.Rprop", {}, {"lr": 0.25}),  # cannot be fused
    ],
)
def test_any_of_torch_s_optimisers(class_path: str, init_args: dict, expected: dict) -> None:
    group = make_optimiser(OptimiserSettings(class_path, init_args), 0.25, parameters()).param_groups[0]
    assert {name: group[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("class_path", "init_args", "expected"),
    [
        (None, {}, [1.0, 1.0, 1.0, 1.0]),
        ("torch.optim.lr_scheduler.ExponentialLR", {"gamma": 0.5}, [1.0, 0.5, 0.25, 0.125]),
        ("torch.optim.lr_scheduler.PolynomialLR", {}, [1.0, 0.75, 0.5, 0.25]),  # total_iters is the epochs
        ("torch.optim.lr_scheduler.PolynomialLR", {"total_iters": 2}, [1.0, 0.5, 0.0, 0.0]),
        ("torch.optim.lr_scheduler.StepLR", {"step_size": 2}, [1.0, 1.0, 0.1, 0.1]),
    ],
)
def test_any_of_torch_s_schedules(class_path: str | None, init_args: dict, expected: list[float]) -> None:
    assert rates(ScheduleSettings(class_path, init_args), 4) == pytest.approx(expected)


def test_one_s_own_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_optimisers.py").write_text(
        "import torch\n"
        "class Lazy(torch.optim.SGD):\n"
        "    def __init__(self, params, lr, laziness=2.0):\n"
        "        super().__init__(params, lr=lr / laziness)\n"
        "class Down(torch.optim.lr_scheduler.LinearLR):\n"
        "    def __init__(self, optimizer, T_max):\n"
        "        super().__init__(optimizer, 1.0, 0.0, T_max)\n"
    )
    monkeypatch.chdir(tmp_path)
    made = make_optimiser(OptimiserSettings("own_optimisers.Lazy", {}), 1.0, parameters())
    assert made.param_groups[0]["lr"] == 0.5
    assert rates(ScheduleSettings("own_optimisers.Down", {}), 4) == pytest.approx([1.0, 0.75, 0.5, 0.25])


@pytest.mark.parametrize(
    ("optimiser", "schedule", "message"),
    [
        (OptimiserSettings("torch.optim.Adamm", {}), COSINE, r"optimiser.class_path: torch.optim has no 'Adamm'; did you mean 'Adam"),
        (OptimiserSettings("torch.nn.Linear", {}), COSINE, "optimiser.class_path: 'torch.nn.Linear' is not a torch.optim.*Optimizer"),
        (OptimiserSettings("torch.optim.SGD", {"momentun": 1}), COSINE, r"optimiser.init_args: .*'momentun'(.|\n)*It takes: lr, momentum"),
        (OptimiserSettings("torch.optim.SGD", {"momentum": -1}), COSINE, "optimiser.init_args: .* Invalid momentum value"),
        (ADAM, ScheduleSettings("StepLR", {}), "schedule.class_path: 'StepLR' needs its module"),
        (ADAM, ScheduleSettings("torch.optim.lr_scheduler.StepLR", {}), r"schedule.init_args: .*step_size(.|\n)*It takes: step_size, gamma"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_by_name(
    optimiser: OptimiserSettings, schedule: ScheduleSettings, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_optimiser(optimiser, schedule, 0.1, 5)
