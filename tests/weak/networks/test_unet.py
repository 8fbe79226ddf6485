"""A U-Net of any depth: MONAI's where that has as many levels, and what its smallest map sees."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ringfence.weak.inference.card import ModelCard
from ringfence.weak.inference.model_file import read_model, save_model
from ringfence.weak.networks.build import Tempered, check_network
from ringfence.weak.networks.fast import faster
from ringfence.weak.networks.known import doubt
from ringfence.weak.networks.unet import DeepUNet
from ringfence.weak.planning.computing import seen_by
from ringfence.weak.prepared.preprocessing import Preprocessing

BASIC = (4, 4, 8, 8, 8, 4)
DEEP = (4, 4, 8, 8, 8, 8, 4)
PATH = "ringfence.weak.networks.unet.DeepUNet"


def made(features: tuple[int, ...], axes: int = 2) -> DeepUNet:
    torch.manual_seed(0)
    return DeepUNet(axes, 1, 3, features)


@pytest.mark.parametrize("axes", [2, 3])
def test_with_six_features_it_is_monais(axes: int) -> None:
    from monai.networks.nets import BasicUNet

    torch.manual_seed(0)
    theirs = BasicUNet(axes, 1, 3, BASIC, act="relu", norm="batch", upsample="nontrainable")
    ours = made(BASIC, axes)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    images = torch.randn(2, 1, *[32] * axes)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("halvings", [2, 4, 5])
def test_how_far_the_smallest_map_sees(halvings: int) -> None:
    """By which rows move one of its pixels, where every weight is 1 and nothing is normalised."""
    across = 2**halvings
    rows = math.ceil(1.5 * seen_by(halvings) / across) * across
    network = DeepUNet(2, 1, 2, [2] * (halvings + 2), norm=("batch", {"affine": False})).eval().double()
    for one in network.parameters():
        nn.init.constant_(one, 1.0 if one.ndim > 1 else 0.0)
    met: list[Tensor] = []
    network.get_submodule(f"down_{halvings}").register_forward_hook(lambda *seen: met.append(seen[2]))
    with torch.no_grad():
        # image r is 1 in row r alone: maxima and sums of what is not negative only grow by it
        network(torch.eye(rows, dtype=torch.float64).view(rows, 1, rows, 1).expand(-1, -1, -1, across))
    middle = met[0][:, 0, met[0].shape[2] // 2, 0]
    assert int((middle > 0.0).sum()) == seen_by(halvings)


@pytest.mark.parametrize("size", [(32, 32), (48, 80), (272, 64)])
def test_sides_that_it_cannot_halve_evenly_are_no_trouble(size: tuple[int, int]) -> None:
    check_network(made(DEEP), torch.rand(1, *size), 3)


def test_in_fewer_passes_it_is_the_same() -> None:
    plain, fast = made(DEEP), made(DEEP)
    faster(fast)
    assert list(fast.state_dict()) == list(plain.state_dict())
    images = torch.randn(4, 1, 64, 64)
    torch.testing.assert_close(fast(images), plain(images))
    plain(images).square().mean().backward()
    fast(images).square().mean().backward()
    for (name, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        if mine.grad is not None and theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_two_levels_are_the_least() -> None:
    with pytest.raises(ValueError, match=r"^features: those of two levels and of the end at least, got \[4, 4\]$"):
        DeepUNet(features=[4, 4])


def test_a_models_file_may_name_it(tmp_path: Path) -> None:
    arguments = {"spatial_dims": 2, "in_channels": 1, "out_channels": 3, "features": list(DEEP)}
    card = ModelCard(PATH, arguments, ("T2",), ("zone", "lesion"), Preprocessing((64, 64)), method="log_barrier")
    network = Tempered(made(DEEP), 2)
    save_model(tmp_path / "model.safetensors", network, card)
    loaded, _ = read_model(tmp_path / "model.safetensors")
    images = torch.rand(2, 1, 64, 64)
    assert torch.equal(loaded(images), network.eval()(images))
    assert doubt(PATH, {"weights": "http://somewhere"}) == (
        "its argument 'weights' is not among those that are known to be plain"
    )
