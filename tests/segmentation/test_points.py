"""Probabilities at single pixels, against those of the whole map."""

from __future__ import annotations

import pytest
import torch

from ringfence.segmentation import Region


@pytest.mark.parametrize("space", [(11,), (5, 7), (3, 4, 6)], ids=str)
@pytest.mark.parametrize(("channels", "classes"), [(1, None), (4, None), (4, [3, 1])])
def test_points_are_those_of_the_map(space: tuple[int, ...], channels: int, classes: list[int] | None) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, channels, *space, dtype=torch.float64, requires_grad=True)
    points = torch.stack([torch.randint(length, (2, 9)) for length in space], dim=-1)
    region = Region(logits, classes, temperature=0.5)
    found = region.at(points.int())
    for sample in range(2):
        for number in range(9):
            there = region.probabilities[(sample, slice(None), *points[sample, number].tolist())]
            torch.testing.assert_close(found[sample, :, number], there)
    assert torch.autograd.gradcheck(lambda x: Region(x, classes).at(points), (logits,), fast_mode=True)


def test_half_precision_is_computed_in_32_bit() -> None:
    assert (
        Region(torch.zeros(1, 2, 3, 3, dtype=torch.bfloat16)).at(torch.zeros(1, 1, 2).long()).dtype == torch.float32
    )


@pytest.mark.parametrize("points", [torch.zeros(1, 4, 3).long(), torch.zeros(2, 4, 2), torch.zeros(3, 4, 2).long()])
def test_bad_points(points: torch.Tensor) -> None:
    with pytest.raises(
        ValueError, match=r"points must be integers \[batch, points, axes\], \[2, ..., 2\] here, got"
    ):
        Region(torch.zeros(2, 2, 5, 5)).at(points)
