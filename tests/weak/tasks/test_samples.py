"""From cases to samples: padding, joining, tiles, and the memory they take."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.weak.constraints.registry import make_constraints
from ringfence.weak.tasks.samples import Patch, Reader, joined, padded
from ringfence.weak.tasks.tiles import tile_starts
from ringfence.weak.tasks.windows import cut


def test_fewer_objects_are_filled_up_with_empty_boxes_that_are_whole() -> None:
    one = {"box": torch.ones(1, 2, 1, 2, 2, dtype=torch.long), "whole": torch.zeros(1, 2, 1, 2, dtype=torch.bool)}
    other = {"box": torch.ones(3, 2, 3, 2, 2, dtype=torch.long), "whole": torch.zeros(3, 2, 3, 2, dtype=torch.bool)}
    rows = joined([one, other])
    assert rows["box"].shape == (4, 2, 3, 2, 2)
    assert rows["box"].dtype == torch.long
    assert rows["box"][0, 0].flatten(1).sum(dim=1).tolist() == [4, 0, 0]
    assert rows["whole"].dtype == torch.bool
    assert rows["whole"][0, 0].tolist() == [[False, False], [True, True], [True, True]]
    assert not bool(rows["whole"][1:].any())


def test_padding_is_after_the_end_of_every_axis() -> None:
    volume = torch.ones(1, 2, 2, 3, 4, dtype=torch.uint8)
    filled = padded(volume, (3, 3, 6))
    assert filled.shape == (1, 2, 3, 3, 6)
    assert torch.equal(filled[..., :2, :3, :4], volume)
    assert int(filled.sum()) == 2 * 2 * 3 * 4


@given(
    space=st.tuples(*[st.integers(1, 6)] * 3),
    start=st.tuples(*[st.integers(0, 7)] * 3),
    size=st.tuples(*[st.integers(1, 8)] * 3),
    channels=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_window_is_filled_up_after_the_end_of_every_axis(
    space: Patch, start: Patch, size: Patch, channels: int
) -> None:
    between = (channels,) if channels else ()
    array = np.random.default_rng(0).integers(1, 255, (space[0], *between, *space[1:]), np.uint8)
    window = np.zeros((size[0], *between, *size[1:]), np.uint8)
    cut(array, start, window)
    filled = np.pad(array, [(0, 16)] + [(0, 0)] * len(between) + [(0, 16)] * 2)
    here = [slice(first, first + length) for first, length in zip(start, size, strict=True)]
    assert np.array_equal(window, filled[here[0]][..., here[1], here[2]])


def test_slices_and_volumes_are_the_same_voxels(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, channels=2, classes=2, cases=3)
    reader = Reader(prepared, make_constraints({"outside": {}}))
    cases = prepared.of("train")
    slices, volumes = reader.slices(cases), reader.volumes(cases, (8, 16, 16))
    assert volumes["image"].shape == (2, 2, 8, 24, 20)
    assert torch.equal(volumes["image"][:, :, :6].transpose(1, 2).flatten(0, 1), slices["image"])
    assert torch.equal(volumes["mask"][:, :, :6].transpose(1, 2).flatten(0, 1), slices["mask"])
    assert not bool(volumes["image"][:, :, 6:].any())
    assert slices["case"].tolist() == [0] * 6 + [1] * 6
    assert volumes["case"].tolist() == [0, 1]


@pytest.mark.parametrize("patch", [(4, 16, 16), (6, 24, 20), (7, 30, 7)])
def test_tiles_have_what_they_hold_of_the_boxes(tmp_path: Path, patch: tuple[int, int, int]) -> None:
    prepared = make_prepared(tmp_path, cases=2)
    reader = Reader(prepared, make_constraints({"outside": {}}))
    (case,) = prepared.of("train")
    whole, tiles = reader.volumes([case], patch), reader.tiles([case], patch)
    starts = list(itertools.product(*map(tile_starts, (6, 24, 20), patch)))
    assert len(tiles["image"]) == len(starts)
    assert whole["aim"].shape == (1, 1, 1, 3, 2)
    boxes = whole["box"][0, 0].tolist()
    assert (
        len(boxes) == whole["aim"][0, 0, 0, 0, 1] - whole["aim"][0, 0, 0, 0, 0]
    )  # one for each slice of the object
    most = 0
    for number, start in enumerate(starts):
        here = tuple(slice(first, first + size) for first, size in zip(start, patch, strict=True))
        seen = whole["image"][(0, slice(None), *here)]
        part = tiles["image"][number][(slice(None), *(slice(length) for length in seen.shape[1:]))]
        assert torch.equal(part, seen)
        inside = [
            [
                [min(max(end - first, 0), size) for end in ends]
                for ends, first, size in zip(box, start, patch, strict=True)
            ]
            for box in boxes
        ]
        there = [box for box in inside if all(low < high for low, high in box)]
        empty = [[[0, 0]] * 3] * (tiles["box"].shape[2] - len(there))
        assert tiles["box"][number, 0].tolist() == there + empty
        most = max(most, len(there))
    assert tiles["box"].shape[2] == most
    assert int(tiles["judged"].sum()) == 6 * 24 * 20
