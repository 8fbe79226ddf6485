"""Patches: within their volumes, two of three around a box, the same for the same key."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.weak.training import draws
from ringfence.weak.training.loading.patches import Patches


@given(
    size=st.tuples(*[st.integers(1, 8)] * 3),
    more=st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_patches_are_within_their_volumes_whoever_cuts_them(
    size: tuple[int, int, int], more: list[tuple[int, int, int]], seed: int
) -> None:
    extent = torch.tensor(more) + torch.tensor(size)
    key = draws.keys(seed, 3, torch.arange(len(more)))
    low = (torch.rand(len(more), 2, 3, generator=torch.Generator().manual_seed(seed)) * extent[:, None]).long()
    boxes = torch.stack([low, torch.minimum(low + 2, extent[:, None])], dim=-1)
    boxes[:, 1] = 0  # none
    patches = Patches(size, {})
    starts = patches.starts(key, extent, boxes)
    assert bool((starts >= 0).all())
    assert bool((starts + torch.tensor(size) <= extent).all())
    for row in range(len(more)):
        alone = slice(row, row + 1)
        assert torch.equal(patches.starts(key[alone], extent[alone], boxes[alone]), starts[alone])
    volumes = torch.arange(int(extent.max()) ** 3 * len(more)).view(len(more), 1, *[int(extent.max())] * 3)
    rows = torch.arange(len(more)).flip(0)
    cut = patches.cut(volumes, rows, starts.flip(0))
    for place, row in enumerate(rows.tolist()):
        here = tuple(slice(first, first + length) for first, length in zip(starts[row].tolist(), size, strict=True))
        assert torch.equal(cut[place], volumes[(row, slice(None), *here)])


def test_two_of_three_are_around_a_box_and_each_box_has_its_turn() -> None:
    rows, extent = 6000, torch.tensor([40, 100, 100])
    boxes = torch.zeros(rows, 2, 2, 3, 2, dtype=torch.int64)
    boxes[:, 0, 0] = torch.tensor([[3, 6], [10, 14], [10, 13]])
    boxes[:, 1, 1] = torch.tensor([[30, 33], [80, 83], [80, 84]])
    key = draws.keys(0, 0, torch.arange(rows))
    patches = Patches((4, 8, 8), {})
    starts = patches.starts(key, extent.expand(rows, 3), boxes)

    def meets(box: torch.Tensor) -> float:
        overlap = torch.minimum(starts + torch.tensor([4, 8, 8]), box[:, 1]) - torch.maximum(starts, box[:, 0])
        return float((overlap > 0).all(dim=1).float().mean())

    first, second = meets(boxes[0, 0, 0]), meets(boxes[0, 1, 1])
    assert abs(first - 1 / 3) < 0.03  # a few of the others meet a box by chance
    assert abs(second - 1 / 3) < 0.03
    nowhere = patches.starts(key, extent.expand(rows, 3), torch.zeros_like(boxes))
    assert torch.equal(nowhere, patches.starts(key, extent.expand(rows, 3)))
    for axis, most in enumerate((36, 92, 92)):
        counts = torch.bincount(nowhere[:, axis], minlength=most + 1)
        assert len(counts) == most + 1
        assert float((counts / rows * (most + 1) - 1).abs().max()) < 0.6
