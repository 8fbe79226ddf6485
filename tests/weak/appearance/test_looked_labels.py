"""Labels from brightness: against what images were drawn with, and against loops that say what they do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from ringfence.weak.appearance.delineation import LITTLE, SMOOTHED, filled, inner_pixels, local_mean, smoothed
from ringfence.weak.appearance.labels import looked_labels
from ringfence.weak.appearance.looks import looks

UNSURE = 255
Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]


def crescent(size: int = 64) -> Mask:
    """What of a disc another one does not cover: its box is mostly something else."""
    rows, columns = np.mgrid[:size, :size]
    return (np.hypot(rows - 32, columns - 30) < 20) & (np.hypot(rows - 32, columns - 22) > 17)


def drawn(objects: Mask, contrast: float = 50.0, *, channels: int = 1, seed: int = 0) -> Image:
    """Objects in noise of deviation 10, in a field of brightness that bends; channels are by turns dark and bright."""
    rows, columns = np.mgrid[: objects.shape[0], : objects.shape[1]] / 32.0 - 1.0
    noise = np.random.default_rng(seed).normal(0.0, 10.0, (channels, *objects.shape))
    signs = np.where(np.arange(channels) % 2, -1.0, 1.0)[:, None, None]
    field = 110.0 + 15.0 * rows**2 - 10.0 * rows * columns
    return (field + signs * contrast * objects + noise).clip(0, 255).astype(np.uint8)


def box_of(mask: Mask, wider: int = 0) -> NDArray[np.int64]:
    ends = [np.flatnonzero(mask.any(axis=axis))[[0, -1]] for axis in (1, 0)]
    return np.array([[low - wider, high + 1 + wider] for low, high in ends])


def labels_of(image: Image, *boxes: NDArray[np.int64], tight: bool = True) -> NDArray[np.uint8]:
    """Of a class for each box."""
    each = np.stack(boxes)[:, None]
    return looked_labels(image, each, np.full(each.shape[:2], tight), UNSURE)


def dice(labels: NDArray[np.uint8], mask: Mask, label: int = 1) -> float:
    """Of the pixels that have a label."""
    sure = labels != UNSURE
    found, there = (labels == label) & sure, mask & sure
    return float(2 * (found & there).sum() / (found.sum() + there.sum()))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("contrast", [50.0, -50.0])
@pytest.mark.parametrize("wider", [0, 2])
def test_a_crescent_is_told_from_the_rest_of_its_box(channels: int, contrast: float, wider: int) -> None:
    mask = crescent()
    for seed in range(4):
        labels = labels_of(drawn(mask, contrast, channels=channels, seed=seed), box_of(mask, wider))
        (top, bottom), (left, right) = box_of(mask, wider)
        inside = labels[top:bottom, left:right]
        assert dice(labels, mask) > 0.97  # the whole box: 0.66
        assert (inside != UNSURE).mean() > 0.95
        assert labels.sum() == inside.sum()  # nothing beyond it, and nothing unsure


def test_a_line_at_an_angle_is_one_part() -> None:
    """Its pixels touch by corners."""
    rows, columns = np.mgrid[:64, :64]
    line = (np.abs(rows - 0.6 * columns - 12) < 0.5) & (columns > 10) & (columns < 50)
    labels = labels_of(drawn(line, 120.0), box_of(line))
    assert (labels[line] == 1).mean() > 0.95


def test_a_field_that_bends_is_no_object() -> None:
    mask = crescent()
    rows, columns = np.mgrid[:64, :64] / 32.0 - 1.0
    field = 80.0 * (rows**2 + columns**2) - 56.0 * rows * columns
    noise = np.random.default_rng(0).normal(0.0, 10.0, field.shape)
    image = (60.0 + field + 50.0 * mask + noise).clip(0, 255).astype(np.uint8)
    assert dice(labels_of(image[None], box_of(mask)), mask) > 0.97


def test_background_is_what_all_boxes_that_hold_it_say() -> None:
    """A box of a class that does not show, in the box of one that does."""
    mask = crescent()
    inner = np.array([[26, 40], [24, 34]])
    within = np.zeros_like(mask)
    within[26:40, 24:34] = True
    alone, both = labels_of(drawn(mask), box_of(mask)), labels_of(drawn(mask), box_of(mask), inner)
    assert (alone[within] == 0).any()
    assert not (both[within] == 0).any()
    np.testing.assert_array_equal(both[~within], alone[~within])


def test_of_overlapping_boxes_of_a_class_each_may_find_a_pixel() -> None:
    """Two crescents beside each other, whose boxes overlap: what one box gives up, the other one has found."""
    left = crescent()
    right = np.roll(crescent(), 8, axis=1) & ~ndimage.binary_dilation(left, iterations=2)
    assert box_of(left)[1, 1] > box_of(right)[1, 0]
    image = drawn(left | right)
    for order in ((left, right), (right, left)):
        boxes = np.stack([box_of(one) for one in order])[None]
        labels = looked_labels(image, boxes, np.ones((1, 2), bool), UNSURE)
        assert (labels[left] == 1).mean() > 0.9
        assert (labels[right] == 1).mean() > 0.95


@pytest.mark.parametrize("beyond", [(0, 16), (9, 4)])
def test_zeros_around_an_image_change_nothing(beyond: tuple[int, int]) -> None:
    """Of an object at the border of an image that is smaller than the others of its set."""
    mask = np.roll(crescent(), -12, axis=0)
    assert box_of(mask)[0, 0] <= 2
    image, before = drawn(mask), beyond[0]
    padded, wider = np.pad(image, ((0, 0), beyond, beyond)), np.pad(mask, beyond)
    known = np.zeros(padded.shape[1:], bool)
    known[before : before + 64, before : before + 64] = True
    expected = labels_of(image, box_of(mask))
    assert dice(expected, mask) > 0.97
    labels = looked_labels(padded, box_of(wider)[None, None], np.ones((1, 1), bool), UNSURE, known)
    np.testing.assert_array_equal(labels, np.pad(expected, beyond))
    loose = np.maximum(box_of(wider)[None, None] - [[[[4, 0], [0, 0]]]], 0)  # part of it is beyond the image
    labels = looked_labels(padded, loose, np.ones((1, 1), bool), UNSURE, known)
    assert dice(labels, wider) > 0.97


def test_of_what_is_not_told_apart_nothing_is_known() -> None:
    mask = crescent()
    (top, bottom), (left, right) = box_of(mask)
    inside = np.zeros_like(mask)
    inside[top:bottom, left:right] = True
    faint, far = drawn(mask, 4.0), drawn(mask)
    for labels in (labels_of(faint, box_of(mask)), labels_of(far, box_of(mask), tight=False)):
        np.testing.assert_array_equal(labels == UNSURE, inside)
        assert not labels[~inside].any()


def test_something_else_as_bright_in_the_box_is_not_the_object() -> None:
    """But it may be: of it, nothing is known."""
    mask, other = crescent(), np.zeros((64, 64), bool)
    other[28:35, 24:31] = True  # within the curve
    assert not (mask & other).any()
    labels = labels_of(drawn(mask | other), box_of(mask))
    assert dice(labels, mask) > 0.97
    assert (labels[other] == UNSURE).mean() > 0.9


def test_two_classes_share_a_place() -> None:
    """A bright one and a dark one whose boxes overlap: what both boxes hold is background for neither alone."""
    bright, dark = crescent(), np.zeros((64, 64), bool)
    dark[28:38, 22:32] = True
    image = drawn(bright, 50.0).astype(int) - 50 * dark
    labels = labels_of(image.clip(0, 255).astype(np.uint8), box_of(bright), box_of(dark))
    assert dice(labels, bright, 1) > 0.95
    assert not (labels[bright] == 2).any()
    assert not (labels[dark] == 1).any()
    (top, bottom), (left, right) = box_of(dark)
    hidden = drawn(bright, 50.0)  # the second one does not show
    labels = labels_of(hidden, box_of(bright), box_of(dark))
    assert not (labels[top:bottom, left:right] == 0).any()
    assert (labels[bright] == 1).mean() > 0.8


def test_boxes_that_are_not_there_change_nothing() -> None:
    mask = crescent()
    image, empty = drawn(mask), np.zeros((2, 2), np.int64)
    one = labels_of(image, box_of(mask))
    np.testing.assert_array_equal(labels_of(image, box_of(mask), empty), one)
    np.testing.assert_array_equal(labels_of(image, empty, box_of(mask)), np.where(one == 1, 2, one))
    assert not labels_of(image, empty).any()
    several = np.stack([box_of(mask), empty, box_of(mask)])[None]
    np.testing.assert_array_equal(looked_labels(image, several, np.ones((1, 3), bool), UNSURE), one)


@pytest.mark.parametrize("contrast", [40.0, -40.0])
@pytest.mark.parametrize("thick", [3.0, 4.0, 6.0])
def test_what_is_thin_and_blurred_is_not_made_thicker(contrast: float, thick: float) -> None:
    """Rings in noise, whose boundary is as blurred as that of most images: their area is what it is."""
    rows, columns = np.mgrid[:64, :64] - 31.5
    ring = np.abs(np.hypot(rows, columns) - 16) < thick / 2
    blurred = ndimage.gaussian_filter(ring.astype(float), 0.8)
    found = []
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(0.0, 8.0, (1, 64, 64))
        image = (120.0 + contrast * blurred + noise).clip(0, 255).astype(np.uint8)
        labels = labels_of(image, box_of(ring))
        sure = labels != UNSURE
        found.append((labels == 1).sum() / (ring & sure).sum())
    assert np.mean(found) == pytest.approx(1.0, abs=0.05)


def test_things_around_a_box_that_look_like_its_object_do_not_hide_it() -> None:
    """Discs as bright, which are part of what surroundings are like."""
    mask, others = crescent(), np.zeros((64, 64), bool)
    rows, columns = np.mgrid[:64, :64]
    for row, column in ((6, 12), (6, 40), (58, 14), (58, 42), (32, 59)):
        others |= np.hypot(rows - row, columns - column) < 6
    others &= ~ndimage.binary_dilation(mask, iterations=3)
    (top, bottom), (left, right) = box_of(mask)
    assert not others[top:bottom, left:right].any()
    for seed in range(4):
        labels = labels_of(drawn(mask | others, 40.0, seed=seed), box_of(mask))
        assert dice(labels, mask) > 0.95
        assert (labels[mask] == 1).mean() > 0.9


def test_an_object_whose_brightness_changes_along_it_is_found_whole() -> None:
    """One end is three times as bright as the other."""
    mask = crescent()
    rows, _ = np.mgrid[:64, :64] / 64.0
    found = []
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(0.0, 10.0, (1, 64, 64))
        image = (80.0 + mask * (90.0 - 80.0 * rows) + noise).clip(0, 255).astype(np.uint8)
        labels = labels_of(image, box_of(mask))
        assert dice(labels, mask) > 0.96
        found.append((labels[mask] == 1).mean())
    assert np.mean(found) > 0.9


def test_surroundings_that_wave_within_a_box_are_seldom_the_object() -> None:
    """Waves 15 strong and a quarter of a box long: with a polynomial alone, or of what is around the box, 20 %."""
    mask, found = crescent(), []
    for seed in range(8):
        random = np.random.default_rng(seed)
        waves = ndimage.gaussian_filter(random.normal(size=(64, 64)), 8.0, mode="wrap")
        noise = random.normal(0.0, 10.0, (1, 64, 64))
        image = (110.0 + 15.0 * waves / waves.std() + 45.0 * mask + noise).clip(0, 255).astype(np.uint8)
        labels = labels_of(image, box_of(mask))
        found.append((labels == 1)[~mask].sum() / (mask & (labels != UNSURE)).sum())
    assert np.mean(found) < 0.15


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("wider", [0, 3])
def test_ends_of_a_box_that_its_object_seems_not_to_reach_are_unsure(turned: bool, wider: int) -> None:
    """Unless they are as narrow as a hand may leave them: a seventh of this bar does not show."""
    mask = np.zeros((64, 64), bool)
    mask[24:36, 10:52] = True
    seen = mask.copy()
    seen[:, 46:] = False
    box, image = box_of(mask), drawn(seen)
    box[1, 0] -= wider
    unsure = np.zeros((64, 64), bool)
    unsure[24:36, 47:52] = True
    background = np.zeros((64, 64), bool)
    background[24:36, 10 - wider : 9] = True
    if turned:
        unsure, background, seen = unsure.T, background.T, seen.T
        image, box = np.ascontiguousarray(image.swapaxes(1, 2)), np.ascontiguousarray(box[::-1])
    labels = labels_of(image, box)
    assert (labels[unsure] == UNSURE).all()
    assert (labels[background] == 0).all()
    assert (labels[seen] == 1).mean() > 0.95


def test_a_local_mean_is_what_a_kernel_weighs() -> None:
    """Σ_j G(i - j) w_j v_j / (Σ_j G(i - j) w_j + LITTLE), a pixel at a time; the kernel ends after four deviations."""
    random, width = np.random.default_rng(3), 1.5
    values, weights = random.normal(size=(2, 9, 11)), random.random((9, 11)) * (random.random((9, 11)) < 0.6)
    reach = np.arange(-6, 7)
    kernel = np.exp(-0.5 * (reach / width) ** 2)
    kernel /= kernel.sum()
    expected = np.empty_like(values)
    for i in range(9):
        for j in range(11):
            there = [(i + a, j + b, kernel[a + 6] * kernel[b + 6]) for a in reach for b in reach]
            there = [(r, c, k * weights[r, c]) for r, c, k in there if 0 <= r < 9 and 0 <= c < 11]
            for channel in range(2):
                held = sum(k * values[channel, r, c] for r, c, k in there)
                expected[channel, i, j] = held / (sum(k for *_, k in there) + LITTLE)
    np.testing.assert_allclose(local_mean(values, weights, width), expected, rtol=1e-10, atol=1e-12)


def test_what_an_object_fills_is_what_it_fills() -> None:
    """As in the image it was drawn with, however wide its box; of what does not show, nothing is said."""
    mask, tight = crescent(), np.ones((1, 1), bool)
    (top, bottom), (left, right) = box_of(mask)
    image, faint, box = drawn(mask), drawn(mask, 4.0), box_of(mask)[None, None]
    for boxes in (box, np.add(box, [[-2, 2], [-2, 2]])):
        (look,) = looks(image, boxes, tight)
        assert filled(image, look) == pytest.approx(mask[top:bottom, left:right].mean(), abs=0.03)
    (unseen,) = looks(faint, box, tight)
    assert filled(faint, unseen) is None
    (some,) = looks(image, box, tight, lines=12)
    with pytest.raises(ValueError, match="all of its lines"):
        filled(image, some)


def test_something_small_in_a_box_is_not_its_object() -> None:
    """A spot that too few of the lines across the box meet."""
    rows, columns = np.mgrid[:64, :64]
    spot = np.hypot(rows - 30, columns - 34) < 5
    box = np.array([[16, 48], [16, 48]])
    labels = labels_of(drawn(spot), box)
    np.testing.assert_array_equal(labels == UNSURE, np.pad(np.ones((32, 32), bool), 16))
    assert not (labels == 1).any()


def test_what_two_boxes_share_is_unsure() -> None:
    """Of two classes that both show: in each box, the other one's pixels are not looked at."""
    first, second = np.zeros((64, 64), bool), np.zeros((64, 64), bool)
    for number in range(20):
        first[12 + number, 8 + number : 13 + number] = second[28 + number, 42 - number : 47 - number] = True
    boxes = box_of(first), box_of(second)
    image = (drawn(first).astype(int) - 50 * second).clip(0, 255).astype(np.uint8)
    labels, shared = labels_of(image, *boxes), np.zeros((64, 64), np.int64)
    for (top, bottom), (left, right) in boxes:
        shared[top:bottom, left:right] += 1
    assert (shared == 2).sum() > 20
    assert (labels[shared == 2] == UNSURE).all()
    assert (labels[shared == 1] == 0).mean() > 0.5
    assert (labels == 1).any()
    assert (labels == 2).any()


