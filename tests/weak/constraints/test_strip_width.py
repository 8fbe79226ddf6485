"""Strips of a width for each class: as if each class were alone, and t² are the odds of each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import ringfence as rf
from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import Constraint, TaskFacts, Unit
from ringfence.weak.constraints.odds import FILL, YARDSTICK, add_yardsticks, strip_pulls
from ringfence.weak.constraints.outside import Outside
from ringfence.weak.constraints.registry import make_constraints
from ringfence.weak.constraints.slanted_strips import SlantedStrips
from ringfence.weak.constraints.strips import Strips

FACTS = TaskFacts(("liver", "cyst"), 2)
BOXES = (((2, 26), (1, 21)), ((28, 36), (22, 28)))
"""Rows and columns of the two classes, in 40 × 30 pixels."""


def targets() -> dict[str, torch.Tensor]:
    box = torch.tensor(BOXES)[None, :, None]
    return {
        "box": box,
        "whole": torch.ones(box.shape[:-1], dtype=torch.bool),
        "margin": torch.zeros(1, 2, dtype=torch.int64),
    }


def of_each() -> Strips:
    made = make_constraints({"strips": {"width": {"cyst": 2, "liver": 4}}})["strips"]
    assert isinstance(made, Strips)
    return made.ready(FACTS)


def logits_of(s: torch.Tensor) -> torch.Tensor:
    """From probabilities of two classes to logits."""
    rest = 1.0 - s.sum(dim=1, keepdim=True)
    return torch.cat([torch.zeros_like(rest), (s / rest).log()], dim=1)


def test_each_class_is_measured_as_if_it_were_alone() -> None:
    torch.manual_seed(0)
    s = 0.4 * torch.rand(1, 2, 40, 30, dtype=torch.float64) + 0.01
    found = of_each().residual(Region(logits_of(s)), targets(), "pixels")
    for number, width in enumerate((4, 2)):
        for axis in range(2):
            (top, bottom), (left, right) = BOXES[number]
            inside = s[0, number, top:bottom, left:right]
            lines = inside.sum(dim=1 - axis)
            expected = [width - part.sum() for part in lines.split(width) if len(part) == width]
            got = found.f[0, number, 0, axis]
            torch.testing.assert_close(got[got.isfinite()], torch.stack(expected))


@pytest.mark.parametrize("unit", ["pixels", "relative", "odds"])
@pytest.mark.parametrize("slanted", [False, True])
def test_equal_widths_by_name_are_one_width(unit: Unit, slanted: bool) -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 3, 40, 30, dtype=torch.float64)

    def measured(width: int | dict[str, int]) -> list[torch.Tensor]:
        one: Constraint = SlantedStrips([-20.0, 40.0], width) if slanted else Strips(width)
        one, rows, leaf = one.ready(FACTS), targets(), logits.clone().requires_grad_()
        add_yardsticks(rows, dict(rows), [one])
        loss = rf.Penalty()(one=one.residual(Region(leaf), rows, unit))
        return [loss, *torch.autograd.grad(loss, leaf), rows[YARDSTICK]]

    for one, other in zip(measured(3), measured({"cyst": 3, "liver": 3}), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("odds", [0.1, 1.0, 9.0])
def test_pull_and_push_balance_at_the_odds_of_each_class(odds: float) -> None:
    rows = targets()
    constraints: dict[str, Constraint] = {"strips": of_each(), "outside": Outside()}
    add_yardsticks(rows, dict(rows), constraints.values())
    for number, width in enumerate((4, 2)):  # z = w (π/4 · n - 1)
        across = [length for low, high in BOXES[number] for length in [high - low]][::-1]
        assert rows[YARDSTICK][0, number].item() == pytest.approx(
            1 / sum(1 / (width * (math.pi / 4 * length - 1)) for length in across), rel=1e-5
        )
    s = torch.full((1, 2, 40, 30), 1e-3, dtype=torch.float64)
    for number, ((top, bottom), (left, right)) in enumerate(BOXES):
        s[0, number, top:bottom, left:right] = FILL
    s.requires_grad_(True)
    region, fence = Region(logits_of(s)), rf.LogBarrier(math.sqrt(odds), 1.0)
    loss = fence(**{name: one.residual(region, rows, "odds") for name, one in constraints.items()})
    (slope,) = torch.autograd.grad(loss, s)
    for number, ((top, bottom), (left, right)) in enumerate(BOXES):
        inside = slope[0, number, top:bottom, left:right]
        outside = slope[0, number, 0, 0].expand_as(inside)
        torch.testing.assert_close(outside / -inside, torch.full_like(inside, odds), rtol=1e-4, atol=0.0)


def test_yardsticks_of_slanted_strips_are_by_class_too() -> None:
    made = SlantedStrips([-30.0, 30.0], {"liver": 4, "cyst": 2}).ready(FACTS)
    sides, whole = torch.tensor([[[[24.0, 20.0]], [[8.0, 6.0]]]]), torch.ones(1, 2, 1, 2, dtype=torch.bool)
    found = made.pulls(sides, whole)
    for number, width in enumerate((4, 2)):
        alone = strip_pulls(sides[:, number], whole[:, number], width)
        torch.testing.assert_close(found[:, number], 2 * alone)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="width: there is no class 'cist'; did you mean 'cyst'"):
        Strips({"liver": 3, "cist": 2}).ready(FACTS)
    with pytest.raises(ValueError, match="width: none is given for cyst; one is needed for each class"):
        Strips({"liver": 3}).ready(FACTS)
    with pytest.raises(
        ValueError, match=r"constraints.strips.width.liver must be a whole number, at least 1, got 0"
    ):
        make_constraints({"strips": {"width": {"liver": 0}}})
    with pytest.raises(ValueError, match="by class, and nobody said which classes"):
        Strips({"liver": 3}).residual(Region(torch.zeros(1, 3, 40, 30)), targets(), "pixels")


def test_it_trains(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", classes=2).path
    words = ["--data.prepared", str(prepared), "--training.device", "cpu", "--training.epochs", "1"]
    words += ["--network.init_args.features", "[2, 2, 2, 2, 2, 2]", "--out", str(tmp_path / "run")]
    width = "{class 1: 2, class 2: 1}"
    assert main(["train", "plan", *words, "--constraints.strips.width", width]) == 0
