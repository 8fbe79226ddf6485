"""Turning, against scipy's affine transform in float64; what is out of sight, against the turned pixels themselves."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import affine_transform
from torch import nn

import ringfence as rf
from ringfence.segmentation.turning import answer_of_turned, boxes_in_sight, in_sight, turned
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.training.augmentation import augmented
from ringfence.weak.training.settings import AugmentSettings
from ringfence.weak.training.variation import turns

SIZES = st.tuples(st.integers(3, 12), st.integers(3, 12))
ANGLES = st.floats(-math.pi, math.pi)


def reference(image: np.ndarray, angle: float, mode: str) -> np.ndarray:
    """By scipy: rows go down, and columns are turned towards them."""
    cosine, sine = math.cos(angle), math.sin(angle)
    back = np.array([[cosine, -sine], [sine, cosine]])  # where a turned place comes from, as (row, column)
    middle = (np.array(image.shape) - 1) / 2
    return affine_transform(image, back, middle - back @ middle, order=1, mode=mode)


@given(size=SIZES, angle=ANGLES, depth=st.integers(0, 2), seed=st.integers(0, 99))
def test_maps_are_turned_about_their_middle(size: tuple[int, int], angle: float, depth: int, seed: int) -> None:
    images = np.random.default_rng(seed).random((2, 3, *([depth] if depth else []), *size))
    angles = torch.tensor([angle, -angle / 2], dtype=torch.float64)
    for beyond, mode in (("border", "nearest"), ("zeros", "grid-constant")):
        found = turned(torch.tensor(images), angles, beyond).numpy()
        for row, by in enumerate(angles.tolist()):
            planes = images[row].reshape(-1, *size)
            expected = np.stack([reference(one, by, mode) for one in planes]).reshape(images[row].shape)
            np.testing.assert_allclose(found[row], expected, atol=1e-9)


def test_columns_are_turned_towards_rows() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 7] = 1.0
    assert turned(image, torch.tensor([math.pi / 2])).round().nonzero().tolist() == [[0, 0, 7, 4]]


def test_it_computes_in_full_precision_whatever_is_going_on() -> None:
    image, angle = torch.rand(1, 2, 9, 9), torch.tensor([0.3])
    with torch.autocast("cpu", torch.bfloat16):
        found = turned(image, angle)
    assert torch.equal(found, turned(image, angle))


@given(size=SIZES, angle=ANGLES)
def test_what_is_out_of_sight(size: tuple[int, int], angle: float) -> None:
    """A pixel is seen if its middle, as a complex number, is turned to within the image."""
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5 - np.array(size).reshape(2, 1, 1) / 2
    there = (columns + 1j * rows) * np.exp(1j * angle)
    gap = np.minimum(size[1] / 2 - abs(there.real), size[0] / 2 - abs(there.imag))
    found = in_sight(torch.tensor([angle]), size)[0].numpy()
    clear = abs(gap) > 1e-3
    assert (found == (gap > 0))[clear].all()


@given(size=SIZES, angle=ANGLES, data=st.data())
def test_a_box_is_in_sight_if_all_of_its_corners_are(
    size: tuple[int, int], angle: float, data: st.DataObject
) -> None:
    ends = [sorted(data.draw(st.tuples(st.integers(0, side), st.integers(0, side)))) for side in size]
    corners = [complex(x - size[1] / 2, y - size[0] / 2) for y in ends[0] for x in ends[1]]
    there = [one * np.exp(1j * angle) for one in corners]
    gap = min(min(size[1] / 2 - abs(one.real), size[0] / 2 - abs(one.imag)) for one in there)
    found = boxes_in_sight(torch.tensor(ends)[None, None], torch.tensor([angle]), size)
    assert found.shape == (1, 1)
    if abs(gap) > 1e-3:
        assert bool(found) == (gap > 0)


def test_a_box_that_is_not_turned_is_in_sight() -> None:
    """Up to the border: rounding does not matter."""
    ends = torch.tensor([[0, 7], [0, 300]])[None]
    for angle in (0.0, math.pi):
        assert bool(boxes_in_sight(ends, torch.tensor([angle]), (7, 300)))


def test_a_network_to_which_turns_are_nothing_answers_the_same() -> None:
    """One that looks at single pixels; of an image so smooth that twice between pixels changes it little."""
    torch.manual_seed(0)
    network = nn.Conv2d(1, 2, 1).double()
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 65), torch.linspace(-1, 1, 65), indexing="ij")
    images = (1.0 - rows.square() - 0.5 * columns + 0.3 * rows * columns).double()[None, None]
    angle = torch.tensor([0.7])
    found, expected = answer_of_turned(network, images, angle), network(images)
    seen = in_sight(angle, (65, 65))
    inner = seen & (nn.functional.max_pool2d((~seen).float()[None], 5, 1, 2)[0] == 0)
    inner &= nn.functional.pad(
        torch.ones(1, 61, 61, dtype=torch.bool), (2, 2, 2, 2)
    )  # beyond the border is nothing
    assert inner.float().mean() > 0.5
    assert (found - expected)[:, :, inner[0]].abs().max() < 5e-3


def test_what_is_out_of_sight_teaches_nothing() -> None:
    network, angle = nn.Conv2d(1, 2, 3, padding=1), torch.tensor([0.6])
    images, seen = torch.rand(1, 1, 12, 12), in_sight(angle, (12, 12))[0]
    for where, learns in ((seen, True), (~seen, False)):
        network.zero_grad()
        answer_of_turned(network, images, angle)[0, :, where].square().sum().backward()
        assert bool(network.weight.grad.abs().sum() > 0) is learns


def motion(angle: float, size: tuple[int, ...] = (20, 20)) -> Motion:
    axes = len(size)
    return Motion.resampled(torch.ones(1, axes), torch.zeros(1, axes), size, torch.tensor([angle]))


@pytest.mark.parametrize("depth", [None, 3])
def test_boxes_out_of_sight_promise_nothing(depth: int | None) -> None:
    """Turned by 45 degrees, the corner is gone and the middle is not; an empty box is no box that is cut."""
    boxes = torch.tensor([[[[8, 12], [6, 13]], [[0, 4], [0, 4]], [[0, 0], [0, 0]]]])
    size: tuple[int, ...] = (20, 20)
    if depth is not None:
        size = (depth, *size)
        slices = torch.tensor([[0, depth], [0, depth], [0, 0]]).view(1, 3, 1, 2)
        boxes = torch.cat([slices, boxes], dim=2)
    whole = torch.ones(boxes.shape[:-1], dtype=torch.bool)
    for angle, corner in ((math.pi / 4, False), (0.0, True)):
        moved = motion(angle, size)
        found, still = moved.boxes(boxes, whole)
        assert torch.equal(found, boxes)  # they stay where they are
        assert still.all(dim=-1).tolist() == [[True, corner, True]]
        assert moved.uncut(boxes, whole).tolist() == [[True, corner, True]]


def test_scribbles_out_of_sight_are_gone() -> None:
    points = torch.tensor([[[10, 10], [0, 0]]])
    assert motion(math.pi / 4).points(points)[1].tolist() == [[True, False]]
    assert motion(0.0).points(points)[1].tolist() == [[True, True]]


def test_turns_are_of_all_degrees_and_of_none_of_the_other_numbers() -> None:
    key = torch.arange(4000) * 7919
    found = turns(key, 60.0).rad2deg()
    assert found.abs().max() <= 60.0
    assert np.histogram(found.numpy(), 6, (-60, 60))[0].min() > 550
    batch = {"image": torch.randint(256, (8, 1, 16, 16), dtype=torch.uint8), "key": key[:8]}
    upright, turning = (augmented(dict(batch), {}, AugmentSettings(turn=degrees)) for degrees in (0.0, 60.0))
    assert torch.equal(upright["image"], turning["image"])  # the network's own view is turned, and nothing else
    assert "turn" not in upright
    assert torch.equal(turning["turn"], turns(key[:8], 60.0))


def test_augmentation_tells_boxes_what_is_out_of_sight() -> None:
    """One box in the corner, one in the middle, of images that nothing else is done to."""
    key = torch.arange(50) * 7919
    box = torch.tensor([[0, 5], [0, 5]]), torch.tensor([[7, 9], [7, 9]])
    batch = {
        "image": torch.zeros(50, 1, 16, 16, dtype=torch.uint8),
        "key": key,
        "box": torch.stack(box).expand(50, 1, 2, 2, 2),
        "whole": torch.ones(50, 1, 2, 2, dtype=torch.bool),
        "margin": torch.zeros(50, 2, dtype=torch.int64),
        "uncut": torch.ones(50, 1, dtype=torch.bool),
    }
    found = augmented(batch, {}, AugmentSettings([], shift=0.0, scale=0.0, turn=60.0))
    assert torch.equal(found["box"], batch["box"])
    far = turns(key, 60.0).abs() > math.radians(5.0)
    assert 10 < far.sum() < 50
    assert torch.equal(found["whole"].all(dim=-1)[far], torch.tensor([[False, True]]).expand(int(far.sum()), 1, 2))
    assert not found["uncut"][far].any()


def test_the_loop_in_the_docs_asks_nothing_of_boxes_out_of_sight() -> None:
    """The lines of docs/boxes.md as they stand, with a box in the middle of one image and in a corner of another."""
    page = (Path(__file__).parents[2] / "docs/boxes.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(angle = .*?)```", page, re.DOTALL)
    torch.manual_seed(0)
    names = {"torch": torch, "math": math, "rf": rf, "network": nn.Conv2d(1, 2, 3, padding=1)}
    names |= {
        "images": torch.rand(2, 1, 32, 32),
        "boxes": torch.tensor([[[[12, 20], [12, 20]]], [[[0, 8], [0, 8]]]]),
    }
    exec(lines, names)
    assert names["angle"].abs().min() > 0.05
    assert names["seen"].tolist() == [[True], [False]]
    asked = names["tight"].f.isfinite().flatten(1).any(dim=1)
    assert asked.tolist() == [True, False]


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (-1.0, "augment.turn must be finite and not negative, got -1.0"),
        (math.nan, "augment.turn must be finite and not negative, got nan"),
        (180.5, "augment.turn is at most 180 degrees to either side, got 180.5"),
    ],
)
def test_what_is_no_turn_is_refused(turn: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentSettings(turn=turn)


def test_predictions_are_averaged_over_a_quarter_of_the_turn() -> None:
    assert AugmentSettings(turn=50.0).turns == (-12.5, 12.5)
    assert AugmentSettings(turn=50.0, average=False).turns == AugmentSettings().turns == ()
