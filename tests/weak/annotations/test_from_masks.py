"""Boxes from masks, against parts that are followed voxel by voxel, and against scipy's objects."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import ndimage

from ringfence.weak.annotations.from_masks import boxes_from_masks


def parts_by_hand(mask: np.ndarray) -> list[list[tuple[int, ...]]]:
    """The voxels of each part, by following faces from voxel to voxel."""
    left = {tuple(map(int, place)) for place in np.argwhere(mask)}
    parts = []
    while left:
        part, new = [], [min(left)]
        left.remove(new[0])
        while new:
            part.append(new.pop())
            for axis in range(mask.ndim):
                for step in (-1, 1):
                    beside = (*part[-1][:axis], part[-1][axis] + step, *part[-1][axis + 1 :])
                    if beside in left:
                        left.remove(beside)
                        new.append(beside)
        parts.append(part)
    return parts


def by_hand(mask: np.ndarray, margin: int, smallest: int) -> list[list[list[int]]]:
    boxes = []
    for part in parts_by_hand(mask):
        if len(part) >= smallest:
            first, last = np.min(part, axis=0), np.max(part, axis=0)
            low, high = np.maximum(first - margin, 0), np.minimum(last + 1 + margin, mask.shape)
            boxes.append((low.tolist(), high.tolist()))
    ordered = sorted(boxes)
    return [np.transpose(box).tolist() for index, box in enumerate(ordered) if box not in ordered[:index]]


def without_padding(boxes: np.ndarray) -> list[list[list[int]]]:
    return [box.tolist() for box in boxes if box.any()]


@settings(max_examples=150, deadline=None)
@given(arrays(bool, array_shapes(min_dims=3, max_dims=5, max_side=6)), st.integers(0, 2), st.integers(1, 3))
def test_each_part_has_its_box(masks: np.ndarray, margin: int, smallest: int) -> None:
    expected = [[by_hand(mask, margin, smallest) for mask in one] for one in masks]
    boxes = boxes_from_masks(torch.from_numpy(masks), margin, smallest)
    assert boxes.dtype == torch.int64
    assert boxes.shape[2] == max(1, max(len(some) for one in expected for some in one))
    for row, wanted in zip(boxes.flatten(0, 1).numpy(), (some for one in expected for some in one), strict=True):
        assert without_padding(row) == wanted
        assert not row[len(wanted) :].any()


@settings(max_examples=50, deadline=None)
@given(arrays(bool, array_shapes(min_dims=3, max_dims=5, max_side=7)))
def test_the_box_around_all_parts_is_the_masks(masks: np.ndarray) -> None:
    boxes = boxes_from_masks(torch.from_numpy(masks)).flatten(0, 1).numpy()
    for mask, some in zip(masks.reshape(-1, *masks.shape[2:]), boxes, strict=True):
        if not mask.any():
            assert not some.any()
            continue
        (found,) = ndimage.find_objects(mask.astype(np.int32))
        real = some[some.any(axis=(1, 2))]
        assert real[..., 0].min(axis=0).tolist() == [one.start for one in found]
        assert real[..., 1].max(axis=0).tolist() == [one.stop for one in found]


@pytest.mark.parametrize("space", [(17,), (13, 9), (5, 13, 9)])
def test_sparse_objects_of_several_sizes(space: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    masks = np.zeros((20, 3, *space), bool)
    for n in range(20):
        for k in range(2):  # the third class stays empty
            first = [int(rng.integers(0, size)) for size in space]
            last = [int(rng.integers(low + 1, size + 1)) for low, size in zip(first, space, strict=True)]
            masks[(n, k, *(slice(*ends) for ends in zip(first, last, strict=True)))] = True
            assert boxes_from_masks(torch.from_numpy(masks))[n, k].tolist() == [
                [list(ends) for ends in zip(first, last, strict=True)]
            ]
    assert (boxes_from_masks(torch.from_numpy(masks), margin=2)[:, 2] == 0).all()


def test_objects_are_ordered_by_where_they_begin_and_padded() -> None:
    masks = torch.zeros(2, 1, 8, 9, dtype=torch.bool)
    masks[0, 0, 5:7, 0:2] = True
    masks[0, 0, 2:4, 6:9] = True
    masks[0, 0, 2, 1] = True
    masks[1, 0, 4, 4] = masks[1, 0, 5, 5] = True  # they touch by a corner only
    assert boxes_from_masks(masks)[:, 0].tolist() == [
        [[[2, 3], [1, 2]], [[2, 4], [6, 9]], [[5, 7], [0, 2]]],
        [[[4, 5], [4, 5]], [[5, 6], [5, 6]], [[0, 0], [0, 0]]],
    ]
    assert boxes_from_masks(masks, smallest=2)[:, 0].tolist() == [
        [[[2, 4], [6, 9]], [[5, 7], [0, 2]]],
        [[[0, 0], [0, 0]]] * 2,
    ]


def test_parts_with_the_same_box_share_it() -> None:
    """Two crossing bars in space, and two pixels that a margin widens to the whole image."""
    masks = torch.zeros(1, 1, 3, 3, 3, dtype=torch.bool)
    masks[0, 0, 0, 1] = masks[0, 0, 2, :, 1] = True
    assert boxes_from_masks(masks).shape == (1, 1, 2, 3, 2)
    assert boxes_from_masks(masks, margin=2).tolist() == [[[[[0, 3]] * 3]]]


def test_a_margin_stops_at_the_image() -> None:
    masks = torch.zeros(1, 1, 6, 8, dtype=torch.bool)
    masks[0, 0, 1, 6] = True
    assert boxes_from_masks(masks, margin=2)[0, 0].tolist() == [[[0, 4], [4, 8]]]
    assert boxes_from_masks(masks, margin=100)[0, 0].tolist() == [[[0, 6], [0, 8]]]


def test_no_image_or_no_class_or_no_voxel_gives_no_box() -> None:
    assert boxes_from_masks(torch.zeros(0, 2, 4, 5, dtype=torch.bool)).shape == (0, 2, 1, 2, 2)
    assert boxes_from_masks(torch.zeros(3, 0, 4, 5, dtype=torch.bool)).shape == (3, 0, 1, 2, 2)
    assert not boxes_from_masks(torch.zeros(3, 1, 4, 0, dtype=torch.bool)).any()


def test_masks_that_are_not_boolean_or_flat_are_refused() -> None:
    with pytest.raises(TypeError, match="bool, not torch.float32"):
        boxes_from_masks(torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match=r"\[4, 4\].*at least three axes"):
        boxes_from_masks(torch.zeros(4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="margin is -1"):
        boxes_from_masks(torch.zeros(1, 1, 4, 4, dtype=torch.bool), margin=-1)
    with pytest.raises(ValueError, match="smallest is 0"):
        boxes_from_masks(torch.zeros(1, 1, 4, 4, dtype=torch.bool), smallest=0)