@pytest.mark.parametrize("beyond", [2, 4, 9])
def test_a_box_that_reaches_beyond_an_image_has_no_lines_there(beyond: int) -> None:
    """A loose box of an object close to the border of an image, around which there are zeros."""
    mask = np.roll(crescent(), -10, axis=0)
    assert box_of(mask)[0, 0] == 3  # as many empty lines as a hand may leave, and no more because of the zeros
    image = np.pad(drawn(mask), ((0, 0), (16, 16), (16, 16)))
    known = np.pad(np.ones((64, 64), bool), 16)
    box = box_of(np.pad(mask, 16))
    box[0, 0] = 16 - beyond
    labels = looked_labels(image, box[None, None], np.ones((1, 1), bool), UNSURE, known)
    assert dice(labels, np.pad(mask, 16)) > 0.97
    (top, bottom), (left, right) = box
    inside = known[top:bottom, left:right]
    assert (labels[top:bottom, left:right][inside] != UNSURE).mean() > 0.95


@pytest.mark.parametrize("width", [12.5, 20.0, 31.0])
def test_a_wide_local_mean_is_nearly_that_of_each_pixel(width: float) -> None:
    """Of blocks of pixels, whose kernel is at least six of them wide."""
    random = np.random.default_rng(4)
    values, weights = random.normal(100.0, 10.0, (2, 101, 133)), random.random((101, 133))
    held = ndimage.gaussian_filter(weights, width, mode="constant") + LITTLE
    expected = [ndimage.gaussian_filter(weights * one, width, mode="constant") / held for one in values]
    found, middle = local_mean(values, weights, width), (..., slice(12, -12), slice(12, -12))
    np.testing.assert_allclose(found[middle], np.stack(expected)[middle], rtol=0.01)
    np.testing.assert_allclose(found, expected, rtol=0.03)  # in corners, half a block is as far as it goes


