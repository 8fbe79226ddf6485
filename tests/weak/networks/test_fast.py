"""Networks in fewer passes: the same names, answers, gradients and statistics as the plain ones."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ringfence.weak.networks.fast import faster
from ringfence.weak.networks.fast.batch_norm import NormWithReLU
from ringfence.weak.networks.unet import DeepUNet

GPU = pytest.mark.gpu
LEVELS = (16, 16, 32, 40, 32, 16)
MORE = (16, 16, 32, 40, 32, 32, 16)


def unet(channels: int = 1, features: tuple[int, ...] = (8, 8, 16, 16, 16, 8), norm: str = "batch") -> nn.Module:
    from monai.networks.nets import BasicUNet

    torch.manual_seed(0)
    kind = BasicUNet if len(features) == len(LEVELS) else DeepUNet
    return kind(
        spatial_dims=2,
        in_channels=channels,
        out_channels=3,
        features=features,
        act="relu",
        norm=norm,
        upsample="nontrainable",
    )


def gradients(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    network(images).square().mean().backward()
    return {name: one.grad.clone() for name, one in network.named_parameters() if one.grad is not None}


def assert_alike(
    network: nn.Module, plain: nn.Module, images: Tensor, tolerance: float, of_gradients: float | None = None
) -> None:
    """Two steps' gradients and statistics, then answers in evaluation.

    Where a handful of pixels make a batch norm, rounding decides which side of a ReLU some are on: gradients then
    need only be as near to those in float64 as plain operations in float32 are.
    """
    exact = copy.deepcopy(plain).double()
    for _ in range(2):
        found, expected, truth = (
            gradients(network, images),
            gradients(plain, images),
            gradients(exact, images.double()),
        )
        for name, one in found.items():
            size = truth[name].norm().clamp(min=1e-12)
            apart = float((one - expected[name]).norm() / size)
            ours, theirs = (float((some[name].double() - truth[name]).norm() / size) for some in (found, expected))
            assert apart <= (of_gradients or tolerance) or ours <= 2.0 * theirs, (name, apart, ours, theirs)
    for name, one in plain.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], one, rtol=tolerance, atol=tolerance)
    network.eval()
    plain.eval()
    torch.testing.assert_close(network(images), plain(images), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("channels", [1, 2])
def test_on_a_cpu_everything_is_as_it_was(channels: int) -> None:
    plain = unet(channels)
    network = copy.deepcopy(plain)
    names = list(network.state_dict())
    assert faster(network) == 18
    assert list(network.state_dict()) == names
    assert_alike(network, plain, torch.randn(2, channels, 32, 48), 1e-5)
    again = unet(channels)
    again.load_state_dict(network.state_dict())


def test_a_bias_that_a_norm_takes_away_is_no_longer_trained() -> None:
    network = unet()
    faster(network)
    frozen = [name for name, one in network.named_parameters() if not one.requires_grad]
    assert len(frozen) == 18
    assert all(name.endswith("conv.bias") for name in frozen)


def test_odd_sizes_are_padded_as_before() -> None:
    plain = unet()
    network = copy.deepcopy(plain)
    faster(network)
    network.eval()
    plain.eval()
    images = torch.randn(1, 1, 36, 50)
    torch.testing.assert_close(network(images), plain(images))


class Twice(nn.Module):
    """A norm that is used in two places."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.BatchNorm2d(4)
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), norm, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize(
    "network",
    [
        Twice(),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU()),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), nn.ReLU()),
    ],
    ids=["shared", "dropout", "leaky", "without weights", "without statistics", "instance norm"],
)
def test_what_does_not_fit_is_left_alone(network: nn.Module) -> None:
    plain = copy.deepcopy(network)
    assert faster(network) == 0
    network.eval()
    plain.eval()
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(network(images), plain(images))


def test_the_plain_way_of_the_fused_norm_is_batch_norm_and_relu() -> None:
    norm = nn.BatchNorm2d(5, momentum=0.3).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    bias = torch.randn(5, dtype=torch.float64)
    fused = NormWithReLU(copy.deepcopy(norm), bias)
    x = torch.randn(3, 5, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(fused(x), torch.relu(norm(x + bias.view(1, -1, 1, 1))))
    torch.testing.assert_close(fused.running_mean, norm.running_mean)
    torch.testing.assert_close(fused.num_batches_tracked, norm.num_batches_tracked)


@GPU
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(64, 96), (36, 50)], ids=str)
@pytest.mark.parametrize("features", [LEVELS, MORE], ids=["basic", "deep"])
def test_on_a_gpu_the_kernels_give_what_plain_operations_give(
    channels: int, size: tuple[int, int], features: tuple[int, ...]
) -> None:
    torch.backends.cudnn.allow_tf32 = False
    plain = unet(channels, features).cuda().to(memory_format=torch.channels_last)
    network = copy.deepcopy(plain)
    faster(network)
    images = torch.randn(4, channels, *size, device="cuda").to(memory_format=torch.channels_last)
    # one pixel of the smallest map on the other side of a ReLU, by rounding alone, moves gradients by half a percent
    assert_alike(network, plain, images, 2e-3, of_gradients=2e-3 if features is LEVELS else 2e-2)


@GPU
def test_on_a_gpu_a_large_mean_costs_no_precision() -> None:
    norm = nn.BatchNorm2d(20).cuda()
    fused = NormWithReLU(copy.deepcopy(norm), None)
    x = (torch.randn(4, 20, 40, 30, device="cuda") + 1000.0).to(memory_format=torch.channels_last)
    torch.testing.assert_close(fused(x).double(), torch.relu(norm.double()(x.double())), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fused.running_var.double(), norm.running_var, rtol=1e-4, atol=1e-6)


@GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_on_a_gpu_the_same_input_gives_the_same_bits(dtype: torch.dtype) -> None:
    network = unet().cuda().to(memory_format=torch.channels_last)
    faster(network)
    network.eval()
    images = torch.randn(2, 1, 64, 64, device="cuda").to(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32), torch.no_grad():
        assert torch.equal(network(images), network(images))
