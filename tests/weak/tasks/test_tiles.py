"""Tiles of a volume against counting: each voxel is judged once, and away from borders that cut the volume."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.tasks.tiles import OVERLAP, judged_part, judged_window, tile_starts

LENGTHS = st.integers(1, 300)


@given(length=LENGTHS, size=LENGTHS)
def test_each_voxel_is_judged_once(length: int, size: int) -> None:
    times = np.zeros(length, dtype=int)
    for start in tile_starts(length, size):
        part = judged_part(length, size, start)
        assert 0 <= part.start < part.stop <= size
        times[start + part.start : start + part.stop] += 1
    assert (times == 1).all()


@given(length=LENGTHS, size=LENGTHS)
def test_it_is_the_tile_whose_border_is_farthest(length: int, size: int) -> None:
    starts = tile_starts(length, size)

    def away(start: int, voxel: int) -> int:
        """From the nearest border of a tile that is not the volume's own."""
        before = voxel - start if start > 0 else length
        after = start + size - 1 - voxel if start + size < length else length
        return min(before, after)

    for start in starts:
        part = judged_part(length, size, start)
        for voxel in range(start + part.start, start + part.stop):
            inside = [one for one in starts if one <= voxel < one + size]
            assert away(start, voxel) >= max(away(one, voxel) for one in inside) - 1  # in a tie, either


@given(length=LENGTHS, size=LENGTHS)
def test_tiles_overlap_and_end_where_the_volume_does(length: int, size: int) -> None:
    starts = tile_starts(length, size)
    assert starts[0] == 0
    assert starts[-1] == max(0, length - size)
    farthest = max(1, int((1.0 - OVERLAP) * size))
    assert all(0 < after - before <= farthest for before, after in pairwise(starts))


@pytest.mark.parametrize(("length", "size", "count"), [(256, 144, 3), (64, 16, 5), (96, 32, 4), (20, 32, 1)])
def test_there_are_no_more_tiles_than_a_quarter_of_overlap_takes(length: int, size: int, count: int) -> None:
    assert len(tile_starts(length, size)) == count


def test_a_window_is_judged_along_each_axis() -> None:
    # 256 in tiles of 144 from 0, 56 and 112: the middles of their overlaps are 100 and 156
    assert judged_window((20, 256, 256), (32, 144, 144), (0, 56, 112)) == (
        slice(0, 20),
        slice(44, 100),
        slice(44, 144),
    )
