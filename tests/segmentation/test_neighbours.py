"""Contact against loops over faces, and the boundary's length against geometry."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ringfence.segmentation import Region, boundary_length, contact

SPACES = [(9,), (6, 7), (4, 5, 3), (1, 5)]


def pairs_by_loops(space: tuple[int, ...], steps: list[tuple[int, ...]]) -> list[tuple[tuple, tuple, tuple]]:
    """(i, j, step) for every pair of pixels i and j = i + step within the image."""
    found = []
    for pixel, step in itertools.product(np.ndindex(*space), steps):
        other = tuple(x + by for x, by in zip(pixel, step, strict=True))
        if all(0 <= x < length for x, length in zip(other, space, strict=True)):
            found.append((pixel, other, step))
    return found


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_against_loops_over_pairs_of_pixels(space: tuple[int, ...], seed: int) -> None:
    p, q = torch.rand(2, 2, 3, *space, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).unbind(0)
    axes = len(space)
    faces = [tuple(int(axis == other) for other in range(axes)) for axis in range(axes)]
    wanted = torch.zeros(2, 3, dtype=torch.float64)
    for i, j, _ in pairs_by_loops(space, faces):
        wanted += p[(..., *i)] * q[(..., *j)] + p[(..., *j)] * q[(..., *i)]
    torch.testing.assert_close(contact(p, q, axes), wanted, rtol=1e-12, atol=1e-12)

    every = [step for step in itertools.product((-1, 0, 1), repeat=axes) if any(step)]  # each pair twice
    shares = {1: 2 * 0.04577789, 2: 2 * 0.03698062, 3: 2 * 0.03519563}
    length = torch.zeros(2, 3, dtype=torch.float64)
    for i, j, step in pairs_by_loops(space, every):
        steps = sum(map(abs, step))
        weight = [1.0, math.pi / 8 / steps**0.5, 2 * shares[steps] / steps**0.5][axes - 1]
        length += weight / 2 * (p[(..., *i)] - p[(..., *j)]).abs()
    torch.testing.assert_close(boundary_length(p, axes), length, rtol=1e-12, atol=1e-12)


def test_contact_of_masks_is_the_number_of_faces_between_them() -> None:
    p, q = torch.zeros(2, 1, 6, 8).unbind(0)
    p[:, :3, :4] = 1
    q[:, 3:, 4:] = 1
    assert contact(p, q, 2).tolist() == [0.0]  # corner to corner
    q[:, 3, 1:] = 1
    assert contact(p, q, 2).tolist() == [3.0]
    assert contact(q, p, 2).tolist() == [3.0]
    dilated = scipy.ndimage.binary_dilation(p[0].numpy())
    q = 1 - torch.from_numpy(dilated).float()[None]
    assert contact(p, q, 2).tolist() == [0.0]


def places(space: tuple[int, ...]) -> list[Tensor]:
    return torch.meshgrid(*[torch.arange(length, dtype=torch.float64) for length in space], indexing="ij")


@pytest.mark.parametrize("radius", [6.0, 11.3, 20.0, 33.3])
def test_discs(radius: float) -> None:
    y, x = places((80, 80))
    centres = torch.rand(10, 2, 1, 1, dtype=torch.float64) + 39.5
    discs = ((y - centres[:, 0]) ** 2 + (x - centres[:, 1]) ** 2 <= radius**2).double()
    ratio = boundary_length(discs, 2) / (2 * math.pi * radius)
    assert (ratio - 1).abs().max() < 0.06
    assert (ratio.mean() - 1).abs() < 0.03


@pytest.mark.parametrize("radius", [5.0, 9.4, 13.0])
def test_balls(radius: float) -> None:
    z, y, x = places((32, 32, 32))
    centres = torch.rand(5, 3, 1, 1, 1, dtype=torch.float64) + 15.5
    balls = sum((c - centres[:, k]) ** 2 for k, c in enumerate((z, y, x))) <= radius**2
    ratio = boundary_length(balls.double(), 3) / (4 * math.pi * radius**2)
    assert (ratio - 1).abs().max() < 0.05


@pytest.mark.parametrize("degrees", [0, 10, 22.5, 30, 45, 77])
def test_turned_squares_and_cubes(degrees: float) -> None:
    """Four directions know a line's length to within 5.2 % below and 5.2 % above, whatever its own direction."""
    cos, sin, half = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 24.3
    y, x = (place - 39.7 for place in places((80, 80)))
    square = ((cos * y + sin * x).abs() <= half) & ((cos * x - sin * y).abs() <= half)
    length = boundary_length(square.double()[None], 2).item()
    assert length == pytest.approx(8 * half, rel=0.06)
    tower = square[::2, ::2].double()[None, :, :, None].expand(-1, -1, -1, 24)
    tower = torch.nn.functional.pad(tower, (2, 2))
    assert boundary_length(tower, 3).item() == pytest.approx(2 * half**2 + 4 * half * 24, rel=0.12)


def test_the_border_is_no_boundary_and_ends_count_in_one_dimension() -> None:
    assert boundary_length(torch.ones(2, 3, 5, 6), 2).tolist() == [[0.0] * 3] * 2
    assert boundary_length(torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0, 0.0]]), 1).tolist() == [3.0]


def test_the_regions_boundary_is_that_of_its_classes() -> None:
    logits = torch.randn(2, 4, 6, 7)
    expected = boundary_length(logits.softmax(dim=1)[:, [3, 1]], 2)
    region = Region(logits, classes=[3, 1])
    torch.testing.assert_close(region.boundary, expected)
    assert region.boundary is region.boundary


@pytest.mark.parametrize("space", [(4,), (3, 4), (3, 2, 3)], ids=str)
def test_gradients(space: tuple[int, ...]) -> None:
    p, q = torch.rand(2, 2, 2, *space, dtype=torch.float64).unbind(0)
    p, q = p.requires_grad_(), q.requires_grad_()
    assert torch.autograd.gradcheck(lambda p, q: contact(p, q, len(space)), (p, q))
    assert torch.autograd.gradcheck(lambda p: boundary_length(p, len(space)), p)


def test_gradients_are_finite_on_a_flat_map() -> None:
    logits = torch.zeros(1, 2, 6, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(Region(logits).boundary.sum(), logits)
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_half_precision_is_summed_in_float32() -> None:
    p = torch.rand(1, 200, 200).bfloat16()
    for found, exact in (
        (boundary_length(p, 2), boundary_length(p.double(), 2)),
        (contact(p, 1 - p, 2), contact(p.double(), (1 - p).double(), 2)),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contact(torch.zeros(2, 3, 4), torch.zeros(2, 4, 4), 2), r"same shape, got \[2, 3, 4\] and \[2, 4, 4\]"),
        (lambda: contact(torch.zeros(2, 3), torch.zeros(2, 3), 2), r"got \[2, 3\] and axes=2"),
        (lambda: boundary_length(torch.zeros(2, 3, 4, 5, 6), 4), r"axes = 1, 2 or 3 of space, got \[2, 3, 4, 5, 6\] and axes=4"),
        (lambda: boundary_length(torch.zeros(2, 3, dtype=torch.int64), 1), "p must be a floating-point tensor, got torch.int64"),
        (lambda: contact(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool), 1), "q must be a floating-point tensor, got torch.bool"),
    ],
)  # fmt: skip
def test_bad_input(call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
