"""Boxes of slices that are of one object, against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph

from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.annotations.joining import joined_slices

SIDES = st.tuples(st.integers(0, 6), st.integers(1, 3)).map(lambda one: (one[0], one[0] + one[1]))
BOXES = st.lists(st.tuples(st.integers(0, 4), SIDES, SIDES), max_size=12)


@given(BOXES)
def test_boxes_that_meet_in_neighbouring_slices_are_of_one_object(
    drawn: list[tuple[int, tuple[int, int], tuple[int, int]]],
) -> None:
    boxes = [BoxAnnotation("a", number, 1, (y[0], x[0]), (y[1], x[1])) for number, y, x in drawn]
    meet = np.zeros((len(drawn), len(drawn)), dtype=bool)
    for one, (z, *sides) in enumerate(drawn):
        for other, (next_z, *others) in enumerate(drawn):
            touch = all(
                low <= last and first <= high for (low, high), (first, last) in zip(sides, others, strict=True)
            )
            meet[one, other] = abs(z - next_z) == 1 and touch
    _, groups = csgraph.connected_components(meet, directed=False) if drawn else (0, np.zeros(0))
    expected = []
    for group in np.unique(groups):
        of = [one for one, number in zip(drawn, groups, strict=True) if number == group]
        low = [min(z for z, _, _ in of), min(y[0] for _, y, _ in of), min(x[0] for _, _, x in of)]
        high = [1 + max(z for z, _, _ in of), max(y[1] for _, y, _ in of), max(x[1] for _, _, x in of)]
        expected.append((low, high))
    assert sorted(joined_slices(boxes)) == sorted(expected)


@pytest.mark.parametrize(("gap", "count"), [(0, 1), (1, 2)])
def test_boxes_that_touch_are_of_one_object(gap: int, count: int) -> None:
    boxes = [BoxAnnotation("a", 0, 1, (0, 0), (3, 3)), BoxAnnotation("a", 1, 1, (3 + gap, 0), (5 + gap, 3))]
    assert len([*joined_slices(boxes)]) == count
