"""A teacher's labels against a reference that looks at one pixel after the other; and what must hold of them."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak.tasks.teaching import KnownOf, taught_labels
from ringfence.weak.tasks.windows import UNSURE

SHAPE = (6, 7)
Pixel = tuple[int, ...]
Fit = dict[Pixel, float]


def known(
    boxes: list[list[list[list[int]]]], *, whole: bool = True, margin: int = 0, scribble: object = ()
) -> KnownOf:
    """Boxes by class, each a list of [start, stop) along the axes; classes are filled up with empty ones."""
    most = max(map(len, boxes))
    axes = len(next(one for some in boxes for one in some))
    filled = np.array([[*some, *[[[0, 0]] * axes] * (most - len(some))] for some in boxes], np.int64)
    points = np.array(scribble, np.int64).reshape(-1, 1 + axes)
    return KnownOf(filled, np.full(filled.shape[:-1], whole), np.full(axes, margin), points)


def pixels(box: NDArray[np.int64]) -> list[Pixel]:
    return list(product(*(range(int(low), int(high)) for low, high in box)))


def parts(some: set[Pixel]) -> list[set[Pixel]]:
    """Connected parts, the one with the first pixel first."""
    found, left = [], sorted(some)
    while left:
        part, edge = set(), [left[0]]
        while edge:
            pixel = edge.pop()
            if pixel in some and pixel not in part:
                part.add(pixel)
                for axis, step in product(range(len(pixel)), (-1, 1)):
                    edge.append(tuple(one + step * (axis == number) for number, one in enumerate(pixel)))
        found.append(part)
        left = [pixel for pixel in left if pixel not in part]
    return found


def labelled(p: NDArray[np.float64], said: KnownOf, unsure: float) -> NDArray[np.uint8]:
    """Labels of a case of one sample."""
    (found,) = taught_labels([(p, said)], unsure)
    return found


def fit(
    p: NDArray[np.float64], said: KnownOf, k: int, box: NDArray[np.int64], whole: NDArray[np.bool_]
) -> tuple[Fit, Fit] | None:
    """How far class k, and any class, leads at each pixel of a box, stretched to it; None if it was missed."""
    every = {one: {pixel for box in said.box[one - 1] for pixel in pixels(box)} for one in range(1, len(p))}
    own = set(pixels(box))

    def ahead(pixel: Pixel) -> float:
        others = [p[(one, *pixel)] for one in range(len(p)) if one != k and (one == 0 or pixel in every[one])]
        return float(np.float32(math.log(p[(k, *pixel)]) - math.log(max(others))))

    def any_ahead(pixel: Pixel) -> float:
        classes = [p[(one, *pixel)] for one in range(1, len(p)) if one == k or pixel in every[one]]
        return float(np.float32(math.log(max(classes)) - math.log(p[(0, *pixel)])))

    wide = [
        (max(0, low - math.ceil((high - low) / 2)), min(length, high + math.ceil((high - low) / 2)))
        if tight
        else (low, high)
        for (low, high), tight, length in zip(box.tolist(), whole, p.shape[1:], strict=True)
    ]
    seen = {pixel: ahead(pixel) for pixel in product(*(range(*ends) for ends in wide))}
    above = {pixel for pixel in seen if seen[pixel] > 0 and (pixel in own or pixel not in every[k])}
    part = max(parts(above), key=lambda some: len(some & own), default=set())
    if not part & own:
        return None
    where: list[list[float]] = []
    for axis, (low, high) in enumerate(box.tolist()):
        places, margin = list(range(low, high)), int(said.margin[axis])
        if whole[axis]:
            found = []
            for line, step in ((min(q[axis] for q in part), -1), (max(q[axis] for q in part), 1)):
                last = [q for q in part if q[axis] == line]
                beyond = [tuple(x + step * (a == axis) for a, x in enumerate(q)) for q in last]
                far = 0.5
                if all(q in seen for q in beyond):
                    most, next_one = max(seen[q] for q in last), max(seen[q] for q in beyond)
                    far = most / (most - next_one) if next_one <= 0 else 0.5
                found.append(line + 0.5 + step * far)
            lines = 1 + max(q[axis] for q in part) - min(q[axis] for q in part)
            if lines < 0.5 * (high - low - 2 * margin):
                return None
            inner = min(margin, (high - low - 1) // 2)
            first, last_one = np.clip(found[0], low, low + inner), np.clip(found[1], high - inner, high)
            stretch = (found[1] - found[0]) / (last_one - first)
            where.append([found[0] + (x + 0.5 - first) * stretch - 0.5 for x in places])
        else:
            where.append([float(x) for x in places])
    values, anything = {}, {}
    for pixel, at in zip(pixels(box), product(*where), strict=True):
        kept = [min(max(x, low), high - 1) for x, (low, high) in zip(at, wide, strict=True)]
        corners = product(*([math.floor(x), math.floor(x) + 1] for x in kept))
        shares = {q: math.prod(1 - abs(x - y) for x, y in zip(q, kept, strict=True)) for q in corners}
        values[pixel] = sum(share * seen[q] for q, share in shares.items() if share > 0)
        anything[pixel] = sum(share * any_ahead(q) for q, share in shares.items() if share > 0)
    return values, anything


def reference(p: NDArray[np.float64], said: KnownOf, unsure: float) -> NDArray[np.uint8]:
    boxes = [
        (k + 1, box, whole)
        for k in range(len(said.box))
        for box, whole in zip(said.box[k], said.whole[k], strict=True)
    ]
    boxes = [(k, box, whole) for k, box, whole in boxes if pixels(box)]
    fits = [(k, box, fit(p, said, k, box, whole)) for k, box, whole in boxes]
    likeliest, lead, certain, between = {}, {}, {}, {}
    for pixel in product(*map(range, p.shape[1:])):
        values, between[pixel] = [0.0] + [-math.inf] * (len(p) - 1), False
        for k, _, found in fits:
            if found is not None and pixel in found[0]:
                values[k] = max(values[k], found[0][pixel])
                between[pixel] |= found[1][pixel] > 0
                assume(abs(found[1][pixel]) > 1e-4)
        likeliest[pixel] = values.index(max(values))
        lead[pixel] = sorted(values)[-1] - sorted(values)[-2]
        certain[pixel] = True
        assume(lead[pixel] > 1e-4)  # which one leads is told by more than float32 rounds
    for _, box, _ in boxes:
        leads = sorted(lead[pixel] for pixel in pixels(box))
        least = leads[int(unsure * len(leads))]
        assume(unsure == 0.0 or sum(abs(one - least) < 1e-4 for one in leads if one < math.inf) < 2)
        for pixel in pixels(box):
            certain[pixel] &= lead[pixel] >= least
    for pixel, one in likeliest.items():
        certain[pixel] &= one > 0 or not between[pixel]
    labels = np.full(p.shape[1:], UNSURE, np.uint8)
    for pixel, one in likeliest.items():
        if certain[pixel] and one == 0:
            labels[pixel] = 0
    for k, box, found in fits:
        if found is None:
            continue
        own = parts({pixel for pixel in pixels(box) if likeliest[pixel] == k})
        part = max(own, key=len, default=set())
        kept = {pixel for pixel in part if certain[pixel]}
        for hole in parts(set(pixels(box)) - kept):
            border = any(
                q[a] in (low, high - 1) for q in hole for a, (low, high) in enumerate(box) if high - low > 0
            )
            if not border and not any(certain[q] and likeliest[q] != k for q in hole):
                kept |= hole
        for pixel in kept:
            labels[pixel] = k
    for _, box, found in fits:
        for pixel in pixels(box) if found is None else ():
            labels[pixel] = UNSURE
    while True:
        lost = [box for k, box, _ in boxes if all(labels[q] != k for q in pixels(box))]
        lost = [box for box in lost if any(labels[q] != UNSURE for q in pixels(box))]
        if not lost:
            break
        for box in lost:
            for pixel in pixels(box):
                labels[pixel] = UNSURE
    for one, *pixel in said.scribble.tolist():
        if one:
            labels[tuple(pixel)] = one - 1
    return labels


ENDS = [
    st.tuples(st.integers(0, n - 1), st.integers(1, n)).map(lambda two, n=n: [min(two[0], two[1] - 1), two[1]])
    for n in SHAPE
]
BOXES = st.lists(st.tuples(*ENDS).map(list), min_size=1, max_size=2)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(BOXES, min_size=2, max_size=2),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([0.5, 2.5]),
    st.integers(0, 1),
    st.booleans(),
)
def test_labels_are_the_reference_and_never_contradict_boxes(
    boxes: list[list[list[list[int]]]], seed: int, unsure: float, sharp: float, margin: int, whole: bool
) -> None:
    random = np.random.default_rng(seed)
    smooth = random.normal(size=(3, *SHAPE)).cumsum(axis=1).cumsum(axis=2)
    p = np.exp(sharp * smooth / np.abs(smooth).max())
    p /= p.sum(axis=0)
    said = known(boxes, whole=whole, margin=margin)
    labels = labelled(p, said, unsure)
    np.testing.assert_array_equal(labels, reference(p, said, unsure))
    for k, some in enumerate(boxes, start=1):
        inside = np.zeros(SHAPE, bool)
        for box in some:
            place = tuple(slice(*ends) for ends in box)
            inside[place] = True
            assert (labels[place] == k).any() or (labels[place] == UNSURE).all()
        assert not (labels[~inside] == k).any()
    anywhere = np.zeros(SHAPE, bool)
    for some in boxes:
        for box in some:
            anywhere[tuple(slice(*ends) for ends in box)] = True
    assert (labels[~anywhere] == 0).all()


def one_class(foreground: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([1.0 - foreground, foreground])


def test_a_true_answer_is_kept_as_it_is() -> None:
    truth = np.zeros((20, 20))
    truth[5:12, 4:15] = 1.0
    truth[5, 4] = 0.0
    labels = labelled(one_class(0.1 + 0.5 * truth), known([[[[5, 12], [4, 15]]]]), 0.0)
    np.testing.assert_array_equal(labels, truth)


def test_holes_are_filled_unless_something_is_surely_in_them() -> None:
    p = np.zeros((3, 11, 11))
    p[0] = 1.0
    p[:, 1:10, 1:10] = np.array([0.0, 0.99, 0.01])[:, None, None]
    doubtful = p.copy()
    doubtful[:, 5, 5] = [0.51, 0.49, 0.0]
    said = known([[[[1, 10], [1, 10]]], [[[4, 7], [4, 7]]]])
    one_box = known([[[[1, 10], [1, 10]]], [[[0, 0], [0, 0]]]])
    assert (labelled(doubtful, one_box, 0.02)[1:10, 1:10] == 1).all()
    ring = p.copy()
    ring[:, 4:7, 4:7] = np.array([0.0, 0.01, 0.99])[:, None, None]
    labels = labelled(ring, said, 0.0)
    assert (labels[4:7, 4:7] == 2).all()
    assert (labels == 1).sum() == 81 - 9


def test_small_parts_and_answers_that_miss_the_object_are_unsure() -> None:
    p = np.zeros((12, 12))
    p[2:10, 2:9] = p[8:10, 9:12] = 0.9
    p[2, 11] = 0.9
    labels = labelled(one_class(p + 1e-6), known([[[[2, 10], [2, 12]]]]), 0.0)
    assert labels[2, 11] == UNSURE
    assert (labels[2:10, 2:9] == 1).all()
    assert (labels[8:10, 9:12] == 1).all()
    assert (labels[3:8, 9:12] == 0).all()
    small = np.zeros((12, 12))
    small[4:6, 4:6] = 0.9
    assert (labelled(one_class(small), known([[[[2, 10], [2, 10]]]]), 0.0)[2:10, 2:10] == UNSURE).all()
    loose = known([[[[2, 10], [2, 10]]]], whole=False)  # that box promises nothing
    np.testing.assert_array_equal(labelled(one_class(small), loose, 0.0), small > 0)


def test_an_unsure_share_is_that_of_the_least_lead() -> None:
    p = np.full((10, 10), 0.9)
    p[4] = 0.6
    labels = labelled(one_class(p), known([[[[0, 10], [0, 10]]]]), 0.1)
    assert (labels[4] == UNSURE).all()
    assert (np.delete(labels, 4, axis=0) == 1).all()


def test_between_classes_that_part_when_stretched_is_no_background() -> None:
    """A core that is found too large in a ring that is found too small: the model sees nothing else in the ring."""
    rows, columns = np.mgrid[:32, :32]
    distance = np.hypot(rows - 15.5, columns - 15.5)
    core, ring = np.exp(2 * (9.0 - distance)), np.exp(2 * (13.0 - distance))
    p = np.stack([np.ones_like(core), ring, ring * core])
    p /= p.sum(axis=0)
    said = known([[[[1, 31], [1, 31]]], [[[9, 23], [9, 23]]]])
    labels = labelled(p, said, 0.0)
    assert (labels[distance < 11] != 0).all()
    assert (labels[(distance > 7.5) & (distance < 8.5)] == UNSURE).any()
    assert (labels[distance < 5] == 2).all()
    assert (labels[(distance > 11.5) & (distance < 13)] == 1).all()


def test_of_overlapping_boxes_of_a_class_the_bolder_one_counts() -> None:
    """Two columns are in both: all of the first one's object, and of the second one's but its corner, a diamond's."""
    p = np.full((10, 22), 0.05)
    p[2:8, 2:12] = 0.9
    rows, columns = np.mgrid[:10, :22]
    p[np.abs(rows - 4.5) / 3 + np.abs(columns - 16.5) / 3.5 < 1.0] = 0.9
    labels = labelled(one_class(p), known([[[[2, 8], [2, 12]], [[2, 8], [10, 20]]]]), 0.0)
    assert (labels[2:8, 2:12] == 1).all()
    assert labels[2, 12] == labels[7, 12] == 0


