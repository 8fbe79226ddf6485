"""Labels that contradict each other: found wherever they do, named with case and slice, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.weak.annotations import BoxAnnotation, ScribblePoint, SizeAnnotation
from ringfence.weak.annotations.contradictions import check_agreement, contradictions
from ringfence.weak.prepared import Case, PreparedSet, Preprocessing

CASES = tuple(Case(f"case{one}", "train", f"{one}.npz", "", (6, 20, 24), None, False) for one in range(2))
PREPARED = PreparedSet(Path("set"), "set", Preprocessing((20, 24)), ("MR",), ("organ", "lesion"), CASES)
BOXES = [
    BoxAnnotation("case0", 2, 1, (4, 5), (14, 17)),
    BoxAnnotation("case0", 3, 1, (4, 5), (8, 9), tight=False),
    BoxAnnotation("case0", None, 2, (1, 0, 0), (4, 5, 5)),
]


def lines(
    boxes: list[BoxAnnotation] | None = None,
    sizes: list[SizeAnnotation] | None = None,
    points: list[ScribblePoint] | None = None,
) -> list[str]:
    return list(contradictions((boxes, sizes or [], points or []), PREPARED))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (SizeAnnotation("case0", 2, 1, 120, math.inf), ""),
        (SizeAnnotation("case0", 2, 1, 121, math.inf), "slice 2 of case0: at least 121 voxels of organ are asked for, and its boxes hold 120"),
        (SizeAnnotation("case0", 4, 1, 1, 9), "slice 4 of case0: at least 1 voxels of organ are asked for, and there is no box of it"),
        (SizeAnnotation("case0", 4, 1, 0, 9), ""),
        (SizeAnnotation("case0", 4, 1, -math.inf, 9), ""),
        (SizeAnnotation("case0", 2, 1, 0, 12), ""),
        (SizeAnnotation("case0", 2, 1, 0, 11), "slice 2 of case0: at most 11 voxels of organ are asked for, and an object that touches all sides of its box has at least 12"),
        (SizeAnnotation("case0", 3, 1, 0, 1), ""),
        (SizeAnnotation("case0", None, 1, 136, math.inf), ""),
        (SizeAnnotation("case0", None, 1, 137, math.inf), "case0: at least 137 voxels of organ are asked for, and its boxes hold 136"),
        (SizeAnnotation("case0", 3, 2, 26, math.inf), "slice 3 of case0: at least 26 voxels of lesion are asked for, and its boxes hold 25"),
        (SizeAnnotation("case0", 3, 2, 25, 25), ""),
        (SizeAnnotation("case0", 4, 2, 1, 1), "slice 4 of case0: at least 1 voxels of lesion are asked for, and there is no box of it"),
        (SizeAnnotation("case1", 2, 1, 300, math.inf), ""),
    ],
)  # fmt: skip
def test_sizes_and_boxes(size: SizeAnnotation, said: str) -> None:
    assert lines(BOXES, [size]) == [said] * bool(said)


def test_slices_and_their_volume() -> None:
    slices = [SizeAnnotation("case0", number, 1, 10, 20) for number in range(3)]
    assert lines(None, [*slices, SizeAnnotation("case0", None, 1, 0, 30)]) == []
    assert lines(None, [*slices, SizeAnnotation("case0", None, 1, 0, 29)]) == [
        "case0: at most 29 voxels of organ are asked for in the volume, and at least 30 in its slices"
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*(st.integers(0, n) for n in (1, 5, 2, 19, 23))), max_size=15, unique=True))
def test_scribbles_and_boxes(drawn: list[tuple[int, int, int, int, int]]) -> None:
    """A line for each slice and class with a point outside; the background may be anywhere. Against painted boxes."""
    painted = np.zeros((3, 6, 20, 24), bool)
    painted[0] = True
    painted[1, 2, 4:14, 5:17] = painted[1, 3, 4:8, 5:9] = painted[2, 1:4, :5, :5] = True
    points = [ScribblePoint(f"case{case}", *rest) for case, *rest in drawn]
    outside: dict[tuple[int, int], int] = {}
    for case, number, label, row, column in drawn:
        if case == 0 and not painted[label, number, row, column]:
            outside[number, label] = outside.get((number, label), 0) + 1
    said = lines(BOXES, points=points)
    assert len(said) == len(outside)
    for (number, label), count in outside.items():
        words = f"{count} points" if count > 1 else "a point"
        start = f"slice {number} of case0: {words} of a scribble of {PREPARED.classes[label - 1]} ("
        where = "outside of all its boxes" if painted[label, number].any() else "where no box says that it is"
        assert len([line for line in said if line.startswith(start) and where in line]) == 1


def test_ten_are_told_together() -> None:
    sizes = [SizeAnnotation("case0", number % 6, 1 + number // 6, 400, math.inf) for number in range(12)]
    for count, first in ((1, "the two: slice 0 of case0: at "), (3, "3 problems:"), (12, "the first 10 problems:")):
        with pytest.raises(ValueError, match="labels of set contradict each other; correct one of") as caught:
            check_agreement((BOXES, sizes[:count], []), PREPARED)
        assert first in str(caught.value).splitlines()[0]
        assert len(str(caught.value).splitlines()) == (1 if count == 1 else 1 + min(count, 10))
    check_agreement((BOXES, [], []), PREPARED)


@pytest.mark.parametrize("resized", [False, True])
def test_masks_and_what_is_said_of_them(tmp_path: Path, resized: bool) -> None:
    """Of a resized mask, what half a pixel around it may make is no contradiction."""
    prepared = make_prepared(tmp_path)
    times = 2 if resized else 1
    prepared = replace(
        prepared, cases=tuple(replace(one, shape=(6, 24 * times, 20 * times)) for one in prepared.cases)
    )
    case = prepared.cases[0]
    mask = prepared.load(case)[1]
    assert mask is not None
    count = int((mask[2] == 1).sum()) * times**2
    rows, columns = np.nonzero(mask[2])

    def said(*labels: SizeAnnotation | ScribblePoint) -> list[str]:
        sizes = [one for one in labels if isinstance(one, SizeAnnotation)]
        points = [one for one in labels if isinstance(one, ScribblePoint)]
        return list(contradictions((None, sizes, points), prepared))

    assert (
        said(SizeAnnotation("case0", 2, 1, count, count), SizeAnnotation("case0", None, 1, count, math.inf)) == []
    )
    for low, high, words in ((2 * count, math.inf, "at least"), (0, count // 2, "at most")):
        (line,) = said(SizeAnnotation("case0", 2, 1, low, high))
        bound = low or high
        assert (
            line == f"slice 2 of case0: the mask has {count} voxels of class 1, and {words} {bound} are asked for"
        )
    assert len(said(SizeAnnotation("case0", 2, 1, count + 1, math.inf))) == (not resized)
    inside = ScribblePoint("case0", 2, 1, int(rows[5]) * times, int(columns[5]) * times)
    below = ScribblePoint("case0", 2, 1, (int(rows.max()) + 1) * times, int(columns[5]) * times)
    far = replace(below, row=below.row + 2 * times)
    assert said(inside, replace(far, label=0), *[below] * resized) == []
    assert said(inside, far) == [
        f"slice 2 of case0: a point of a scribble of class 1 (at row {far.row}, column {far.column}) is outside of the "
        "box around its mask"
    ]
    assert "where the mask has none of it" in said(replace(inside, slice=0))[0]
