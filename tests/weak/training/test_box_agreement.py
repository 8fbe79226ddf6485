"""The agreement of boxes, against boxes that are drawn and compared pixel by pixel."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ringfence.weak.training.box_agreement import BoxAgreement, agreements, all_agreements


def logits_of(labels: Tensor, classes: int = 2) -> Tensor:
    return torch.nn.functional.one_hot(labels, 1 + classes).movedim(-1, 1).float()


def batch_of(boxes: list[list[list[int]]], whole: bool = True) -> dict[str, Tensor]:
    """One image, one class: boxes as [start, stop) along the axes."""
    box = torch.tensor(boxes)[None, None]
    return {"box": box, "whole": torch.full(box.shape[:-1], whole)}


def drawn(box: list[list[int]], shape: tuple[int, ...]) -> Tensor:
    found = torch.zeros(shape, dtype=torch.bool)
    found[tuple(slice(max(0, low), high) for low, high in box)] = True
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.02, 0.3]))
def test_it_is_the_overlap_of_two_drawn_boxes(seed: int, density: float) -> None:
    random = torch.Generator().manual_seed(seed)
    shape = (14, 16)
    mask = torch.rand(shape, generator=random) < density
    boxes = [[[2, 6], [3, 8]], [[7, 12], [5, 13]]]
    rows = agreements(logits_of(mask.long()[None], 1), batch_of(boxes)).tolist()
    for (label, found), box, other in zip(rows, boxes, boxes[::-1], strict=True):
        assert label == 0
        grown = [[low - math.ceil((high - low) / 2), high + math.ceil((high - low) / 2)] for low, high in box]
        there = mask & drawn(grown, shape) & (~drawn(other, shape) | drawn(box, shape))
        places = there.nonzero()
        if not len(places):
            assert found == 0.0
            continue
        ends = [[int(axis.min()), int(axis.max()) + 1] for axis in places.unbind(dim=1)]
        first, second = drawn(ends, shape), drawn(box, shape)
        assert found == pytest.approx(float((first & second).sum() / (first | second).sum()))


def test_the_metric_is_the_mean_over_classes_of_their_boxes() -> None:
    labels = torch.zeros(1, 20, 20, dtype=torch.long)
    labels[0, 2:6, 2:6] = 1
    labels[0, 10:14, 10:18] = 2
    box = torch.tensor([[[[[2, 6], [2, 6]], [[14, 18], [2, 6]]], [[[10, 18], [10, 18]], [[0, 0], [0, 0]]]]])
    batch = {"box": box, "whole": torch.ones(box.shape[:-1], dtype=torch.bool)}
    metric = BoxAgreement()
    metric.update(logits_of(labels), batch)
    assert metric.compute()["box_iou"].item() == pytest.approx(((1.0 + 0.0) / 2 + 0.5) / 2)
    metric.update(logits_of(labels)[:0], {name: one[:0] for name, one in batch.items()})  # of a rank without a row
    assert metric.compute()["box_iou"].item() == pytest.approx(0.5)


@pytest.mark.parametrize("objects", [1, 3])
@pytest.mark.parametrize("space", [(14, 16), (3, 12, 12)], ids=str)
def test_a_gpu_finds_the_same_without_asking_which_boxes_count(space: tuple[int, ...], objects: int) -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, *space, generator=random)
    shape = (4, 2, objects)
    ends = [torch.randint(0, length + 1, (*shape, 2), generator=random) for length in space]
    batch = {
        "box": torch.stack([end.sort(dim=-1).values for end in ends], dim=3),  # some of them empty
        "whole": torch.rand(*shape, len(space), generator=random) < 0.9,
    }
    there, each = all_agreements(logits, batch)
    one_by_one = agreements(logits, batch)
    assert 0 < len(one_by_one) < there.numel()
    assert torch.equal(there.nonzero()[:, 1], one_by_one[:, 0].long())
    torch.testing.assert_close(each[there], one_by_one[:, 1])


def test_boxes_that_promise_nothing_are_left_out() -> None:
    metric = BoxAgreement()
    metric.update(torch.zeros(1, 2, 8, 8), batch_of([[[1, 5], [1, 5]]], whole=False))
    assert math.isnan(metric.compute()["box_iou"].item())
    bare = BoxAgreement()
    bare.update(torch.zeros(1, 2, 8, 8), {})
    assert bare.compute() == {}


def test_a_box_of_a_slice_looks_at_its_slice_alone() -> None:
    labels = torch.zeros(1, 3, 12, 12, dtype=torch.long)
    labels[0, 1, 2:6, 2:6] = 1
    labels[0, 2, 2:9, 2:9] = 1
    found = agreements(logits_of(labels, 1), batch_of([[[1, 2], [2, 6], [2, 6]]]))
    assert found.tolist() == [[0.0, 1.0]]
