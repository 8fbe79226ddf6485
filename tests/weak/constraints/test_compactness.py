"""Compactness: true of discs and balls of every size, and of several; not of snakes, combs and crosses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor
from true_masks import batch_of, found, ready

from prepared_sets import described_anew, make_prepared
from ringfence.segmentation import Region
from ringfence.weak.constraints.compactness import Compactness, ellipse_ratio
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.settings import BoxDataSettings


def balls(radius: float, count: int, axes: int, seed: int = 0) -> Tensor:
    """Digital discs or balls of one radius around random places between pixels: ``[count, 1, *space]``."""
    random = np.random.default_rng(seed)
    side = 2 * math.ceil(radius) + 4
    centres = side / 2 + random.uniform(-0.5, 0.5, (count, axes))
    centres[:2] = [[side / 2] * axes, [side / 2 - 0.5] * axes]
    apart = sum(
        (
            np.arange(side).reshape([-1 if one == axis else 1 for one in range(axes)])
            + 0.5
            - centres[:, axis].reshape(-1, *[1] * axes)
        )
        ** 2
        for axis in range(axes)
    )
    masks = torch.from_numpy(apart <= radius**2)[:, None]
    return masks[masks.flatten(1).any(dim=1)]


def residual_of(mask: Tensor, ratio: float = 1.5):
    constraints = ready({"compactness": {"ratio": ratio}}, mask.ndim - 2, ["a"])
    (one,) = constraints.values()
    return one.residual(found(mask), batch_of(mask, constraints), "pixels")


@pytest.mark.parametrize("axes", [2, 3])
def test_discs_and_balls_of_every_size_are_compact(axes: int) -> None:
    """The ratio that digital discs need is 1.17 at most (29 pixels), balls 1.05: there is room below the default."""
    radii = (
        np.concatenate([np.linspace(0.4, 6, 30), np.linspace(6, 30, 9)]) if axes == 2 else np.linspace(0.4, 9, 25)
    )
    for radius in radii:
        residual = residual_of(balls(radius, 12 if axes == 2 else 4, axes), ratio=1.2)
        assert bool(residual.satisfied().all()), radius
        assert bool(residual.present.all())
    assert Compactness().ratio == 2.0


def test_residuals_are_those_of_the_formula() -> None:
    mask = balls(7.3, 3, 2)
    constraints = ready({"compactness": {"ratio": 1.3}}, 2, ["a"])
    batch = batch_of(mask, constraints)
    region = Region(torch.randn(len(mask), 2, *mask.shape[2:], dtype=torch.float64))
    plain, relative = (constraints["compactness"].residual(region, batch, unit) for unit in ("pixels", "relative"))
    size = region.probabilities.flatten(2).sum(dim=-1)
    expected = region.boundary - 2 * torch.sqrt(math.pi * 1.3 * (size + 1))
    torch.testing.assert_close(plain.f, expected)
    area = (batch["box"][..., 1] - batch["box"][..., 0]).prod(dim=-1).double()
    torch.testing.assert_close(relative.f, expected / (2 * torch.sqrt(math.pi * 1.3 * (area[..., 0] + 1))))


def test_volumes_are_compared_with_balls() -> None:
    mask = balls(4.2, 2, 3)
    constraints = ready({"compactness": {"ratio": 1.3}}, 3, ["a"])
    batch = batch_of(mask, constraints)
    region = Region(torch.randn(len(mask), 2, *mask.shape[2:], dtype=torch.float64))
    size = region.probabilities.flatten(2).sum(dim=-1)
    expected = region.boundary - (36 * math.pi * 1.3 * (size + 1) ** 2) ** (1 / 3)
    torch.testing.assert_close(constraints["compactness"].residual(region, batch, "pixels").f, expected)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("count", [2, 5])
def test_several_objects_may_have_as_many_boundaries(axes: int, count: int) -> None:
    one = balls(4.3, 2, axes)[:1]
    several = torch.cat([one] * count, dim=-1)
    assert bool(residual_of(several, ratio=1.1).satisfied().all())
    # as if they were one object: it has n times the boundary
    constraints = ready({"compactness": {"ratio": 1.1}}, axes, ["a"])
    batch = batch_of(several, constraints)
    assert batch["objects"].tolist() == [[count]]
    batch["objects"] = torch.ones_like(batch["objects"])
    assert float(constraints["compactness"].residual(found(several), batch, "pixels").violation) > 1.0


@pytest.mark.parametrize("shape", ["snake", "comb", "cross"])
def test_what_is_not_round_is_not_compact(shape: str) -> None:
    mask = torch.zeros(1, 1, 32, 32, dtype=torch.bool)
    if shape == "snake":
        for row in range(2, 28, 4):
            mask[0, 0, row, 2:30] = True
            mask[0, 0, row : row + 4, 2 if row % 8 == 2 else 29] = True
    elif shape == "comb":
        mask[0, 0, 4:24, 3:29:3] = True
        mask[0, 0, 4, 3:29] = True
    else:
        mask[0, 0, 14:17, 3:29] = mask[0, 0, 3:29, 14:17] = True
    residual = residual_of(mask)
    assert bool(residual.present.all())
    assert float(residual.violation.max()) > 5.0


def test_nothing_is_asked_of_what_is_not_all_seen() -> None:
    """Neither of what a window cut, nor of what the image's border may have cut: its other side may be anywhere."""
    mask = torch.zeros(4, 1, 20, 24, dtype=torch.bool)
    mask[0, 0, 5:11, 5:11] = True
    mask[1, 0, 19, 2:22] = True  # the edge of something large
    mask[2, 0, 9:12, 9:12] = mask[2, 0, 0, 3] = True  # one of two
    constraints = ready({"compactness": {}}, 2, ["a"])
    batch = batch_of(mask, constraints)
    (one,) = constraints.values()
    assert one.residual(found(mask), batch, "pixels").present.flatten().tolist() == [True, False, False, False]
    up = Motion.resampled(torch.ones(4, 2), torch.tensor([[-0.2, 0.0]] * 4), (20, 24))  # by 4: no border any more
    now = batch | one.moved(batch, up)
    shifted = mask.roll(-4, dims=2)
    shifted[2] = False
    shifted[2, 0, 5:8, 9:12] = True
    assert one.residual(found(shifted), now, "pixels").present.flatten().tolist() == [True, False, False, False]
    cut = batch | one.moved(batch, Motion.crop(torch.tensor([[7, 0]]), (20, 24), (13, 24)))
    assert not bool(one.residual(found(mask[:, :, 7:]), cut, "pixels").present.any())


