"""3 × 3 convolutions of few channels: where the kernels serve, and what they give, against float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ringfence.weak.networks.fast import faster, middle
from ringfence.weak.networks.fast.convolutions import rounded_together, without_bias

GPU = pytest.mark.gpu
HALF = {torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""What rounding to each may do to a norm."""
SHAPES = [(16, 16, (36, 50)), (48, 16, (9, 270)), (16, 32, (128, 65)), (64, 32, (33, 31)), (32, 32, (1, 1))]
EVERYWHERE = (middle.Wins(64 * 64, 0),)


def channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    found, expected = found.detach().double(), expected.detach().double()
    apart = (found - expected).norm() / expected.norm().clamp(min=1e-12)
    assert float(apart) <= tolerance, float(apart)


@pytest.mark.parametrize(
    ("convolution", "is_thin"),
    [
        (nn.Conv2d(16, 16, 3, padding=1), True),
        (nn.Conv2d(48, 16, 3, padding=1), True),
        (nn.Conv2d(24, 16, 3, padding=1), False),
        (nn.Conv2d(16, 128, 3, padding=1), False),
        (nn.Conv2d(16, 16, 3), False),
        (nn.Conv2d(16, 16, 1, padding=1), False),
        (nn.Conv2d(16, 16, 3, padding=1, stride=2), False),
        (nn.Conv2d(16, 16, 3, padding=2, dilation=2), False),
        (nn.Conv2d(16, 16, 3, padding=1, groups=2), False),
        (nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"), False),
    ],
    ids=lambda one: str(one),
)
def test_only_three_by_three_of_few_channels_is_thin(convolution: nn.Conv2d, is_thin: bool) -> None:
    assert middle.is_thin(convolution) == is_thin


def test_on_a_cpu_a_thin_convolution_is_a_plain_one() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(16, 16, 3, padding=1)
    ours = copy.deepcopy(plain)
    without_bias(ours)
    x = channels_last(torch.randn(2, 16, 8, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours(x), F.conv2d(x, plain.weight, padding=1))


@GPU
@pytest.mark.parametrize("dtype", list(HALF), ids=str)
@pytest.mark.parametrize(("channels", "outputs", "size"), SHAPES, ids=str)
def test_on_a_gpu_it_is_a_convolution(
    dtype: torch.dtype, channels: int, outputs: int, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middle, "WINS", EVERYWHERE)
    torch.manual_seed(0)
    convolution = nn.Conv2d(channels, outputs, 3, padding=1).cuda().to(memory_format=torch.channels_last)
    without_bias(convolution)
    x = channels_last(torch.randn(3, channels, *size, device="cuda", dtype=dtype)).requires_grad_()
    gradient = channels_last(torch.randn(3, outputs + 16, *size, device="cuda", dtype=dtype))[:, 8 : 8 + outputs]
    with torch.autocast("cuda", dtype=dtype), rounded_together(convolution):
        y = convolution(x)
    found = torch.autograd.grad(y, [x, convolution.weight], gradient, retain_graph=True)
    again = torch.autograd.grad(y, [x, convolution.weight], gradient)
    exact = [x.detach().double().requires_grad_(), convolution.weight.detach().to(dtype).double().requires_grad_()]
    expected = F.conv2d(*exact, padding=1)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert_near(y, expected, HALF[dtype])
    truths = torch.autograd.grad(expected, exact, gradient.double())
    for one, other, truth in zip(found, again, truths, strict=True):
        assert_near(one, truth, HALF[dtype])
        assert torch.equal(one, other)
    assert found[1].dtype == torch.float32
    assert found[1].stride() == convolution.weight.stride()


@GPU
def test_on_a_gpu_its_weight_need_not_have_been_rounded_nor_lie_channels_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(middle, "WINS", EVERYWHERE)
    torch.manual_seed(0)
    x = channels_last(torch.randn(2, 32, 20, 70, device="cuda"))
    weight = torch.randn(16, 32, 3, 3, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = middle.walked(x, weight, None)
    assert y is not None
    y.float().square().mean().backward()
    exact = weight.detach().double().requires_grad_()
    expected = F.conv2d(x.double(), exact, padding=1)
    expected.square().mean().backward()
    assert_near(y, expected, 6e-3)
    assert_near(weight.grad, exact.grad, 6e-3)


@GPU
@pytest.mark.parametrize("kind", ["float32", "contiguous"])
def test_on_a_gpu_what_it_is_not_made_for_is_left_to_cudnn(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middle, "WINS", EVERYWHERE)
    monkeypatch.setattr(middle, "convolution", None)  # whoever calls it fails
    convolution = nn.Conv2d(16, 16, 3, padding=1).cuda()
    without_bias(convolution)
    x = torch.randn(2, 16, 24, 24, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=kind != "float32"):
        convolution(x if kind == "contiguous" else channels_last(x)).float().sum().backward()


@GPU
@pytest.mark.parametrize("features", [(16, 32, 64, 128, 256, 16), (32, 32, 64, 128, 256, 32)], ids=str)
def test_on_a_gpu_a_network_of_them_is_as_near_to_the_truth(features: tuple[int, ...]) -> None:
    from monai.networks.nets import BasicUNet

    torch.manual_seed(0)
    plain = BasicUNet(2, 1, 2, features, act="relu", norm="batch", upsample="nontrainable")
    plain = plain.cuda().to(memory_format=torch.channels_last)
    network, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    faster(network)
    images = channels_last(torch.randn(8, 1, 128, 128, device="cuda"))
    for one in (network, plain):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = one(images)
        logits.float().square().mean().backward()
    exact(images.double()).square().mean().backward()
    names = [name for name, one in network.named_parameters() if one.requires_grad]
    ours, theirs, truth = (
        torch.cat([one.get_parameter(name).grad.double().flatten() for name in names])
        for one in (network, plain, exact)
    )
    assert_near(ours, truth, 1.3 * float((theirs - truth).norm() / truth.norm()))
