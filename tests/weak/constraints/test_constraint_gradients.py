"""Gradients: finite wherever a network may be, right in 64-bit, and the same under autocast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from true_masks import batch_of, grown, ready

from ringfence.segmentation import Region
from ringfence.weak.constraints.registry import kinds

SETTINGS = {
    "size": {"slack": 0.1},
    "scribbles": {"points": 5},
    "inclusion": {"inner": "lesion", "outer": "organ"},
    "separation": {"first": "lesion", "second": "other"},
}
SPACES = [(12, 14), (4, 6, 8)]


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("unit", ["pixels", "relative"])
@pytest.mark.parametrize("kind", sorted(kinds()))
def test_gradients_are_finite(kind: str, unit: str, space: tuple[int, ...]) -> None:
    """Of random logits, none, very certain ones either way, and all of one class; also where there is no object."""
    constraint = ready({kind: SETTINGS.get(kind, {})}, len(space))[kind]
    mask = grown(4, space, seed=1)
    batch = batch_of(mask, {kind: constraint})
    noise = torch.randn(4, 4, *space)
    certain = 1e4 * torch.nn.functional.one_hot(torch.randint(4, (4, *space)), 4).movedim(-1, 1).float()
    all_of_one = torch.zeros(4, 4, *space)
    all_of_one[:, 1] = 1e4
    nothing = torch.zeros(4, 4, *space)
    nothing[:, 0] = 1e4
    moved = 0.0
    for start in (noise, 0 * noise, certain, -certain, all_of_one, nothing):
        logits = start.clone().requires_grad_()
        residual = constraint.residual(Region(logits), batch, unit)
        assert bool(residual.f[residual.present].isfinite().all())
        assert bool(residual.present.any()) or kind == "compactness"
        residual.filled(0.0).square().sum().backward()
        assert logits.grad is not None
        assert bool(logits.grad.isfinite().all())
        moved = max(moved, float(logits.grad.abs().max()))
    assert moved > 0.0 or not bool(residual.present.any())


@pytest.mark.parametrize("space", [(6, 7), (3, 4, 4)], ids=str)
@pytest.mark.parametrize(
    "kind", ["compactness", "inclusion", "separation", "slanted_strips", "strips", "box_size", "scribbles"]
)
def test_gradients_are_right(kind: str, space: tuple[int, ...]) -> None:
    settings = {"slanted_strips": {"angles": [-30.0, 45.0], "width": 1}}.get(kind, SETTINGS.get(kind, {}))
    constraint = ready({kind: settings}, len(space))[kind]
    mask = torch.zeros(2, 3, *space, dtype=torch.bool)
    mask[(slice(None), slice(None), *(slice(1, length - 1) for length in space))] = True
    mask[1, 0] = False
    batch = batch_of(mask, {kind: constraint})
    logits = torch.randn(2, 4, *space, dtype=torch.float64, requires_grad=True)

    def values(logits: Tensor) -> Tensor:
        return constraint.residual(Region(logits), batch, "relative").filled(0.0)

    assert float(values(logits.detach()).abs().max()) > 0.0
    assert torch.autograd.gradcheck(values, (logits,), fast_mode=True)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_half_precision_is_the_same_up_to_its_logits(kind: str) -> None:
    """Under autocast residuals are those of the rounded logits: sums and differences stay in 32-bit."""
    constraint = ready({kind: SETTINGS.get(kind, {})}, 2)[kind]
    mask = grown(4, (24, 28), seed=2)
    if kind == "compactness":
        mask = torch.zeros_like(mask)
        mask[:, :, 5:15, 5:15] = True
    batch = batch_of(mask, {kind: constraint})
    logits = torch.randn(4, 4, 24, 28).bfloat16()
    exact = constraint.residual(Region(logits.float()), batch, "pixels")
    with torch.autocast("cpu", torch.bfloat16):
        half = constraint.residual(Region(logits), batch, "pixels")
    assert half.f.dtype == torch.float32
    assert bool(half.present.any())
    torch.testing.assert_close(half.f, exact.f)