def test_inner_pixels_are_those_with_no_other_beside_them() -> None:
    """The least of a pixel and its four neighbours, what is not in the box being none of the object."""
    random = np.random.default_rng(2)
    inside, likely = random.random((9, 12)) < 0.95, np.zeros((9, 12))
    likely[inside] = random.uniform(0.5, 1.0, inside.sum())
    expected = [
        min(
            likely[i + a, j + b] if 0 <= i + a < 9 and 0 <= j + b < 12 else 0.0
            for a, b in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
        )
        for i, j in zip(*np.nonzero(inside), strict=True)
    ]
    np.testing.assert_array_equal(inner_pixels(likely, inside)[inside], expected)
    line = np.zeros((9, 12), bool)
    line[4] = True  # a pixel thick
    np.testing.assert_array_equal(inner_pixels(likely, line), np.where(line, likely, 0.0))
    lines = np.zeros((40, 40), bool)
    lines[::4] = True
    lines[:3, :3] = True  # a tenth of it would be 40, and so many inner pixels there are not
    np.testing.assert_array_equal(inner_pixels(lines * 1.0, np.ones_like(lines)), lines)


def test_neighbours_are_weighed_by_how_far_they_are() -> None:
    """q = σ(odds + Σ_n (q_n - ½) / distance), over and over, a pixel at a time."""
    random = np.random.default_rng(1)
    odds, inside = random.normal(0.0, 2.0, (5, 6)), random.random((5, 6)) < 0.8

    def chance(number: float) -> float:
        return 1.0 / (1.0 + math.exp(-number))

    q = {(i, j): chance(odds[i, j]) for i, j in zip(*np.nonzero(inside), strict=True)}
    for _ in range(SMOOTHED):
        q = {
            (i, j): chance(
                odds[i, j]
                + sum(
                    (q[i + a, j + b] - 0.5) / math.hypot(a, b)
                    for a in (-1, 0, 1)
                    for b in (-1, 0, 1)
                    if (a or b) and (i + a, j + b) in q
                )
            )
            for i, j in q
        }
    expected = np.zeros((5, 6))
    for (i, j), one in q.items():
        expected[i, j] = one
    np.testing.assert_allclose(smoothed(odds, inside), expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    size=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    channels=st.integers(1, 3),
    level=st.sampled_from([0, 7, 255]),
)
def test_whatever_is_drawn_has_labels(seed: int, size: tuple[int, int], channels: int, level: int) -> None:
    """Any boxes in any image, constant ones too: labels are those of a box's class, in it."""
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (channels, *size), dtype=np.uint8)
    if level != 7:
        image[:] = level
    low = random.integers(0, np.array(size), (2, 2, 2))
    high = np.minimum(low + random.integers(0, 16, (2, 2, 2)), size)
    boxes = np.stack([low, high], axis=-1)
    labels = looked_labels(image, boxes, random.random((2, 2)) < 0.8, UNSURE)
    held = np.zeros((3, *size), bool)
    held[0] = True
    for number, of_class in enumerate(boxes, 1):
        for (top, bottom), (left, right) in of_class:
            held[number, top:bottom, left:right] = True
    for number in (1, 2):
        assert held[number][labels == number].all()
    assert held[1:].any(axis=0)[labels == UNSURE].all()
    assert set(np.unique(labels)) <= {0, 1, 2, UNSURE}