def test_two_axes_or_three() -> None:
    with pytest.raises(ValueError, match="compactness is of areas or volumes"):
        Compactness().ready(TaskFacts(("a",), 1))


@pytest.mark.parametrize("half_axes", [(1.0, 1.0), (1.0, 0.4), (0.2, 1.0)])
def test_the_ratio_of_ellipses_is_that_of_their_circumference(half_axes: tuple[float, float]) -> None:
    a, b = half_axes
    length, _ = integrate.quad(lambda u: np.hypot(a * np.sin(u), b * np.cos(u)), 0.0, 2.0 * np.pi)
    expected = length**2 / (4.0 * np.pi * np.pi * a * b)
    assert float(ellipse_ratio(torch.tensor(half_axes))) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("half_axes", [(1.0, 1.0, 1.0), (0.2, 1.0, 1.0), (1.0, 0.6, 0.3)])
def test_the_ratio_of_ellipsoids_is_that_of_their_surface(half_axes: tuple[float, float, float]) -> None:
    a, b, c = half_axes

    def element(v: float, u: float) -> float:
        across = (b * c * np.sin(v) * np.cos(u), a * c * np.sin(v) * np.sin(u), a * b * np.cos(v))
        return float(np.sin(v) * np.linalg.norm(across))

    area, _ = integrate.dblquad(element, 0.0, 2.0 * np.pi, 0.0, np.pi)
    expected = area**3 / (36.0 * np.pi * (4.0 / 3.0 * np.pi * a * b * c) ** 2)
    assert float(ellipse_ratio(torch.tensor(half_axes))) == pytest.approx(expected, rel=0.035)


def test_a_ball_in_millimetres_is_compact_whatever_its_voxels(tmp_path: Path) -> None:
    """Slices five times as thick as pixels: a plain ratio would call every true ball ragged."""
    prepared = make_prepared(tmp_path / "set", cases=2, shape=(12, 64, 64), spacing=(5.0, 1.0, 1.0))
    grid = (np.indices((12, 64, 64)) + 0.5 - np.array([6.0, 32.0, 32.0])[:, None, None, None]).T * [5.0, 1.0, 1.0]
    ball = (grid**2).sum(axis=-1).T < 25.0**2
    for case in prepared.cases:
        np.savez(
            tmp_path / "set" / case.file, image=np.zeros((12, 1, 64, 64), np.uint8), mask=ball.astype(np.uint8)
        )
    prepared = described_anew(prepared)
    for spacing, holds in (((5.0, 1.0, 1.0), True), ((1.0, 1.0, 1.0), False)):
        known = replace(prepared, cases=tuple(replace(case, spacing=spacing) for case in prepared.cases))
        data = BoxDataSettings(prepared="set", patch=[12, 64, 64])
        task = box_task(data, {"compactness": {"ratio": 1.3}}, known)
        mask = task.train["mask"]
        residual = task.measure("pixels")(Region(200.0 * torch.cat([~mask, mask], dim=1).float()), task.train)
        assert bool(residual["compactness"].present.all())
        assert bool(residual["compactness"].satisfied().all()) is holds
    unknown = replace(prepared, cases=tuple(replace(case, spacing=None) for case in prepared.cases))
    with pytest.raises(
        ValueError, match=r"compactness: in volumes it needs the spacing of voxels, and case0's header"
    ):
        box_task(BoxDataSettings(prepared="set", patch=[12, 64, 64]), {"compactness": {}}, unknown)
