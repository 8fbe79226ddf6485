"""Several boxes of a class in one image, against loops over the boxes in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ringfence.segmentation import Region
from ringfence.segmentation.boxes import covered

SPACES = [(9,), (7, 11), (5, 6, 7)]


def random_boxes(generator: torch.Generator, space: tuple[int, ...], objects: int, classes: int = 2) -> Tensor:
    """Boxes that overlap as they like; the last of the first image and class is padding."""
    ends = [torch.randint(0, length + 1, (2, classes, objects, 2), generator=generator) for length in space]
    boxes = torch.stack([end.sort(dim=-1).values for end in ends], dim=3)
    boxes[0, 0, -1] = 0
    return boxes


def random_case(seed: int, space: tuple[int, ...], objects: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 3, *space, generator=generator, dtype=torch.float64)
    return logits, random_boxes(generator, space, objects)


def box_mask(box: Tensor, space: tuple[int, ...]) -> np.ndarray:
    mask = np.zeros(space, dtype=bool)
    mask[tuple(slice(start, stop) for start, stop in box.tolist())] = True
    return mask


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(seed=st.integers(0, 2**31), objects=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_masses_against_masks_of_pixels(space: tuple[int, ...], seed: int, objects: int) -> None:
    logits, boxes = random_case(seed, space, objects)
    region, maps = Region(logits), logits.softmax(dim=1)[:, 1:].numpy()
    union = covered(boxes, torch.Size(space))
    inside, outside, sizes = region.inside(boxes), region.outside(boxes), region.sizes(boxes)
    assert inside.shape == sizes.shape == boxes.shape[:3]
    assert outside.shape == boxes.shape[:2]
    for one in np.ndindex(*boxes.shape[:2]):
        masks = [box_mask(box, space) for box in boxes[one]]
        assert np.array_equal(union[one].numpy(), np.any(masks, axis=0))
        free = maps[one][~np.any(masks, axis=0)].sum()
        held = [maps[one][mask].sum() for mask in masks]
        assert inside[one].tolist() == pytest.approx(held, rel=1e-12, abs=1e-12)
        assert outside[one].item() == pytest.approx(free, rel=1e-12, abs=1e-15)
        assert sizes[one].tolist() == pytest.approx([free + one_box for one_box in held], rel=1e-12)


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(seed=st.integers(0, 2**31), objects=st.integers(2, 4), width=st.integers(1, 5), loose=st.booleans())
@settings(max_examples=25, deadline=None)
def test_each_box_has_the_strips_that_it_has_alone(
    space: tuple[int, ...], seed: int, objects: int, width: int, loose: bool
) -> None:
    """The single form is tested against loops over pixels in test_region.py."""
    logits, boxes = random_case(seed, space, objects)
    margin = torch.randint(0, 3, (2, len(space)), generator=torch.Generator().manual_seed(seed)) if loose else None
    region = Region(logits)
    strips = region.strips(boxes, width, margin)
    for number in range(objects):
        alone = region.strips(boxes[:, :, number], width, margin)
        torch.testing.assert_close(strips.sums[:, :, number], alone.sums, rtol=1e-12, atol=1e-12)
        assert torch.equal(strips.widths[:, :, number], alone.widths)
        assert torch.equal(strips.mask[:, :, number], alone.mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_one_object_is_the_single_form_bit_for_bit(space: tuple[int, ...], dtype: torch.dtype) -> None:
    logits, boxes = random_case(3, space, 2)
    region, boxes, margin = Region(logits.to(dtype)), boxes[:, :, :1], torch.ones(2, len(space), dtype=torch.int64)
    single = boxes.squeeze(2)
    assert torch.equal(region.outside(boxes), region.outside(single))
    assert torch.equal(region.inside(boxes), region.inside(single).unsqueeze(2))
    assert torch.equal(region.sizes(boxes), region.size.unsqueeze(2))
    for one, other in zip(region.strips(boxes, 2, margin), region.strips(single, 2, margin), strict=True):
        assert torch.equal(one, other.unsqueeze(2))


def test_padding_changes_nothing_and_has_what_is_outside() -> None:
    logits, boxes = random_case(4, (12, 10), 3)
    region, padded = Region(logits), torch.cat([boxes, torch.zeros_like(boxes[:, :, :2])], dim=2)
    assert torch.equal(region.outside(padded), region.outside(boxes))
    assert torch.equal(region.sizes(padded)[:, :, :3], region.sizes(boxes))
    assert torch.equal(region.sizes(padded)[:, :, 4], region.outside(boxes))
    assert not region.strips(padded, 3).mask[:, :, 3:].any()
    assert region.strips(padded, 3).sums[:, :, 3:].abs().max() == 0.0
    assert torch.equal(region.outside(torch.zeros_like(boxes)), region.probabilities.flatten(2).sum(dim=-1))


def test_what_is_outside_of_two_boxes_is_never_negative_noise() -> None:
    logits = torch.full((1, 2, 256, 256), 0.0)
    logits[:, 1] = -30.0
    logits[:, 1, 50:200, 50:120] = logits[:, 1, 50:200, 130:200] = 30.0
    boxes = torch.tensor([[[[[50, 200], [50, 120]], [[50, 200], [130, 200]]]]])
    free = 256**2 - 150 * 140
    assert Region(logits).outside(boxes).item() == pytest.approx(free * 9.357623e-14, rel=1e-4)


def test_float32_sums_are_exact_to_far_less_than_a_pixel() -> None:
    logits = 5 * torch.randn(1, 2, 512, 512)
    boxes = torch.tensor([[[[[0, 512], [0, 512]], [[300, 510], [100, 512]], [[1, 500], [0, 9]]]]])
    region, exact = Region(logits), Region(logits.double())
    for name in ("strips", "slanted_strips"):
        options = {"angle": 30.0} if name == "slanted_strips" else {}
        found = getattr(region, name)(boxes, **options).sums
        assert found.dtype == torch.float32
        assert (found.double() - getattr(exact, name)(boxes, **options).sums).abs().max() < 2e-4
    for found, wanted in ((region.inside(boxes), exact.inside(boxes)), (region.sizes(boxes), exact.sizes(boxes))):
        torch.testing.assert_close(found.double(), wanted, rtol=2e-7, atol=1e-4)


def test_autocast_does_not_round_the_sums() -> None:
    logits, boxes = torch.randn(2, 2, 64, 64), torch.tensor([[[[[5, 60], [7, 50]], [[0, 20], [0, 64]]]]] * 2)

    def measured() -> list[Tensor]:
        region = Region(logits)
        strips, slanted = region.strips(boxes), region.slanted_strips(boxes, 20.0)
        return [region.outside(boxes), region.sizes(boxes), strips.sums, slanted.sums, region.boundary]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = measured()
    for one, other in zip(under, measured(), strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


@pytest.mark.parametrize("space", [(4,), (4, 5), (3, 4, 3)], ids=str)
def test_gradients(space: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 2, *space, generator=generator, dtype=torch.float64, requires_grad=True)
    boxes = random_boxes(generator, space, 3, classes=1)
    for measure in (
        lambda x: Region(x).outside(boxes),
        lambda x: Region(x).inside(boxes),
        lambda x: Region(x).inside(boxes[:, :, 0]),
        lambda x: Region(x).sizes(boxes),
        lambda x: Region(x).strips(boxes, 2).sums,
    ):
        assert torch.autograd.gradcheck(measure, logits)


def test_compiled_in_one_graph() -> None:
    boxes = torch.tensor([[[[[1, 9], [2, 9]], [[0, 6], [3, 11]], [[0, 0], [0, 0]]]]] * 2)

    def measured(logits: Tensor, boxes: Tensor) -> list[Tensor]:
        region = Region(logits)
        strips, slanted = region.strips(boxes, 2), region.slanted_strips(boxes, -30.0, 2)
        return [region.sizes(boxes), strips.sums, slanted.sums, slanted.widths, region.boundary, region.centroid]

    logits = torch.randn(2, 2, 10, 12, requires_grad=True)
    compiled = torch.compile(measured, dynamic=False, fullgraph=True, backend="eager")
    found, expected = compiled(logits, boxes), measured(logits, boxes)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    gradients = [
        torch.autograd.grad(sum((one**2).sum() for one in several), logits)[0] for several in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda region: region.strips(torch.zeros(1, 1, 0, 2, 2, dtype=torch.int64)), r"\[batch, classes, objects, axes, 2\].*got torch.int64 \[1, 1, 0, 2, 2\]"),
        (lambda region: region.inside(torch.zeros(1, 2, 3, 2, 2, dtype=torch.int64)), r"= \[1, 1, 2, 2\].*got torch.int64 \[1, 2, 3, 2, 2\]"),
        (lambda region: region.inside(torch.zeros(1, 1, 3, 2, 2)), r"must be integers.*got torch.float32"),
        (lambda region: region.sizes(torch.zeros(1, 1, 2, 2, dtype=torch.int64)), r"sizes needs boxes \[batch, classes, objects, axes, 2\], got \[1, 1, 2, 2\]"),
        (lambda region: region.outside(torch.tensor([[[[[0, 2], [0, 2]], [[0, 2], [1, 5]]]]])), r"box \[1, 5\) of image 0, class 0, object 1, axis 1 is not within 0 <= start <= stop <= 4"),
        (lambda region: region.strips(torch.tensor([[[[0, 2], [0, 2]]]]), margin=torch.tensor([1, 1])), r"margin must be integers of shape \[batch, axes\] = \[1, 2\], got torch.int64 \[2\]"),
    ],
)  # fmt: skip
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Region(torch.zeros(1, 2, 4, 4)))
