"""What is drawn for a key: against SplitMix64 and the formulas in Python's own integers and numbers."""

from __future__ import annotations

import pytest
import torch

from ringfence.weak.training.gpu.fused_augmentation import can_draw, drawn_at_once
from ringfence.weak.training.settings import AugmentSettings
from ringfence.weak.training.variation import drawn

WHOLE = 2**64
KEYS = (5, -7_000_000_000_000_000_001, 2**62 - 1, 0, -1)


def bits(key: int, place: int) -> int:
    number = (key + (place + 1) * 0x9E3779B97F4A7C15) % WHOLE
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % WHOLE
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % WHOLE
    return number ^ (number >> 31)


def uniform(key: int, place: int) -> float:
    return (bits(key, place) >> 40) / 2**24


def bell(key: int, place: int) -> float:
    number = bits(key, place)
    return (sum((number >> part) & 0xFFFF for part in (0, 16, 32, 48)) - 131_070) * 3**0.5 / 65_536


def test_what_is_drawn_follows_from_the_key() -> None:
    settings = AugmentSettings(flip=["left-right"], scale=0.2, shift=0.3, bias=0.4)
    found = drawn(torch.tensor(KEYS), (len(KEYS), 3, 20, 30), settings)
    assert found.coarse is not None
    assert found.coarse.shape == (len(KEYS), 3, 4, 4)
    for row, key in enumerate(KEYS):
        size = [1 + 0.2 * (2 * uniform(key, place) - 1) for place in (0, 1)]
        turned = found.scale[row].sign().tolist()
        assert turned[0] == 1.0
        assert found.scale[row].abs().tolist() == pytest.approx(size, rel=1e-6)
        assert found.shift[row].tolist() == pytest.approx(
            [0.3 * (2 * uniform(key, at) - 1) for at in (2, 3)], rel=1e-6
        )
        assert found.levels[row].tolist() == [uniform(key, 6 + place) for place in range(12)]
        nodes = [0.4 * bell(key, 65_536 + place) for place in range(48)]
        assert found.coarse[row].flatten().tolist() == pytest.approx(nodes, rel=1e-6, abs=1e-9)


def test_about_half_of_the_images_are_flipped_along_each_axis_that_is_asked_for() -> None:
    key = torch.arange(400)
    settings = AugmentSettings(flip=["slices", "left-right"])
    turned = drawn(key, (400, 1, 8, 16, 16), settings).scale < 0
    assert not bool(turned[:, 1].any())
    assert 150 < int(turned[:, 0].sum()) < 250
    assert 150 < int(turned[:, 2].sum()) < 250
    assert 50 < int((turned[:, 0] & turned[:, 2]).sum()) < 150


@pytest.mark.parametrize("axes", [2, 3])
def test_whether_an_image_is_flipped_says_nothing_of_where_it_is_moved(axes: int) -> None:
    settings = AugmentSettings(flip=["up-down", "left-right"])
    found = drawn(torch.arange(2000), (2000, 1, *[16] * axes), settings)
    turned, moved, larger = found.scale < 0, found.shift > 0, found.scale.abs() > 1
    for axis in (-2, -1):
        for other in (moved[:, -2], moved[:, -1], larger[:, -2], larger[:, -1]):
            assert 400 < int((turned[:, axis] & other).sum()) < 600


def test_volumes_are_shifted_by_whole_slices_and_not_scaled_along_them() -> None:
    found = drawn(torch.arange(50), (50, 1, 7, 16, 16), AugmentSettings(flip=[], shift=0.4, scale=0.3))
    slices = found.shift[:, 0] * 7
    torch.testing.assert_close(slices, slices.round())
    assert set(slices.round().int().tolist()) == {-3, -2, -1, 0, 1, 2, 3}
    assert found.scale[:, 0].tolist() == [1.0] * 50
    assert float(found.scale[:, 1:].std()) > 0.1


def test_without_fields_there_are_no_nodes() -> None:
    assert drawn(torch.arange(3), (3, 1, 8, 8), AugmentSettings(bias=0.0)).coarse is None


def test_without_a_gpu_nothing_is_drawn_by_kernels() -> None:
    assert not can_draw(torch.arange(3))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(6, 1, 70, 90), (5, 3, 33, 64), (70, 2, 7, 16, 16), (3, 1, 1, 9, 9)])
@pytest.mark.parametrize("bias", [0.3, 0.0])
def test_a_kernel_draws_the_same_numbers(shape: tuple[int, ...], bias: float) -> None:
    key = torch.randint(-(2**63), 2**63 - 1, shape[:1], generator=torch.Generator().manual_seed(0))
    for flip in ([], ["left-right"], ["left-right", "up-down"], ["slices"] if len(shape) == 5 else ["up-down"]):
        settings = AugmentSettings(flip=flip, scale=0.13, shift=0.27, bias=bias)
        assert can_draw(key.cuda())
        here, there = drawn(key, shape, settings), drawn_at_once(key.cuda(), shape, settings)
        for name, one, other in zip(here._fields, here, there, strict=True):
            if one is None or other is None:
                assert one is other, name
            else:
                assert torch.equal(one, other.cpu()), (name, flip)
