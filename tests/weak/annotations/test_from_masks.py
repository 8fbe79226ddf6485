"""Boxes from masks, against scipy's objects and NumPy's loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import ndimage

from ringfence.weak.annotations.from_masks import boxes_from_masks


def by_scipy(mask: np.ndarray, margin: int) -> list[list[int]]:
    if not mask.any():
        return [[0, 0]] * mask.ndim
    (found,) = ndimage.find_objects(mask.astype(np.int32))
    return [
        [max(one.start - margin, 0), min(one.stop + margin, size)]
        for one, size in zip(found, mask.shape, strict=True)
    ]


@settings(max_examples=150, deadline=None)
@given(arrays(bool, array_shapes(min_dims=3, max_dims=5, max_side=7)), st.integers(0, 3))
def test_boxes_of_any_mask_are_scipys(masks: np.ndarray, margin: int) -> None:
    expected = [[by_scipy(mask, margin) for mask in one] for one in masks]
    boxes = boxes_from_masks(torch.from_numpy(masks), margin)
    assert boxes.dtype == torch.int64
    assert boxes.tolist() == expected


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
                list(ends) for ends in zip(first, last, strict=True)
            ]
    assert (boxes_from_masks(torch.from_numpy(masks), margin=2)[:, 2] == 0).all()


def test_a_margin_stops_at_the_image() -> None:
    masks = torch.zeros(1, 1, 6, 8, dtype=torch.bool)
    masks[0, 0, 1, 6] = True
    assert boxes_from_masks(masks, margin=2)[0, 0].tolist() == [[0, 4], [4, 8]]
    assert boxes_from_masks(masks, margin=100)[0, 0].tolist() == [[0, 6], [0, 8]]


def test_no_image_or_no_class_or_no_voxel_gives_no_box() -> None:
    assert boxes_from_masks(torch.zeros(0, 2, 4, 5, dtype=torch.bool)).shape == (0, 2, 2, 2)
    assert boxes_from_masks(torch.zeros(3, 0, 4, 5, dtype=torch.bool)).shape == (3, 0, 2, 2)
    assert not boxes_from_masks(torch.zeros(3, 1, 4, 0, dtype=torch.bool)).any()


def test_masks_that_are_not_boolean_or_flat_are_refused() -> None:
    with pytest.raises(TypeError, match="bool, not torch.float32"):
        boxes_from_masks(torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match=r"\[4, 4\].*at least three axes"):
        boxes_from_masks(torch.zeros(4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="margin is -1"):
        boxes_from_masks(torch.zeros(1, 1, 4, 4, dtype=torch.bool), margin=-1)
