"""Steep strips: f = w log(w / S) where a strip holds S < w, against the closed form, and what a sure softmax feels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import TaskFacts, Unit
from ringfence.weak.constraints.registry import make_constraints
from ringfence.weak.constraints.strips import Strips, steepened

BOX = {
    "box": torch.tensor([[[[[2, 10], [3, 9]]]]]),
    "whole": torch.ones(1, 1, 1, 2, dtype=torch.bool),
    "margin": torch.zeros(1, 2, dtype=torch.int64),
}


def both(logits: torch.Tensor, unit: Unit = "pixels") -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals of strips of 2 lines, plain and steep, where there is a strip."""
    region = Region(logits, classes=[1])
    found = [Strips(2, steep).ready(TaskFacts(("core",), 2)).residual(region, BOX, unit) for steep in (False, True)]
    there = found[0].f.isfinite()
    assert torch.equal(there, found[1].f.isfinite())
    return found[0].f[there], found[1].f[there]


@given(width=st.integers(1, 30), share=st.floats(1e-6, 3.0))
def test_it_is_the_logarithm_below_the_width_and_the_sum_above(width: int, share: float) -> None:
    sums = torch.tensor([share * width], dtype=torch.float64, requires_grad=True)
    f = width - steepened(sums, torch.tensor([float(width)]))
    f.backward()
    expected = width * math.log(1.0 / share) if share < 1.0 else width * (1.0 - share)
    assert f.item() == pytest.approx(expected, abs=1e-9)
    assert sums.grad is not None
    assert sums.grad.item() == pytest.approx(-1.0 / share if share < 1.0 else -1.0)


def test_it_holds_where_the_plain_one_holds() -> None:
    torch.manual_seed(0)
    logits = 3.0 * torch.randn(1, 2, 12, 12)
    logits[:, 1, :7] -= 8.0
    plain, steep = both(logits)
    assert (plain > 0).any()
    assert (plain < 0).any()
    assert torch.equal(plain > 0, steep > 0)
    torch.testing.assert_close(steep[plain <= 0], plain[plain <= 0])
    assert (steep[plain > 0] >= plain[plain > 0]).all()


@pytest.mark.parametrize("unit", ["pixels", "relative"])
@pytest.mark.parametrize("sure", [5.0, 10.0, 20.0])
def test_a_class_that_is_surely_missed_is_pulled_at_all_the_same(unit: Unit, sure: float) -> None:
    """d(w log(w / Σ s)) / d logits sums to -w (1 - s): the plain one's pull is s times as large, and vanishes."""
    pulls = []
    for number in (0, 1):
        logits = torch.zeros(1, 2, 12, 12)
        logits[:, 0] = sure
        logits.requires_grad_()
        both(logits, unit)[number].sum().backward()
        assert logits.grad is not None
        pulls.append(-logits.grad[:, 1].sum().item())
    s = 1.0 / (1.0 + math.exp(sure))
    strips = 8 // 2 + 6 // 2
    scale = 1.0 if unit == "pixels" else 0.5
    assert pulls[1] == pytest.approx(strips * 2 * scale * (1.0 - s), rel=1e-3)
    assert pulls[0] == pytest.approx(s * (1.0 - s) * 2 * 8 * 6 * scale, rel=1e-3)


def test_what_underflows_has_no_gradient_that_is_not_a_number() -> None:
    logits = torch.zeros(1, 2, 12, 12)
    logits[:, 0] = 200.0
    logits.requires_grad_()
    _, steep = both(logits)
    steep.sum().backward()
    assert steep.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_it_is_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_constraints({"strips": {"width": 3, "steep": True}})["strips"]
    assert isinstance(made, Strips)
    assert made.steep
    assert not Strips(3).steep
    make_prepared(tmp_path / "set")
    words = ["--data.prepared", str(tmp_path / "set"), "--constraints.strips.steep", "often"]
    assert main(["train", "boxes", *words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "constraints.strips.steep" in said
    assert "Traceback" not in said
