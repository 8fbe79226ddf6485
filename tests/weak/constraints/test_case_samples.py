"""A case as constraints see it: where its boxes come from, and how loose they are."""

from __future__ import annotations

import pytest
import torch

from ringfence.weak.annotations import BoxAnnotation
from ringfence.weak.constraints.case import CaseSamples
from ringfence.weak.prepared import Case


def masks(*shape: int) -> torch.Tensor:
    mask = torch.zeros(*shape, dtype=torch.bool)
    mask[..., 2:5, 3:7] = True
    return mask


def case(*shape: int) -> Case:
    return Case("Case07", "train", "Case07.npz", "", shape, None, True)


def images(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(mask), 1, *mask.shape[2:], dtype=torch.uint8)


def test_boxes_are_those_of_the_mask() -> None:
    mask = masks(2, 1, 9, 9)
    plain, loose = (CaseSamples(images(mask), mask, margin=margin) for margin in (0, 1))
    assert plain.boxes.tolist() == [[[[[2, 5], [3, 7]]]]] * 2
    assert loose.boxes.tolist() == [[[[[1, 6], [2, 8]]]]] * 2
    assert plain.margins.tolist() == [[0, 0]] * 2
    assert loose.margins.tolist() == [[1, 1]] * 2
    assert plain.boxes is plain.boxes
    assert plain.name == "the image"
    assert not plain.volume
    assert plain.boxed_mask is mask


def test_boxes_of_a_file_come_first_and_are_looser_where_slices_were_resized() -> None:
    mask = masks(3, 1, 9, 9)
    notes = [BoxAnnotation("Case07", 1, 1, (0, 0), (3, 3))]
    for source, margin in (((3, 9, 9), 0), ((3, 18, 18), 1)):
        one = CaseSamples(images(mask), mask, case(*source), (9, 9), annotated=notes)
        side = 3 if margin == 0 else 2
        assert one.boxes.tolist() == [[[[[0, 0], [0, 0]]]], [[[[0, side], [0, side]]]], [[[[0, 0], [0, 0]]]]]
        assert one.margins.tolist() == [[margin, margin]] * 3
        assert one.name == "Case07"


def test_volumes_are_resized_within_slices_only() -> None:
    mask = masks(1, 1, 4, 9, 9)
    notes = [BoxAnnotation("Case07", None, 1, (0, 0, 0), (2, 6, 6))]
    one = CaseSamples(images(mask), mask, case(4, 18, 18), (9, 9), annotated=notes, margin=2)
    assert one.volume
    assert one.boxes.tolist() == [[[[[0, 2], [0, 3], [0, 3]]]]]
    assert one.margins.tolist() == [[2, 3, 3]]


def test_boxes_from_masks_are_never_looser_than_asked() -> None:
    mask = masks(1, 1, 4, 9, 9)
    assert CaseSamples(images(mask), mask, case(4, 18, 18), (9, 9)).margins.tolist() == [[0, 0, 0]]


def test_neither_a_mask_nor_a_box() -> None:
    mask = torch.zeros(1, 1, 9, 9, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"Case07 has neither a mask nor a box: give boxes by --data\.boxes FILE"):
        _ = CaseSamples(images(mask), mask, case(1, 9, 9), (9, 9), drawn=False).boxes


def test_parts_without_a_box_are_no_part_of_the_boxed_mask() -> None:
    mask = masks(1, 1, 9, 12)
    mask[0, 0, 7, 10] = True
    one = CaseSamples(images(mask), mask, smallest=2)
    assert torch.equal(one.boxed_mask, masks(1, 1, 9, 12))
    assert CaseSamples(images(mask), mask).boxed_mask is mask
