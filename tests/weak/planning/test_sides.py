"""Classes that only their side tells apart: what plans make of where boxes are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fingerprints import fingerprint
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from prepared_sets import make_prepared
from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.planning.fingerprint import read_fingerprint
from ringfence.weak.planning.plan import make_plan
from ringfence.weak.planning.sides import Sided, sided

Boxes = NDArray[np.int64]


def case(*classes: tuple[tuple[int, int], ...], slices: int = 2, down: int = 0) -> Boxes:
    """Boxes of each class, by the columns ``(first, one past the last)`` of each; the same in all slices."""
    found = np.zeros((slices, len(classes), max(map(len, classes), default=0), 2, 2), np.int64)
    for number, some in enumerate(classes):
        for place, columns in enumerate(some):
            found[:, number, place] = [[10 + down, 20 + down], columns]
    return found


def by_loops(found: list[Boxes], one: int, other: int | None, width: int, left: bool) -> float:
    """The same share, from lists of boxes."""
    shares = []
    for boxes in found:
        votes = []
        for plane in boxes.tolist():
            ends = [[columns for rows, columns in some if rows[1] > rows[0]] for some in plane]
            if not ends[one] or (other is not None and not ends[other]):
                continue
            low, high = min(a for a, _ in ends[one]), max(b for _, b in ends[one])
            if other is None:
                votes.append(high <= width / 2 if left else low >= width / 2)
                continue
            start, stop = min(a for a, _ in ends[other]), max(b for _, b in ends[other])
            apart = (start + stop - low - high) / 2 * (1 if left else -1)
            votes.append(apart >= (high - low + stop - start) / 4)
        if votes:
            shares.append(sum(votes) / len(votes))
    return sum(shares) / len(shares) if len(shares) >= 6 else 0.0


ENDS = st.tuples(st.integers(0, 24), st.integers(1, 8)).map(lambda one: (one[0], one[0] + one[1]))
ANYWHERE = st.lists(st.lists(ENDS, max_size=2).map(tuple), min_size=2, max_size=2).map(lambda some: case(*some))
BESIDE = st.builds(
    lambda gap, some: case(((0, 6),), ((gap, gap + 6),), slices=some), st.integers(2, 9), st.integers(1, 4)
)
"""At 3, centres are half as far apart as if the boxes touched."""
CASES = st.lists(ANYWHERE, min_size=4, max_size=7) | st.lists(
    st.lists(BESIDE, min_size=1, max_size=4).map(np.concatenate), min_size=5, max_size=9
)


@given(found=CASES, width=st.integers(20, 40))
def test_shares_are_those_that_loops_find(found: list[Boxes], width: int) -> None:
    ways = [(one, None, left) for one in (0, 1) for left in (True, False)]
    most = max(
        by_loops(found, one, other, width, left) for one, other, left in [*ways, (0, 1, True), (0, 1, False)]
    )
    told = sided(["a", "b"], found, width)
    assert (told.share if told else 0.0) == pytest.approx(most if most >= 0.9 else 0.0)


def beside(often: int, of: int, apart: int = 4) -> Boxes:
    """A case of so many slices, in some of which b is right of a; all cross the middle of 24 columns."""
    there, elsewhere = (case(((6, 14),), ((6 + off, 14 + off),), slices=of) for off in (apart, 0))
    return np.concatenate([there[:often], elsewhere[often:]])


@pytest.mark.parametrize(("often", "told"), [(10, True), (9, True), (8, False)])
def test_it_must_be_there_in_nine_of_ten_slices(often: int, told: bool) -> None:
    expected = Sided("a", "b", True, pytest.approx(often / 10))
    assert sided(["a", "b"], [beside(often, 10)] * 6, 24) == (expected if told else None)


def test_cases_count_alike_however_many_slices_they_have() -> None:
    found = sided(["a", "b"], [*[beside(1, 1)] * 9, beside(50, 100)], 24)
    assert found == Sided("a", "b", True, pytest.approx(0.95))  # of all slices together: 59 of 109


@pytest.mark.parametrize(("apart", "told"), [(4, True), (3, False)])
def test_half_as_far_as_boxes_that_touch_is_beside(apart: int, told: bool) -> None:
    assert (sided(["a", "b"], [beside(2, 2, apart)] * 6, 24) is not None) is told


def test_what_is_on_its_side_most_often_is_named() -> None:
    """a is left of b in all slices, and in the left half in nineteen of twenty; either would do."""
    left = case(((2, 10),), ((16, 24),), slices=10)
    across = case(((6, 14),), ((16, 24),), slices=10)
    mixed = np.concatenate([left[:5], across[5:]])
    assert sided(["a", "b"], [*[left] * 9, mixed], 24) == Sided("b", None, False, 1.0)
    crossing = case(((6, 14),), ((10, 18),), slices=10)
    assert sided(["a", "b"], [*[left] * 9, crossing], 24) == Sided("a", "b", True, 1.0)


@given(found=CASES)
def test_mirrored_images_have_the_other_side(found: list[Boxes]) -> None:
    mirrored = []
    for one in found:
        there = (one[..., 1] > one[..., 0]).all(axis=-1)
        other = one.copy()
        other[..., 1, :] = np.where(there[..., None], 32 - one[..., 1, ::-1], 0)
        mirrored.append(other)
    told, seen = sided(["a", "b"], found, 32), sided(["a", "b"], mirrored, 32)
    assert (told is None) == (seen is None)
    if told and seen:
        assert (told.share, told.name, told.left) == (seen.share, seen.name, not seen.left)


def test_a_class_left_of_another_is_never_mirrored() -> None:
    both = [case(((4 + shift, 12 + shift),), ((16 + shift, 24 + shift),)) for shift in range(9)]
    told = sided(["right kidney", "left kidney"], both, 36)
    assert told == Sided("right kidney", "left kidney", True, 1.0)
    made = make_plan(replace(fingerprint(), sided=told), "cpu")
    assert made.changes["augment.flip"] == []
    (why,) = (one.reason for one in made.choices if one.name == "augment.flip")
    assert why.startswith(
        "right kidney is left of left kidney in 100% of the slices that show it: in mirrored images"
    )


def test_a_class_in_one_half_of_images_is_never_mirrored() -> None:
    found = [case(((21 + shift, 30 + shift),)) for shift in range(8)]
    assert sided(["spleen"], found, 42) == Sided("spleen", None, False, 1.0)
    assert sided(["spleen"], found, 44) is None  # some cross the middle, at 22
    assert sided(["spleen"], found[:6], 42) is not None
    assert sided(["spleen"], found[:5], 42) is None  # five are on one side by chance too often


@pytest.mark.parametrize("second", [((14, 24),), ((4, 34),), ((2, 8), (30, 36))])
def test_what_is_around_or_within_or_on_both_sides_may_be_mirrored(second: tuple[tuple[int, int], ...]) -> None:
    assert sided(["core", "other"], [case(((16, 24),), second)] * 9, 40) is None


def test_images_are_mirrored_where_no_class_has_a_side() -> None:
    for found in (fingerprint(), fingerprint(tight=0)):  # slices, and volumes
        assert make_plan(found, "cuda").changes["augment.flip"] == ["left-right"]
        told = replace(found, sided=Sided("a", None, True, 1.0))
        assert make_plan(told, "cuda").changes["augment.flip"] == []


def test_sides_are_read_from_the_boxes_of_a_file(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=7, shape=(4, 20, 30), masked=False)
    names = [one.name for one in prepared.of("train")]
    boxes = [BoxAnnotation(name, 1, 1, (2, 2), (10, 14)) for name in names]
    assert read_fingerprint(prepared, boxes).sided == Sided(prepared.classes[0], None, True, 1.0)
    assert read_fingerprint(prepared, [replace(one, high=(10, 24)) for one in boxes]).sided is None
