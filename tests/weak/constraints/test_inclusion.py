"""Inclusion and separation: faces counted one by one."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from true_masks import CLASSES, batch_of, found, grown, ready

from ringfence.segmentation import Region
from ringfence.weak.constraints.constraint import TaskFacts
from ringfence.weak.constraints.inclusion import Inclusion
from ringfence.weak.constraints.motion import Motion
from ringfence.weak.constraints.separation import Separation


def faces(space: torch.Size) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of pixels that share a face, either way round."""
    pairs = []
    for place in itertools.product(*map(range, space)):
        for axis, step in itertools.product(range(len(space)), (-1, 1)):
            other = tuple(one + step * (axis == number) for number, one in enumerate(place))
            if all(0 <= one < length for one, length in zip(other, space, strict=True)):
                pairs.append((place, other))
    return pairs


@pytest.mark.parametrize("space", [(6, 7), (3, 4, 5)], ids=str)
def test_faces_are_counted(space: tuple[int, ...]) -> None:
    logits = torch.randn(2, 4, *space, dtype=torch.float64)
    s = logits.softmax(dim=1)[:, 1:]
    asked = {
        "inclusion": {"inner": "lesion", "outer": "organ"},
        "separation": {"first": "organ", "second": "other"},
    }
    constraints = ready(asked, len(space))
    batch = batch_of(torch.zeros(2, 3, *space, dtype=torch.bool), constraints)
    side = torch.tensor(space).prod().item() ** (1 / len(space))
    for image in range(2):
        included = separated = 0.0
        for p, q in faces(torch.Size(space)):
            included += (s[image, 1][p] * (1 - s[image, 1][q] - s[image, 0][q])).item()
            separated += (s[image, 0][p] * s[image, 2][q]).item()
        for name, expected in (("inclusion", included), ("separation", separated)):
            plain, relative = (
                constraints[name].residual(Region(logits), batch, unit) for unit in ("pixels", "relative")
            )
            assert plain.f.shape == (2,)
            assert plain.f[image].item() == pytest.approx(expected)
            assert relative.f[image].item() == pytest.approx(expected / side)


def test_the_faces_of_one_pixel_that_sticks_out() -> None:
    mask = torch.zeros(1, 3, 9, 9, dtype=torch.bool)
    mask[0, 0, 2:7, 2:7], mask[0, 1, 4, 4] = True, True
    mask[0, 0, 4, 4] = False
    constraints = ready({"inclusion": {"inner": "lesion", "outer": "organ"}}, 2)
    batch = batch_of(mask, constraints)
    (one,) = constraints.values()
    assert one.residual(found(mask), batch, "pixels").f.item() == pytest.approx(0.0, abs=1e-3)
    for wrong, count in (((7, 4), 3), ((8, 8), 2), ((2, 2), 2)):
        broken = mask.clone()
        broken[(0, 0, *wrong)], broken[(0, 1, *wrong)] = False, True
        assert one.residual(found(broken), batch, "pixels").f.item() == pytest.approx(count, abs=1e-3)
    other = mask.clone()
    other[0, 0, 4, 3], other[0, 2, 4, 3] = False, True  # a third class is neither of the two
    assert one.residual(found(other), batch, "pixels").f.item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("space", [(14, 12), (6, 8, 10)], ids=str)
def test_what_a_shifted_image_is_filled_up_with_is_no_neighbour(space: tuple[int, ...]) -> None:
    """A lesion at the border of the image: beyond it there may be more of the organ, and nobody knows."""
    mask = grown(7, space, seed=5)
    assert bool(mask[:, 1, :, 0].any())
    constraints = ready({"inclusion": {"inner": "lesion", "outer": "organ"}}, len(space))
    batch = batch_of(mask, constraints)
    (one,) = constraints.values()
    shift = torch.zeros(7, len(space))
    shift[:, 1] = 4 / space[1]
    shifted = torch.zeros_like(mask)
    shifted[:, :, :, 4:] = mask[:, :, :, :-4]
    motion = Motion.resampled(torch.ones(7, len(space)), shift, space)
    moved = batch | one.moved(batch, motion)
    assert moved["extent"][0, 0, 1].tolist() == [4, space[1]]
    assert float(one.residual(found(shifted), moved, "pixels").violation.max()) <= 1e-3
    assert float(one.residual(found(shifted), batch, "pixels").violation.max()) >= 1.0  # as if all were image
    back = moved | one.moved(moved, Motion.crop(torch.tensor([[0, 3, 0][: len(space)]] * 7), space, space))
    assert back["extent"][0, 0, 1].tolist() == [1, space[1] - 3]


@pytest.mark.parametrize(("kind", "names"), [(Inclusion, ("inner", "outer")), (Separation, ("first", "second"))])
def test_classes_by_name(kind: type, names: tuple[str, str]) -> None:
    facts = TaskFacts(CLASSES, 2)
    assert kind("other", "organ").ready(facts).numbers == (2, 0)
    assert kind("organ", "lesion").ready(facts).numbers == (0, 1)
    assert repr(kind("a", "b")) == f"{kind.__name__}({names[0]}='a', {names[1]}='b')"
    with pytest.raises(ValueError, match="there is no class 'lesoin'; did you mean 'lesion'?"):
        kind("lesoin", "organ").ready(facts)
    with pytest.raises(ValueError, match="there is no class '1'; there is organ, lesion, other"):
        kind("organ", 1).ready(facts)


def test_classes_that_touch_by_a_corner_are_apart() -> None:
    mask: Tensor = torch.zeros(1, 3, 8, 8, dtype=torch.bool)
    mask[0, 0, :4, :4] = mask[0, 2, 4:, 4:] = True
    separation = ready({"separation": {"first": "organ", "second": "other"}}, 2)["separation"]
    assert separation.residual(found(mask), {}, "pixels").f.item() <= 1e-3
    mask[0, 2, 3, 4:] = True
    assert separation.residual(found(mask), {}, "pixels").f.item() == pytest.approx(1.0, abs=1e-3)
    assert separation.tolerance == 1.0


def test_what_is_almost_certain_is_never_better_than_nothing() -> None:
    """1 - inner - outer is a little below 0 here and there, by rounding; a mass is not."""
    constraints = ready({"inclusion": {"inner": "lesion", "outer": "organ"}}, 2)
    logits = torch.full((1, 4, 30, 30), -20.0)
    logits[:, 1:3] = 0.1 * torch.randn(1, 2, 30, 30)
    batch = batch_of(torch.zeros(1, 3, 30, 30, dtype=torch.bool), constraints)
    inner, outer = Region(logits).probabilities[:, 1], Region(logits).probabilities[:, 0]
    assert bool((1.0 - inner - outer < 0.0).any())
    assert constraints["inclusion"].residual(Region(logits), batch, "pixels").f.item() >= 0.0
