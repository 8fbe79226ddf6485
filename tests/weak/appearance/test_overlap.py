"""Boxes in boxes and pixels in boxes, against counting pixels."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.appearance.overlap import WITHIN, area_of, in_any, lies_in

BOX = st.tuples(*[st.tuples(st.integers(0, 12), st.integers(0, 8))] * 2).map(
    lambda sides: np.array([[low, low + length] for low, length in sides])
)


@given(inner=BOX, outer=BOX)
def test_pixels_tell_which_box_lies_in_which(inner: np.ndarray, outer: np.ndarray) -> None:
    first, second = in_any(inner[None], (20, 20)), in_any(outer[None], (20, 20))
    assert area_of(inner) == first.sum()
    assert lies_in(inner, outer) == ((first & second).sum() >= WITHIN * first.sum())


def test_a_twentieth_may_be_outside() -> None:
    box, wide = np.array([[2, 22], [3, 23]]), np.array([[0, 40], [0, 40]])
    assert lies_in(box, wide)
    assert lies_in(box + np.array([[0], [18]]), wide)  # a column of twenty
    assert not lies_in(box + np.array([[0], [19]]), wide)
    many = np.stack([box, wide])
    np.testing.assert_array_equal(lies_in(many[:, None], many[None]), [[True, True], [False, True]])


def test_pixels_beside_a_box_count_if_asked() -> None:
    boxes = np.array([[[0, 2], [3, 5]], [[6, 6], [0, 4]]])  # the second one is empty
    expected = np.zeros((6, 8), bool)
    expected[0:3, 2:6] = True
    np.testing.assert_array_equal(in_any(boxes[:1], (6, 8), by=1), expected)
    assert in_any(boxes, (6, 8)).sum() == 4
