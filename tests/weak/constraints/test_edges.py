"""Edges: a boundary along an edge of the image is short, one through plain surroundings is as long as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ringfence.segmentation import Region
from ringfence.segmentation.neighbours import weight_of
from ringfence.weak.constraints.edges import Edges
from ringfence.weak.constraints.odds import YARDSTICK

PLACE = [[4, 12], [3, 10]]
STEPS = [(0, 1), (1, -1), (1, 0), (1, 1)]


def region(mask: Tensor) -> Region:
    """Of a mask ``[N, *space]``: logits of ± 40."""
    logits = 80.0 * mask.double() - 40.0
    return Region(torch.stack([-logits, logits], dim=1))


def likely(p: Tensor) -> Region:
    """Of probabilities ``[N, *space]``."""
    p = p.clamp(1e-12, 1.0 - 1e-12)
    return Region(torch.stack([(1.0 - p).log(), p.log()], dim=1))


def box() -> Tensor:
    """A mask that fills PLACE."""
    mask = torch.zeros(1, 16, 16, dtype=torch.float64)
    mask[0, 4:12, 3:10] = 1.0
    return mask


def targets(image: Tensor, box: list[list[int]]) -> dict[str, Tensor]:
    return {"image": image, "box": torch.tensor(box)[None, None, None], YARDSTICK: torch.tensor([[6.0]])}


def by_hand(image: np.ndarray, mask: np.ndarray) -> float:
    """Pixel by pixel: the definition."""
    height, width = mask.shape
    blurred = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            blurred[y, x] = image[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].mean()
    total = 0.0
    for step in STEPS:
        pairs = [
            ((y, x), (y + 2 * step[0], x + 2 * step[1]))
            for y in range(height)
            for x in range(width)
            if 0 <= y + 2 * step[0] < height and 0 <= x + 2 * step[1] < width
        ]
        apart = np.array([blurred[p] - blurred[q] for p, q in pairs])
        change = np.array([abs(float(mask[p]) - float(mask[q])) for p, q in pairs])
        alike = np.exp(-0.5 * (apart / (1.5 * np.abs(apart).mean())) ** 2)
        total += weight_of(step) / 2 * float((alike * change).sum())
    return total


def test_it_is_what_it_says() -> None:
    generator = np.random.default_rng(0)
    image, mask = generator.integers(0, 255, (9, 11)), generator.random((9, 11)) > 0.5
    asked = targets(torch.from_numpy(image)[None, None], [[0, 9], [0, 11]])
    found = Edges().residual(region(torch.from_numpy(mask)[None]), asked, "pixels").f
    assert found.item() == pytest.approx(by_hand(image, mask), rel=1e-6)


def test_a_disc_is_preferred_to_its_box_and_brightness_does_not_matter() -> None:
    rows, columns = np.mgrid[:40, :40]
    disc = torch.from_numpy(np.hypot(rows - 19.5, columns - 19.5) < 12.0)
    box = torch.zeros_like(disc)
    box[8:32, 8:32] = True
    noise = torch.from_numpy(np.random.default_rng(1).normal(0.0, 8.0, (40, 40)))
    image = (100.0 + 40.0 * disc + noise)[None, None]
    place = [[8, 32], [8, 32]]
    of_disc, of_box = (
        Edges().residual(region(one[None]), targets(image, place), "pixels").f for one in (disc, box)
    )
    assert of_disc.item() < 0.4 * of_box.item()
    brighter = Edges().residual(region(disc[None]), targets(0.5 * image + 60.0, place), "pixels").f
    assert brighter.item() == pytest.approx(of_disc.item())


def test_where_nothing_can_be_told_apart_it_is_the_length() -> None:
    box = torch.zeros(1, 30, 30)
    box[0, 5:25, 5:25] = 1.0
    found = Edges().residual(region(box), targets(torch.full((1, 1, 30, 30), 7), [[5, 25], [5, 25]]), "pixels").f
    assert found.item() == pytest.approx(80.0, rel=0.1)  # four sides of twenty pixels


@given(faded=st.floats(0.51, 1.0), seed=st.integers(0, 99))
def test_what_fades_has_as_long_a_boundary(faded: float, seed: int) -> None:
    """A region as likely as ``faded`` everywhere."""
    image = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(seed)).double()
    asked = targets(image, PLACE)
    sure = Edges().residual(region(box()), asked, "pixels").f
    scale = torch.tensor(faded, dtype=torch.float64, requires_grad=True)
    pale = Edges(fading=False).residual(likely(scale * box()), asked, "pixels").f
    assert pale.item() == pytest.approx(sure.item(), rel=1e-6)
    (slope,) = torch.autograd.grad(pale.sum(), scale)
    assert slope.item() == pytest.approx(0.0, abs=1e-6 * sure.item())
    fading = Edges().residual(likely(scale * box()), asked, "pixels").f
    assert fading.item() == pytest.approx(faded * sure.item(), rel=1e-6)


@pytest.mark.parametrize("faint", [0.49, 0.1, 0.01])
def test_what_is_not_found_yet_is_held_back_the_less_the_fainter(faint: float) -> None:
    """The slope is 4 a of the length: less than that of a boundary that is counted as it is, below ¼."""
    asked = targets(torch.zeros(1, 1, 16, 16, dtype=torch.float64), PLACE)
    length = Edges().residual(region(box()), asked, "pixels").f.item()
    scale = torch.tensor(faint, dtype=torch.float64, requires_grad=True)
    f = Edges(fading=False).residual(likely(scale * box()), asked, "pixels").f
    (slope,) = torch.autograd.grad(f.sum(), scale)
    assert f.item() == pytest.approx(4.0 * faint * faint * length, rel=1e-5)
    assert slope.item() == pytest.approx(4.0 * faint * length, rel=1e-5)


def test_without_a_box_there_is_no_boundary_to_be_short() -> None:
    asked = targets(torch.zeros(1, 1, 16, 16, dtype=torch.float64), [[0, 0], [0, 0]])
    assert Edges(fading=False).residual(region(box()), asked, "pixels").f.item() == 0.0
    assert Edges().residual(region(box()), asked, "pixels").f.item() > 0.0


@pytest.mark.parametrize("logit", [-40.0, -90.0, -1e4])
def test_where_nothing_is_likely_gradients_are_finite(logit: float) -> None:
    logits = torch.zeros(1, 2, 8, 8)
    logits[:, 1] = logit
    logits.requires_grad_()
    Edges(fading=False).residual(
        Region(logits), targets(torch.rand(1, 1, 8, 8), [[2, 6], [2, 6]]), "pixels"
    ).f.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_it_has_a_gradient_whoever_is_asked_first() -> None:
    logits = torch.zeros(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    image = torch.zeros(1, 1, 8, 8)
    ramp = torch.linspace(-1, 1, 8) * torch.tensor([[[[-1.0]], [[1.0]]]])
    Edges().residual(Region(logits + ramp), targets(image, [[2, 6], [2, 6]]), "pixels").f.sum().backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) > 0.0


def test_units_are_sides_and_yardsticks() -> None:
    mask = torch.zeros(1, 20, 20)
    mask[0, 4:14, 4:16] = 1.0
    asked = targets(torch.zeros(1, 1, 20, 20), [[4, 14], [4, 16]])
    pixels, relative, odds = (
        Edges(2.0).residual(region(mask), asked, unit).f for unit in ("pixels", "relative", "odds")
    )
    assert relative.item() == pytest.approx(pixels.item() / 11.0)
    assert odds.item() == pytest.approx(pixels.item() * 2.0 * 0.01 * 11.0 / 6.0)
    with pytest.raises(ValueError, match="strength"):
        Edges(0.0)
    with pytest.raises(TypeError, match="fading must be true or false, got 'false'"):
        Edges(fading="false")  # type: ignore[arg-type]


def test_in_volumes_slices_are_by_themselves() -> None:
    mask = torch.zeros(1, 3, 12, 12)
    mask[0, 1, 3:9, 3:9] = 1.0
    image = torch.rand(1, 1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    volume = Edges().residual(region(mask), targets(image, [[1, 2], [3, 9], [3, 9]]), "pixels").f
    empty = mask.clone()
    empty[0, 1] = 0.0
    nothing = Edges().residual(region(empty), targets(image, [[1, 2], [3, 9], [3, 9]]), "pixels").f
    assert nothing.item() == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < volume.item() < 30.0
