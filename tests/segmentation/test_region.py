"""Region against direct sums in float64 over every pixel, gradcheck, and scipy's centre of mass."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ringfence as rf
from ringfence.segmentation import Region

SPACES = [(7,), (9, 12), (5, 6, 8)]


def random_case(seed: int, space: tuple[int, ...], channels: int = 3) -> tuple[Tensor, Tensor]:
    """Logits and boxes, one box of them empty."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, channels, *space, generator=generator, dtype=torch.float64)
    ends = [torch.randint(0, length + 1, (2, channels - 1, 2), generator=generator) for length in space]
    boxes = torch.stack([end.sort(dim=-1).values for end in ends], dim=2)
    boxes[0, 0, 0] = 3
    return logits, boxes


def direct(logits: Tensor, boxes: Tensor, width: int, temperature: float = 1.0) -> dict[str, list]:
    """Everything again by loops over pixels, in NumPy."""
    values = logits.numpy() / temperature
    exponentials = np.exp(values - values.max(axis=1, keepdims=True))
    maps = (exponentials / exponentials.sum(axis=1, keepdims=True))[:, 1:]
    space = maps.shape[2:]
    found: dict[str, list] = {"size": [], "centroid": [], "outside": [], "strips": []}
    for image, class_ in itertools.product(range(maps.shape[0]), range(maps.shape[1])):
        s, box = maps[image, class_], boxes[image, class_].tolist()
        found["size"].append(s.sum())
        found["centroid"].append(scipy.ndimage.center_of_mass(s))
        within = np.ones(space, dtype=bool)
        for axis, (start, stop) in enumerate(box):
            place = np.arange(space[axis])
            shape = [-1 if other == axis else 1 for other in range(len(space))]
            within &= ((place >= start) & (place < stop)).reshape(shape)
        found["outside"].append(s[~within].sum())
        strips = []
        for axis, (start, stop) in enumerate(box):
            for first in range(start, stop, width):
                last = min(first + width, stop)
                index = [slice(a, b) for a, b in box]
                index[axis] = slice(first, last)
                strips.append((axis, s[tuple(index)].sum(), last - first))
        found["strips"].append(strips)
    return found


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 6), temperature=st.floats(0.2, 2.0))
@settings(max_examples=25, deadline=None)
def test_everything_against_sums_over_pixels(
    space: tuple[int, ...], seed: int, width: int, temperature: float
) -> None:
    logits, boxes = random_case(seed, space)
    region, expected = Region(logits, temperature=temperature), direct(logits, boxes, width, temperature)
    assert region.size.flatten().tolist() == pytest.approx(expected["size"], rel=1e-12)
    centroids = region.centroid.flatten(0, 1).tolist()
    middle = [(length - 1) / 2 for length in space]
    for got, true, size in zip(centroids, expected["centroid"], expected["size"], strict=True):
        pull = size / (size + 1e-6)  # a millionth of a pixel in the middle of the image
        wanted = [m + (c - m) * pull for m, c in zip(middle, true, strict=True)]
        assert got == pytest.approx(wanted, rel=1e-9)
    assert region.outside(boxes).flatten().tolist() == pytest.approx(expected["outside"], rel=1e-12, abs=1e-15)
    strips = region.strips(boxes, width)
    for number, wanted in enumerate(expected["strips"]):
        image, class_ = divmod(number, boxes.shape[1])
        got = []
        for axis, place in strips.mask[image, class_].nonzero().tolist():
            one = (image, class_, axis, place)
            got.append((axis, strips.sums[one].item(), strips.widths[one].item()))
        assert [axis for axis, _, _ in got] == [axis for axis, _, _ in wanted]
        assert [one[1:] for one in got] == [pytest.approx(one[1:], rel=1e-12, abs=1e-15) for one in wanted]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_gradients(space: tuple[int, ...]) -> None:
    logits, boxes = random_case(1, tuple(min(length, 4) for length in space))
    logits = logits.requires_grad_()
    for measure in (
        lambda x: Region(x).size,
        lambda x: Region(x, temperature=0.5).centroid,
        lambda x: Region(x).outside(boxes),
        lambda x: Region(x).strips(boxes, 2).sums,
    ):
        assert torch.autograd.gradcheck(measure, logits)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_any_number_of_channels(channels: int) -> None:
    logits = torch.randn(2, channels, 6, 7, dtype=torch.float64)
    both = torch.cat([torch.zeros_like(logits), logits], dim=1) if channels == 1 else logits
    expected = both.softmax(dim=1)[:, 1:].sum(dim=(2, 3))
    torch.testing.assert_close(Region(logits).size, expected)
    if channels == 5:
        torch.testing.assert_close(Region(logits, classes=[4, 2]).size, expected[:, [3, 1]])
        torch.testing.assert_close(Region(logits, classes=[0]).size, logits.softmax(dim=1)[:, :1].sum(dim=(2, 3)))


def test_an_empty_map_has_its_centroid_in_the_middle_and_finite_gradients() -> None:
    logits = torch.zeros(1, 2, 8, 11)
    logits[:, 1] = -500.0  # the softmax underflows to exactly 0
    logits.requires_grad_()
    region = Region(logits)
    assert region.size.item() == 0.0
    assert region.centroid[0, 0].tolist() == [3.5, 5.0]
    (gradient,) = torch.autograd.grad(region.centroid.sum(), logits)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_logits_are_summed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(1, 2, 256, 256).to(dtype)
    boxes = torch.tensor([[[[10, 200], [30, 250]]]])
    exact, region = Region(logits.double()), Region(logits)
    for one, other in (
        (region.size, exact.size),
        (region.centroid, exact.centroid),
        (region.outside(boxes), exact.outside(boxes)),
        (region.strips(boxes).sums, exact.strips(boxes).sums),
    ):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


