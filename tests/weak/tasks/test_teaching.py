"""A teacher's labels against a reference that looks at one pixel after the other; and what must hold of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.weak.tasks.teaching import KnownOf, taught_labels
from ringfence.weak.tasks.windows import UNSURE

SHAPE = (6, 7)
Pixel = tuple[int, ...]


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


def reference(p: NDArray[np.float64], said: KnownOf, unsure: float) -> NDArray[np.uint8]:
    boxes = [
        (k + 1, box, whole)
        for k in range(len(said.box))
        for box, whole in zip(said.box[k], said.whole[k], strict=True)
    ]
    boxes = [(k, box, whole) for k, box, whole in boxes if pixels(box)]
    likeliest, lead, certain = {}, {}, {}
    for pixel in product(*map(range, p.shape[1:])):
        allowed = {0} | {k for k, box, _ in boxes if pixel in pixels(box)}
        values = [p[(k, *pixel)] if k in allowed else 0.0 for k in range(len(p))]
        likeliest[pixel] = values.index(max(values)) if len(allowed) > 1 else 0
        lead[pixel] = sorted(values)[-1] - sorted(values)[-2]
        certain[pixel] = True
    for _, box, _ in boxes:
        leads = sorted(lead[pixel] for pixel in pixels(box))
        for pixel in pixels(box):
            certain[pixel] &= lead[pixel] >= leads[int(unsure * len(leads))]
    labels = np.full(p.shape[1:], UNSURE, np.uint8)
    for pixel, one in likeliest.items():
        if certain[pixel] and one == 0:
            labels[pixel] = 0
    for k, box, whole in boxes:
        own = parts({pixel for pixel in pixels(box) if likeliest[pixel] == k})
        part = max(own, key=len, default=set())
        spans = [
            len(range(min(x), max(x) + 1)) if part else 0 for x in [[q[a] for q in part] for a in range(len(box))]
        ]
        if any(
            whole[a] and spans[a] < 0.5 * (high - low - 2 * said.margin[a]) for a, (low, high) in enumerate(box)
        ):
            continue
        kept = {pixel for pixel in part if certain[pixel]}
        for hole in parts(set(pixels(box)) - kept):
            border = any(
                q[a] in (low, high - 1) for q in hole for a, (low, high) in enumerate(box) if high - low > 0
            )
            if not border and not any(certain[q] and likeliest[q] != k for q in hole):
                kept |= hole
        for pixel in kept:
            labels[pixel] = k
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
    st.sampled_from([1.0, 30.0]),
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
    labels = taught_labels(p, said, unsure)
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
    labels = taught_labels(one_class(0.1 + 0.5 * truth), known([[[[5, 12], [4, 15]]]]), 0.0)
    np.testing.assert_array_equal(labels, truth)


def test_holes_are_filled_unless_something_is_surely_in_them() -> None:
    p = np.zeros((3, 11, 11))
    p[0] = 1.0
    p[:, 1:10, 1:10] = np.array([0.0, 0.99, 0.01])[:, None, None]
    doubtful = p.copy()
    doubtful[:, 5, 5] = [0.51, 0.49, 0.0]
    said = known([[[[1, 10], [1, 10]]], [[[4, 7], [4, 7]]]])
    one_box = known([[[[1, 10], [1, 10]]], [[[0, 0], [0, 0]]]])
    assert (taught_labels(doubtful, one_box, 0.02)[1:10, 1:10] == 1).all()
    ring = p.copy()
    ring[:, 4:7, 4:7] = np.array([0.0, 0.01, 0.99])[:, None, None]
    labels = taught_labels(ring, said, 0.0)
    assert (labels[4:7, 4:7] == 2).all()
    assert (labels == 1).sum() == 81 - 9


def test_small_parts_and_answers_that_miss_the_object_are_unsure() -> None:
    p = np.zeros((12, 12))
    p[2:10, 2:9] = 0.9
    p[2, 11] = 0.9
    labels = taught_labels(one_class(p), known([[[[2, 10], [2, 12]]]]), 0.0)
    assert labels[2, 11] == UNSURE
    assert (labels[2:10, 2:9] == 1).all()
    small = np.zeros((12, 12))
    small[4:6, 4:6] = 0.9
    assert (taught_labels(one_class(small), known([[[[2, 10], [2, 10]]]]), 0.0)[2:10, 2:10] == UNSURE).all()
    loose = known([[[[2, 10], [2, 10]]]], whole=False)  # that box promises nothing
    np.testing.assert_array_equal(taught_labels(one_class(small), loose, 0.0), small > 0)


def test_an_unsure_share_is_that_of_the_least_lead() -> None:
    p = np.full((10, 10), 0.9)
    p[4] = 0.6
    labels = taught_labels(one_class(p), known([[[[0, 10], [0, 10]]]]), 0.1)
    assert (labels[4] == UNSURE).all()
    assert (np.delete(labels, 4, axis=0) == 1).all()


def test_what_was_scribbled_is_so() -> None:
    p = np.full((8, 8), 0.9)
    said = known([[[[1, 7], [1, 7]]]], scribble=[[1, 3, 3], [2, 1, 1], [0, 0, 0]])
    labels = taught_labels(one_class(p), said, 0.0)
    assert (labels[3, 3], labels[1, 1], labels[0, 0]) == (0, 1, 0)


def test_boxes_of_slices_in_a_volume_are_labelled_as_slices() -> None:
    random = np.random.default_rng(0)
    p = random.uniform(size=(2, 4, 9, 9))
    p[1, :, 2:7, 2:7] += 1.0
    p /= p.sum(axis=0)
    flat = [known([[[[1, 8], [1 + z, 8]]]]) for z in range(4)]
    deep = known([[[[z, z + 1], [1, 8], [1 + z, 8]] for z in range(4)]])
    deep.whole[..., 0] = False
    labels = taught_labels(p, deep, 0.2)
    np.testing.assert_array_equal(
        labels, np.stack([taught_labels(p[:, z], one, 0.2) for z, one in enumerate(flat)])
    )


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
    assert (taught_labels(one_class(np.ones((5, 5))), said, unsure) == 0).all()
