"""The largest part of each class, against a flood fill written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from ringfence.weak.volumes.parts import largest_parts


def parts(wanted: NDArray[np.bool_]) -> list[set[tuple[int, ...]]]:
    """Groups of voxels that touch by their faces."""
    left = set(map(tuple, np.argwhere(wanted).tolist()))
    found = []
    while left:
        group, front = set(), [left.pop()]
        while front:
            one = front.pop()
            group.add(one)
            for axis in range(3):
                for step in (-1, 1):
                    other = (*one[:axis], one[axis] + step, *one[axis + 1 :])
                    if other in left:
                        left.remove(other)
                        front.append(other)
        found.append(group)
    return found


@settings(deadline=None)  # SciPy is imported by the first call
@given(arrays.arrays(np.uint8, (3, 5, 4), elements=st.integers(0, 2)))
def test_only_the_largest_part_of_each_class_is_left(mask: NDArray[np.uint8]) -> None:
    kept = largest_parts(mask)
    assert kept.dtype == np.uint8
    for number in (1, 2):
        here = set(map(tuple, np.argwhere(kept == number).tolist()))
        every = parts(mask == number)
        assert here in every if every else not here
        assert len(here) == max(map(len, every), default=0)


@pytest.mark.parametrize("value", [0, 3])
def test_a_volume_of_one_value_stays_as_it_is(value: int) -> None:
    mask = np.full((2, 3, 4), value, dtype=np.uint8)
    assert np.array_equal(largest_parts(mask), mask)