def test_autocast_does_not_round_the_sums() -> None:
    logits, boxes = torch.randn(2, 2, 64, 64), torch.tensor([[[[5, 60], [7, 50]]]] * 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = (Region(logits).size, Region(logits).outside(boxes), Region(logits).strips(boxes).sums)
    outside = (Region(logits).size, Region(logits).outside(boxes), Region(logits).strips(boxes).sums)
    for one, other in zip(inside, outside, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_what_is_outside_is_never_negative_noise() -> None:
    """Nearly all mass inside: size minus inside would be rounding error of either sign."""
    logits = torch.full((1, 2, 256, 256), 0.0)
    logits[:, 1] = -30.0
    logits[:, 1, 50:200, 50:200] = 30.0
    outside = Region(logits).outside(torch.tensor([[[[50, 200], [50, 200]]]]))
    assert outside.item() == pytest.approx((256**2 - 150**2) * torch.sigmoid(torch.tensor(-30.0)).item(), rel=1e-4)


def test_a_filled_tight_box_satisfies_its_priors() -> None:
    logits = torch.full((1, 2, 20, 20), -20.0)
    logits[:, 0] = 0.0
    logits[:, 1, 3:15, 4:11] = 20.0
    boxes = torch.tensor([[[[3, 15], [4, 11]]]])
    strips = Region(logits).strips(boxes, width=5)
    assert strips.widths[strips.mask].tolist() == [5.0, 5.0, 2.0, 5.0, 2.0]
    assert rf.at_least(strips.sums, strips.widths, mask=strips.mask).satisfied().all()


def test_as_constraints_in_a_fence() -> None:
    """The call site of the design, with real bounds, trains."""
    torch.manual_seed(0)
    logits = torch.randn(4, 2, 16, 16, requires_grad=True)
    fence, optimiser = (
        rf.LogBarrier(t=5.0, mu=1.05, weights={"size": 0.01, "centroid": 0.1}),
        torch.optim.Adam([logits], lr=0.1),
    )
    low, centre = torch.full((4, 1), 30.0), torch.tensor([[[4.0, 10.0]]])
    for _ in range(150):
        region = rf.segmentation.Region(logits, classes=[1])
        constraints = {
            "size": rf.between(region.size, low, 1.2 * low),
            "centroid": rf.between(region.centroid, centre - 2, centre + 2),
        }
        optimiser.zero_grad()
        fence(**constraints).backward()
        optimiser.step()
    assert all(residual.satisfied().all() for residual in constraints.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Region(torch.zeros(2, 3)), r"one to three axes of space, got \[2, 3\]"),
        (lambda: Region(torch.zeros(2, 3, 4, 4, dtype=torch.int64)), "floating-point tensor, got torch.int64"),
        (lambda: Region(torch.zeros(2, 3, 4, 4), classes=[3]), r"channels from 0 to 2 .*got \[3\]"),
        (lambda: Region(torch.zeros(2, 3, 4, 4), classes=[1, 1]), r"different channels .*got \[1, 1\]"),
        (lambda: Region(torch.zeros(2, 3, 4, 4), temperature=0.0), "temperature must be positive"),
        (lambda: Region(torch.zeros(1, 2, 4, 4)).strips(torch.tensor([[[[0, 2], [1, 5]]]])), r"box \[1, 5\) of image 0, class 0, axis 1 is not within 0 <= start <= stop <= 4"),
        (lambda: Region(torch.zeros(1, 2, 4, 4)).outside(torch.tensor([[[[3, 2], [1, 4]]]])), r"box \[3, 2\) of image 0, class 0, axis 0"),
        (lambda: Region(torch.zeros(1, 2, 4, 4)).outside(torch.tensor([[0, 1]])), r"\[batch, classes, axes, 2\] = \[1, 1, 2, 2\].*got torch.int64 \[1, 2\]"),
        (lambda: Region(torch.zeros(1, 2, 4, 4)).strips(torch.tensor([[[[0, 2], [1, 3]]]]), width=0), "width must be a whole number"),
    ],
)  # fmt: skip
def test_bad_input(call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_strips_keep_off_the_ends_of_a_loose_box_but_go_through_all_of_it() -> None:
    logits = torch.randn(1, 2, 9, 11)
    box = torch.tensor([[[[1, 8], [2, 10]]]])
    strips = Region(logits).strips(box, width=3, margin=torch.tensor([[2, 1]]))
    inside = torch.softmax(logits, dim=1)[0, 1, 1:8, 2:10]
    rows, columns = inside.sum(dim=1)[2:5], inside.sum(dim=0)[1:7]
    torch.testing.assert_close(strips.sums[0, 0, 0, :1], rows.sum()[None])
    torch.testing.assert_close(strips.sums[0, 0, 1, :2], columns.view(2, 3).sum(dim=1))
    assert strips.mask[0, 0].sum(dim=-1).tolist() == [1, 2]
    gone = Region(logits).strips(box, width=3, margin=torch.tensor([[4, 0]]))
    assert gone.mask[0, 0].any(dim=-1).tolist() == [False, True]
