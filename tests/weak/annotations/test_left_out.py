"""Slices between two boxes of an object that the annotator left out, and what is known of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.annotations import BoxAnnotation, annotations_from_boxes, boxes_from_masks, left_out


@pytest.mark.parametrize(
    ("boxes", "gap", "expected"),
    [
        ([(3, (1, 1), (4, 4)), (5, (2, 3), (6, 9))], 1, [(4, (1, 1), (6, 9))]),
        ([(3, (1, 1), (4, 4)), (5, (2, 3), (6, 9))], 0, []),
        ([(3, (1, 1), (4, 4)), (6, (2, 3), (6, 9))], 1, []),
        ([(3, (1, 1), (4, 4)), (6, (2, 3), (6, 9))], 2, [(4, (1, 1), (6, 9)), (5, (1, 1), (6, 9))]),
        ([(3, (1, 1), (4, 4)), (5, (5, 1), (6, 4))], 2, []),
        ([(3, (1, 1), (4, 4)), (5, (4, 4), (6, 6))], 2, [(4, (1, 1), (6, 6))]),
        ([(3, (1, 1), (4, 4)), (4, (2, 2), (3, 3)), (5, (1, 1), (4, 4))], 2, []),
        ([(3, (1, 1), (4, 4)), (4, (8, 8), (9, 9)), (5, (1, 1), (4, 4))], 2, [(4, (1, 1), (4, 4))]),
        (
            [(3, (1, 1), (9, 9)), (5, (1, 1), (2, 2)), (5, (7, 7), (9, 9))],
            2,
            [(4, (1, 1), (9, 9))],
        ),
        (
            [(0, (1, 1), (3, 3)), (2, (1, 1), (3, 3)), (4, (2, 2), (5, 5))],
            2,
            [(1, (1, 1), (3, 3)), (3, (1, 1), (5, 5))],
        ),
        ([(0, (1, 1), (3, 3)), (1, (6, 1), (9, 3)), (2, (1, 1), (9, 3))], 2, []),
    ],
    ids=[
        "one",
        "switched-off",
        "too-many",
        "two",
        "apart",
        "touching",
        "none-missing",
        "beside-another",
        "a-branch",
        "every-other",
        "a-nearer-one",
    ],
)
def test_slices_that_the_annotator_left_out(boxes: list[Any], gap: int, expected: list[Any]) -> None:
    notes = [BoxAnnotation("A", place, 1, low, high) for place, low, high in boxes]
    others = [BoxAnnotation("A", 4, 2, (1, 1), (4, 4)), BoxAnnotation("B", 4, 1, (1, 1), (4, 4))]
    for some in (notes, [*notes[::-1], *others]):
        found = left_out([*some, BoxAnnotation("C", None, 1, (0, 0, 0), (1, 2, 2))], gap)
        assert sorted((one.slice, one.low, one.high) for one in found) == expected
        assert all((one.case, one.label, one.tight) == ("A", 1, False) for one in found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_object_is_within_what_fills_its_gap(data: Any) -> None:
    """Ellipsoids, of which some slices were left out: a slice is no larger than the hull of those around it."""
    shape = data.draw(st.tuples(st.integers(3, 14), st.integers(4, 14), st.integers(4, 14)))
    middle = [data.draw(st.floats(0.3, 0.7)) * side for side in shape]
    radii = [data.draw(st.floats(0.2, 0.6)) * side for side in shape]
    place = [
        (np.arange(side) + 0.5 - centre) / radius for side, centre, radius in zip(shape, middle, radii, strict=True)
    ]
    mask = (place[0][:, None, None] ** 2 + place[1][:, None] ** 2 + place[2] ** 2) <= 1
    notes = annotations_from_boxes("A", boxes_from_masks(torch.from_numpy(mask)[:, None]).numpy())
    drawn = [one for one in notes if data.draw(st.booleans())]
    gap = data.draw(st.integers(0, 3))
    found = left_out(drawn, gap)
    there = sorted(one.slice for one in drawn)
    missing = [
        number for first, last in pairwise(there) for number in range(first + 1, last) if last - first - 1 <= gap
    ]
    assert [one.slice for one in found] == missing
    for one in found:
        inside = np.zeros(shape[1:], bool)
        inside[one.low[0] : one.high[0], one.low[1] : one.high[1]] = True
        # it grows towards the middle: only a slice at the middle itself is larger than both of its neighbours
        if abs(one.slice + 0.5 - middle[0]) > gap + 1:
            assert not (mask[one.slice] & ~inside).any()
