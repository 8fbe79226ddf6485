"""Sizes: bounds from masks and from files, against counted pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from true_masks import batch_of, found, ready

import ringfence as rf
from prepared_sets import make_prepared
from ringfence import weak
from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.constraints.size import Size, size_bounds
from ringfence.weak.tasks.two_discs import two_discs


@pytest.mark.parametrize("space", [(9, 12), (5, 6, 8)], ids=str)
def test_bounds_are_around_the_masks_size(space: tuple[int, ...]) -> None:
    masks = torch.rand(3, 2, *space) < 0.3
    low, high = size_bounds(masks, 0.1)
    for image in range(3):
        for class_ in range(2):
            size = masks[image, class_].numpy().sum()
            assert low[image, class_].item() == pytest.approx(0.9 * size)
            assert high[image, class_].item() == pytest.approx(1.1 * size)


def test_a_perfect_prediction_satisfies_its_bounds() -> None:
    masks = two_discs(20, size=64).masks[:, None]
    assert rf.between(found(masks).size, *size_bounds(masks)).satisfied().all()
    assert not rf.between(found(masks).size, *size_bounds(masks[:, :, :, :20])).satisfied().all()


@pytest.mark.parametrize(
    ("masks", "slack", "message"),
    [
        (torch.ones(2, 1, 4, 4), 0.1, r"masks must be bool \[batch, classes, \*space\], got torch.float32"),
        (torch.ones(2, 4, dtype=torch.bool), 0.1, r"masks must be bool .* of shape \[2, 4\]"),
        (torch.ones(1, 1, 4, dtype=torch.bool), 2.0, "slack is a fraction from 0 to 1, got 2.0"),
        (torch.ones(1, 1, 4, dtype=torch.bool), -0.5, "slack must be finite and not negative"),
    ],
)
def test_bad_input(masks: torch.Tensor, slack: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        size_bounds(masks, slack)


def test_residuals_are_of_counted_pixels_and_of_no_object_that_was_cut() -> None:
    mask = torch.zeros(2, 1, 10, 12, dtype=torch.bool)
    mask[0, 0, 2:6, 3:8] = mask[1, 0, 7:, :2] = True
    constraints = ready({"size": {"slack": 0.25}}, 2, ["a"])
    batch = batch_of(mask, constraints)
    logits = torch.randn(2, 2, 10, 12)
    size = logits.double().softmax(dim=1)[:, 1].flatten(1).sum(dim=1)
    residual = constraints["size"].residual(Region(logits), batch, "pixels")
    expected = torch.stack([torch.tensor([15.0, 4.5]) - size, size - torch.tensor([25.0, 7.5])], dim=-1)
    torch.testing.assert_close(residual.f[:, 0].double(), expected, atol=1e-4, rtol=1e-4)
    relative = constraints["size"].residual(Region(logits), batch, "relative")
    torch.testing.assert_close(
        relative.f[:, 0].double(), expected / torch.tensor([[20.0], [6.0]]), atol=1e-4, rtol=1e-4
    )
    # the first is cut by this window, the second is not
    window = Motion.crop(torch.tensor([[3, 0], [3, 0]]), (10, 12), (7, 12))
    seen = batch | constraints["size"].moved(batch, window)
    cut = constraints["size"].residual(Region(logits[:, :, 3:]), seen, "pixels")
    assert cut.present.flatten(1).all(dim=1).tolist() == [False, True]


def test_bounds_grow_with_the_image() -> None:
    targets = {"size_low": torch.tensor([[10.0, -torch.inf]]), "size_high": torch.tensor([[20.0, torch.inf]])}
    motion = Motion.resampled(torch.tensor([[1.5, -2.0]]), torch.zeros(1, 2), (10, 10))
    moved = Size(0.1, boxed=False).moved(targets, motion)
    assert {name: one.tolist() for name, one in moved.items()} == {
        "size_low": [[30.0, -torch.inf]],
        "size_high": [[60.0, torch.inf]],
    }


@pytest.mark.parametrize(
    ("low", "high", "unit"),
    [
        (10.0, 30.0, 20.0),
        (-torch.inf, 30.0, 30.0),
        (10.0, torch.inf, 10.0),
        (0.0, 0.0, 24.0),
        (0.0, torch.inf, 24.0),
    ],
)
def test_relative_to_the_middle_of_the_bounds_or_the_one_there_is(low: float, high: float, unit: float) -> None:
    """Where nothing may be, it is a fraction of the image, not of a pixel: an empty slice would outweigh all others."""
    region = Region(torch.randn(1, 2, 4, 6))
    targets = {"size_low": torch.tensor([[low]]), "size_high": torch.tensor([[high]])}
    plain, relative = (Size(0.1, boxed=False).residual(region, targets, one) for one in ("pixels", "relative"))
    there = plain.present
    torch.testing.assert_close(relative.f[there], plain.f[there] / unit)


def test_parts_without_a_box_are_not_asked_for() -> None:
    """Of a part that is too small for a box, ``outside`` says that nothing is there: no size may say otherwise."""
    mask = torch.zeros(3, 1, 12, 12, dtype=torch.bool)
    mask[0, 0, 2:7, 2:7] = mask[0, 0, 9, 9:11] = mask[1, 0, 4, 4] = True
    asked = {"size": {"slack": 0.0}, "centroid": {"slack": 1.0}, "outside": {}, "strips": {}}
    constraints = ready(asked, 2, ["a"])
    batch = batch_of(mask, constraints, smallest=3)
    assert batch["size_low"].tolist() == [[25.0], [0.0], [0.0]]
    assert batch["centroid_low"][0].tolist() == [[3.0, 3.0]]
    assert batch["centroid_low"].isfinite().all(dim=-1).tolist() == [[True], [False], [False]]
    kept = mask.clone()
    kept[0, 0, 9], kept[1] = False, False
    for name, one in constraints.items():
        residual = one.residual(found(kept), batch, "pixels")
        assert float(residual.violation.max()) <= 1e-3, name
    assert float(constraints["outside"].residual(found(mask), batch, "pixels").violation.max()) == 2.0


def test_without_a_mask_nothing_is_known(tmp_path: Path) -> None:
    image = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    case = weak.CaseSamples(image, torch.zeros(2, 1, 4, 4, dtype=torch.bool), drawn=False)
    targets = Size(0.1, boxed=False).targets(case)
    assert targets["size_low"].tolist() == [[-torch.inf]] * 2
    assert targets["size_high"].tolist() == [[torch.inf]] * 2
    facts = TaskFacts(("class 1",), 2, make_prepared(tmp_path, masked=False))
    with pytest.raises(ValueError, match="slack is about masks, and no training case of .* has one"):
        Size(0.1).ready(facts)


def test_a_file_is_read_when_ready_and_named_for_a_run_that_goes_on(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    file = tmp_path / "sizes.csv"
    file.write_text("case,slice,class,low,high\ncase0,2,class 1,10,50\n")
    size = Size(file=str(file))
    assert size.files == (file,)
    assert Size(0.1).files == ()
    assert [one.low for one in size.ready(TaskFacts(("class 1",), 2, prepared)).annotated] == [10]
    assert size.ready(TaskFacts(("class 1",), 2)) is size
    with pytest.raises(ValueError, match="there is no case to look up in a file; give slack"):
        size.targets(weak.CaseSamples(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.ones(1, 1, 4, 4) > 0))