def test_a_box_whose_object_was_missed_is_unsure_even_if_another_reaches_into_it() -> None:
    p = np.full((12, 20), 0.05)
    p[2:10, 2:9] = 0.9
    labels = labelled(one_class(p), known([[[[2, 10], [2, 9]], [[2, 10], [7, 19]]]]), 0.0)
    assert (labels[2:10, 2:7] == 1).all()
    assert (labels[2:10, 7:19] == UNSURE).all()


def test_what_was_scribbled_is_so() -> None:
    p = np.full((8, 8), 0.9)
    said = known([[[[1, 7], [1, 7]]]], scribble=[[1, 3, 3], [2, 1, 1], [0, 0, 0]])
    labels = labelled(one_class(p), said, 0.0)
    assert (labels[3, 3], labels[1, 1], labels[0, 0]) == (0, 1, 0)


def test_boxes_of_slices_in_a_volume_are_labelled_as_slices() -> None:
    random = np.random.default_rng(0)
    p = random.uniform(size=(2, 4, 9, 9))
    p[1, :, 2:7, 2:7] += 1.0
    p /= p.sum(axis=0)
    flat = [known([[[[1, 8], [1 + z, 8]]]]) for z in range(4)]
    deep = known([[[[z, z + 1], [1, 8], [1 + z, 8]] for z in range(4)]])
    deep.whole[..., 0] = False
    labels = labelled(p, deep, 0.2)
    slices = taught_labels([(p[:, z], one) for z, one in enumerate(flat)], 0.2)
    np.testing.assert_array_equal(labels, np.stack(slices))
    assert any(
        (one != labelled(p[:, z], flat[z], 0.2)).any() for z, one in enumerate(slices)
    )  # they tell of others


def test_what_is_known_comes_from_a_tasks_rows() -> None:
    rows = {
        "box": torch.zeros(3, 2, 1, 2, 2, dtype=torch.int64),
        "whole": torch.ones(3, 2, 1, 2, dtype=torch.bool),
        "margin": torch.tensor([[0, 0], [1, 2], [0, 0]]),
    }
    said = KnownOf.of(rows, 1)
    assert said.margin.tolist() == [1, 2]
    assert said.scribble.shape == (0, 3)
    assert KnownOf.of(rows | {"scribble": torch.ones(3, 4, 3, dtype=torch.int32)}, 1).scribble.shape == (4, 3)


@pytest.mark.parametrize("unsure", [0.0, 0.3])
def test_no_box_is_background(unsure: float) -> None:
    said = known([[[[0, 0], [0, 0]]]])
    assert (labelled(one_class(np.ones((5, 5))), said, unsure) == 0).all()
