"""The parts of networks in fewer passes, each against plain operations in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.weak.networks.fast import faster
from ringfence.weak.networks.fast.batch_norm import NormWithReLU
from ringfence.weak.networks.fast.branches import Branch, gradients_beside
from ringfence.weak.networks.fast.convolutions import (
    Biased2d,
    Narrow2d,
    Unbiased2d,
    compute_here,
    rounded_together,
    without_bias,
)
from ringfence.weak.networks.fast.last import projected
from ringfence.weak.networks.fast.maps import Halving
from ringfence.weak.networks.fast.rows import rows_of
from ringfence.weak.networks.fast.unet import Passing

GPU = pytest.mark.gpu
HALF = {torch.float32: 1e-5, torch.bfloat16: 1.2e-2, torch.float16: 2e-3}
"""What rounding to each may do to a norm."""


def unet() -> nn.Module:
    from monai.networks.nets import BasicUNet

    torch.manual_seed(0)
    features = (8, 8, 16, 16, 16, 8)
    return BasicUNet(2, 1, 3, features, act="relu", norm="batch", upsample="nontrainable")


def channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    apart = (found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-12)
    assert float(apart) <= tolerance, float(apart)


@pytest.mark.parametrize(
    ("convolution", "is_swapped"),
    [
        (nn.Conv2d(32, 2, 1), True),
        (nn.Conv2d(5, 8, 1, bias=False), True),
        (nn.Conv2d(32, 9, 1), False),
        (nn.Conv2d(200, 2, 1), False),
        (nn.Conv2d(32, 2, 3), False),
        (nn.Conv2d(32, 2, 1, stride=2), False),
        (nn.Conv2d(32, 2, 1, padding=1), False),
        (nn.Conv2d(32, 2, 1, groups=2), False),
    ],
    ids=lambda one: str(one),
)
def test_only_a_pixel_by_pixel_convolution_to_few_channels_is_narrow(
    convolution: nn.Conv2d, is_swapped: bool
) -> None:
    x = torch.randn(2, convolution.in_channels, 4, 6)
    expected = convolution(x)
    compute_here(convolution)
    assert isinstance(convolution, Narrow2d) == is_swapped
    assert torch.equal(convolution(x), expected)


def test_the_network_takes_what_somebody_put_in_place_of_a_block() -> None:
    class Own(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x)

    plain = unet()
    plain.down_2 = Own(plain.down_2)
    network = copy.deepcopy(plain)
    faster(network)
    assert isinstance(network, Passing)
    network.eval()
    plain.eval()
    images = torch.randn(1, 1, 32, 32)
    torch.testing.assert_close(network(images), plain(images))


def test_a_halved_map_is_handed_back() -> None:
    x, kept = torch.randn(1, 2, 4, 4, requires_grad=True), []
    assert torch.equal(Halving()(x, kept), F.max_pool2d(x, 2))
    assert torch.equal(kept[0], x)


def test_weights_rounded_together_are_those_that_autocast_rounds() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 5, 3))
    network = copy.deepcopy(plain)
    for one in network:
        without_bias(one)
    x, found = torch.randn(2, 4, 8, 8), []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with rounded_together(network):
            assert all(one.rounded.dtype == torch.bfloat16 for one in network)
            y = network(x)
        expected = F.conv2d(F.conv2d(x, plain[0].weight), plain[1].weight)
    assert torch.equal(y, expected)
    for result, weights in ((y, network), (expected, plain)):
        found.append(torch.autograd.grad(result.float().square().sum(), [one.weight for one in weights]))
    assert all(torch.equal(one, other) and one.dtype == torch.float32 for one, other in zip(*found, strict=True))
    assert all(one.rounded is None for one in network)


@pytest.mark.parametrize(
    "plain",
    [nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, stride=2, padding=1, dilation=2, groups=2), nn.Conv3d(4, 8, 3)],
    ids=["1 × 1", "in groups", "of volumes"],
)
def test_a_convolution_with_its_bias_learns_as_under_autocast(plain: nn.Conv2d | nn.Conv3d) -> None:
    torch.manual_seed(0)
    ours = copy.deepcopy(plain)
    compute_here(ours)
    images = torch.randn(2, 4, *[6] * (plain.weight.ndim - 2))
    found = []
    for one in (ours, plain):
        x = images.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16), rounded_together(one):
            y = one(x)
        found.append((y, *torch.autograd.grad(y.float().square().sum(), [x, one.weight, one.bias])))
    assert type(ours) is not type(plain)
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2 * float(other.detach().abs().max()))


def test_gradients_made_beside_are_those_that_autograd_took() -> None:
    """A weight that is used twice gets a sum of two gradients: somebody read both."""

    class Told(Branch):
        def __init__(self) -> None:
            self.read_early = False

        def __call__(self, *needs: Tensor) -> Any:
            return nullcontext()

        def join(self) -> None:
            pass

    for uses in (1, 2):
        convolution, x, branch = nn.Conv2d(2, 2, 1), torch.randn(1, 2, 3, 3), Told()
        compute_here(convolution)
        convolution.__class__ = Biased2d
        with torch.autocast("cpu", dtype=torch.bfloat16), rounded_together(convolution):
            for _ in range(uses):
                x = convolution(x)
        with gradients_beside(convolution, branch):
            x.float().sum().backward()
        assert branch.read_early == (uses == 2)


def test_without_autocast_no_weight_is_rounded() -> None:
    convolution = nn.Conv2d(4, 8, 3)
    without_bias(convolution)
    assert isinstance(convolution, Unbiased2d)
    with rounded_together(convolution):
        assert convolution.rounded is None


@pytest.mark.parametrize("start", [0, 8])
def test_part_of_a_joined_gradient_is_walked_over_where_it_lies(start: int) -> None:
    joined = channels_last(torch.randn(2, 24, 3, 5))
    part = joined[:, start : start + 8]
    rows, stride = rows_of(part)
    assert stride == 24
    assert rows.data_ptr() == part.data_ptr()
    rows, stride = rows_of(part.contiguous())
    assert stride == 8
    assert torch.equal(rows, part)


@GPU
@pytest.mark.parametrize("dtype", list(HALF), ids=str)
@pytest.mark.parametrize(
    ("channels", "outputs", "space"),
    [(32, 2, (96, 65)), (16, 1, (8, 9)), (5, 3, (7, 5)), (40, 8, (33, 31)), (128, 4, (9, 5)), (16, 2, (5, 6, 7))],
    ids=str,
)
def test_on_a_gpu_a_narrow_convolution_is_one(
    dtype: torch.dtype, channels: int, outputs: int, space: Sequence[int]
) -> None:
    torch.manual_seed(0)
    convolution = (nn.Conv2d if len(space) == 2 else nn.Conv3d)(channels, outputs, 1).cuda()
    x = channels_last(torch.randn(3, channels, *space, device="cuda", dtype=dtype)).requires_grad_()
    y = projected(x, convolution.weight, convolution.bias)
    assert y is not None
    assert y.dtype == dtype
    gradient = torch.randn_like(y)
    y.backward(gradient)
    exact = copy.deepcopy(convolution).to(dtype).double()
    exact.zero_grad()
    again = x.detach().double().requires_grad_()
    expected = exact(again)
    expected.backward(gradient.double())
    assert_near(y, expected, HALF[dtype])
    assert_near(x.grad, again.grad, HALF[dtype])
    assert_near(convolution.weight.grad, exact.weight.grad, 1e-5)
    assert_near(convolution.bias.grad, exact.bias.grad, 1e-5)


@GPU
@pytest.mark.parametrize("dtype", list(HALF), ids=str)
@pytest.mark.parametrize("channels", [8, 32, 40])
@pytest.mark.parametrize("used", ["both", "halved", "kept"])
def test_on_a_gpu_the_gradients_of_both_uses_of_a_map_are_added(
    dtype: torch.dtype, channels: int, used: str
) -> None:
    torch.manual_seed(0)
    x = channels_last(torch.randn(2, channels, 14, 22, device="cuda", dtype=dtype)).relu().requires_grad_()
    kept: list[Tensor] = []
    y, again = Halving()(x, kept), x.detach().double().requires_grad_()
    weights = torch.randn_like(y)
    joined = channels_last(torch.randn(2, channels + 8, 14, 22, device="cuda", dtype=dtype))[:, :channels]
    pairs = [(y, F.max_pool2d(again, 2), weights), (kept[0], again * 1.0, joined)]
    pairs = {"both": pairs, "halved": pairs[:1], "kept": pairs[1:]}[used]
    torch.autograd.backward([one for one, _, _ in pairs], [one for _, _, one in pairs])
    torch.autograd.backward([one for _, one, _ in pairs], [one.double() for _, _, one in pairs])
    assert_near(x.grad, again.grad, HALF[dtype])


@GPU
@pytest.mark.parametrize("dtype", list(HALF), ids=str)
@pytest.mark.parametrize(
    ("channels", "space"),
    [(32, (256, 250)), (16, (37, 41)), (40, (64, 64)), (256, (16, 16)), (5, (6, 7, 8))],
    ids=str,
)
def test_on_a_gpu_the_last_program_adds_up_what_all_found(
    dtype: torch.dtype, channels: int, space: Sequence[int]
) -> None:
    torch.manual_seed(0)
    norm = (nn.BatchNorm2d if len(space) == 2 else nn.BatchNorm3d)(channels).cuda()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    fused, exact = NormWithReLU(copy.deepcopy(norm), None), copy.deepcopy(norm).double()
    x = channels_last(torch.randn(4, channels, *space, device="cuda", dtype=dtype)).requires_grad_()
    gradient = channels_last(torch.randn(4, channels + 8, *space, device="cuda", dtype=dtype))[:, :channels]
    for _ in range(3):
        again = x.detach().double().requires_grad_()
        y, expected = fused(x), torch.relu(exact(again))
        found = torch.autograd.grad(y, [x, fused.weight, fused.bias], gradient)
        truth = torch.autograd.grad(expected, [again, exact.weight, exact.bias], gradient.double())
        assert_near(y, expected, HALF[dtype])
        for one, other in zip(found, truth, strict=True):
            assert_near(one, other, HALF[dtype])
        assert not fused.tickets.any()
    assert int(fused.num_batches_tracked) == 3
    assert_near(fused.running_mean, exact.running_mean, 1e-4)
    assert_near(fused.running_var, exact.running_var, 1e-4)
    once, twice = (torch.autograd.grad(fused(x), [x, fused.weight], gradient) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, twice, strict=True))


@GPU
def test_on_a_gpu_gradients_flow_in_evaluation_too() -> None:
    plain = unet().cuda().to(memory_format=torch.channels_last).eval()
    network = copy.deepcopy(plain)
    faster(network)
    images = channels_last(torch.randn(2, 1, 64, 64, device="cuda"))
    for one in (network, plain):
        one(images).square().mean().backward()
    for name, one in network.named_parameters():
        if one.requires_grad:
            assert_near(one.grad, plain.get_parameter(name).grad, 1e-2)  # TF32


@GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_a_gpu_under_autocast_gradients_are_as_near_to_the_truth(dtype: torch.dtype) -> None:
    plain = unet().cuda().to(memory_format=torch.channels_last)
    network, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    faster(network)
    images = channels_last(torch.randn(8, 1, 128, 128, device="cuda"))
    for one in (network, plain):
        with torch.autocast("cuda", dtype=dtype):
            logits = one(images)
        assert logits.dtype == dtype
        logits.float().square().mean().backward()
    exact(images.double()).square().mean().backward()
    names = [name for name, one in network.named_parameters() if one.requires_grad]
    ours, theirs, truth = (
        torch.cat([one.get_parameter(name).grad.double().flatten() for name in names])
        for one in (network, plain, exact)
    )
    assert_near(ours, truth, 1.3 * float((theirs - truth).norm() / truth.norm()))
