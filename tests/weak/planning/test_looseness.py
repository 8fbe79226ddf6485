"""How much too wide boxes are drawn: against ellipses whose boxes are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak.appearance.looks import looks
from ringfence.weak.planning.looseness import DEPTHS, STEP, looseness, profile

TIGHT = np.ones((1, 1), dtype=bool)


def seen(
    wider: float,
    *,
    contrast: float = 30.0,
    jitter: float = 0.0,
    sides: tuple[int, int] = (24, 36),
    count: int = 30,
    tilt: float = 0.0,
) -> float | None:
    """Of ellipses in noise of deviation 10, in boxes that are wider by a fraction of the side at either end."""
    random = np.random.default_rng(0)
    total = np.zeros((len(DEPTHS), 2))
    for _ in range(count):
        half = random.uniform(*sides, 2) / 2.0
        centre = random.uniform(38, 42, 2)
        rows, columns = np.mgrid[:80, :80] + 0.5
        inside = ((rows - centre[0]) / half[0]) ** 2 + ((columns - centre[1]) / half[1]) ** 2 < 1.0
        tilted = tilt * (rows + 2.0 * columns)
        image = (
            (100.0 + tilted + contrast * inside + random.normal(0.0, 10.0, inside.shape))
            .clip(0, 255)
            .astype(np.uint8)
        )
        side = 2.0 * half
        ends = np.stack([centre - half - wider * side, centre + half + wider * side], axis=-1)
        ends += random.uniform(-jitter, jitter, (2, 2)) * side[:, None]
        box = np.rint(ends).astype(np.int64)
        for look in looks(image[None], box[None, None], TIGHT):
            if look.fill is not None:
                total += profile(image[None], look, np.zeros((80, 80), dtype=bool))
    return looseness(total)


@pytest.mark.parametrize("contrast", [30.0, -30.0])
@pytest.mark.parametrize("wider", [0.0, 0.05, 0.1])
def test_it_is_how_much_wider_boxes_are(wider: float, contrast: float) -> None:
    found = seen(wider, contrast=contrast)
    assert found == pytest.approx(wider / (1.0 + 2.0 * wider), abs=0.012)  # of the side as it is drawn


def test_a_field_of_brightness_changes_nothing() -> None:
    assert seen(0.1, tilt=0.4) == pytest.approx(seen(0.1), abs=0.01)


def test_an_unsteady_hand_is_not_a_loose_one() -> None:
    assert seen(0.0, jitter=0.1) == pytest.approx(0.0, abs=0.02)


def test_boxes_of_few_pixels_have_lines_at_each_other_depth() -> None:
    assert seen(0.1, sides=(9, 11), count=60) == pytest.approx(0.09, abs=0.03)


@settings(max_examples=20)
@given(begin=st.floats(-0.05, 0.2), around=st.floats(-0.2, 0.2), most=st.floats(0.5, 2.0))
def test_it_is_where_lines_begin_to_hold_something(begin: float, around: float, most: float) -> None:
    """A profile that rises by a straight line of slope 4 reaches a quarter of the rest after 1/16 of it.

    An ellipse's does so 0.016 within its box.
    """
    held = around + most * np.clip(4.0 * (DEPTHS - begin), 0.0, 1.0)
    found = looseness(np.stack([7.0 * held, np.full(len(DEPTHS), 7.0)], axis=1))
    top = np.clip(4.0 * (DEPTHS - begin), 0.0, 1.0).max()
    assert found == pytest.approx(begin + 0.25 * top / 4.0 - 0.016, abs=STEP / 4)


@pytest.mark.parametrize(
    "held",
    [
        np.zeros(len(DEPTHS)),  # nothing is seen
        np.ones(len(DEPTHS)),
        np.linspace(1.0, 0.0, len(DEPTHS)),  # what is around them holds more
    ],
)
def test_what_does_not_rise_says_nothing(held: NDArray[np.float64]) -> None:
    assert looseness(np.stack([held, np.ones(len(DEPTHS))], axis=1)) is None


def test_what_was_not_seen_says_nothing() -> None:
    none = np.zeros((len(DEPTHS), 2))
    assert looseness(none) is None
    inside = none.copy()
    inside[DEPTHS > 0] = 1.0  # boxes that fill their images
    assert looseness(inside) is None


def test_what_is_in_another_box_is_left_out() -> None:
    """A bright neighbour on one side, in a box of its own: lines there are not looked at."""
    random = np.random.default_rng(1)
    image = random.normal(100.0, 5.0, (1, 60, 60))
    image[:, 20:40, 20:40] += 60.0
    image[:, 20:40, 42:58] += 60.0
    image = image.clip(0, 255).astype(np.uint8)
    boxes = np.array([[[[20, 40], [20, 40]]], [[[20, 40], [42, 58]]]])
    look = next(one for one in looks(image, boxes, np.ones((2, 1), dtype=bool)) if one.number == 0)
    others = np.zeros((60, 60), dtype=bool)
    plain = profile(image, look, others)
    others[20:40, 42:58] = True
    masked = profile(image, look, others)
    away = DEPTHS < -0.09
    assert plain[away, 0].sum() / plain[away, 1].sum() > 0.1
    assert abs(masked[away, 0].sum() / masked[away, 1].sum()) < 0.03
