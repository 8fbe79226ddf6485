"""The network on a CPU: batch normalisations folded, images side by side on its cores; the same answers."""

from __future__ import annotations

import copy
import ctypes
import threading
from concurrent.futures import CancelledError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.networks.nets.basic_unet import BasicUNet
from monai.networks.nets.segresnet import SegResNet
from torch import Tensor, nn

from children import python
from ringfence.weak.inference import allocator
from ringfence.weak.inference.folding import folded
from ringfence.weak.inference.lanes import Lanes
from ringfence.weak.training.views import view_averaged, views_of


def lively(network: nn.Module, seed: int = 0) -> nn.Module:
    """Its batch normalisations have seen data."""
    random = torch.Generator().manual_seed(seed)
    for one in network.modules():
        if isinstance(one, (nn.BatchNorm2d, nn.BatchNorm3d)):
            for tensor, low, high in (
                (one.running_mean, -0.5, 0.5),
                (one.running_var, 0.2, 3.0),
                (one.weight.data, -2.0, 2.0),
                (one.bias.data, -0.5, 0.5),
            ):
                tensor.copy_(torch.rand(tensor.shape, generator=random) * (high - low) + low)
    return network.eval()


def unet(axes: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return lively(BasicUNet(axes, 1, 2, (4, 4, 6, 8, 8, 4), act="relu", norm="batch", upsample="nontrainable"))


def norms(network: nn.Module) -> int:
    return sum(isinstance(one, nn.modules.batchnorm._BatchNorm) for one in network.modules())


@pytest.mark.parametrize("axes", [2, 3])
def test_folding_keeps_the_function_and_the_network(axes: int) -> None:
    network, images = unet(axes), torch.rand(2, 1, *[16] * axes)
    before = copy.deepcopy(network.state_dict())
    other = folded(network)
    assert norms(network) == 18
    assert norms(other) == 0
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    with torch.no_grad():
        torch.testing.assert_close(other(images), network(images), rtol=1e-5, atol=1e-6)


def test_what_is_not_certain_is_not_folded() -> None:
    torch.manual_seed(0)
    before = SegResNet(2, 4, 1, 2, blocks_down=(1, 1), blocks_up=(1,), norm="batch")  # norms come before
    assert norms(folded(before)) == norms(before)
    conv, norm = nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1)
    twice = nn.ModuleList([nn.Sequential(conv, norm), nn.Sequential(conv, nn.ReLU())])
    assert norms(folded(twice)) == 1
    hooked = nn.ModuleList([nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1))])
    hooked[0][0].register_forward_hook(lambda *_: None)
    assert norms(folded(hooked)) == 1
    no_statistics = nn.ModuleList([nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1, track_running_stats=False))])
    assert norms(folded(no_statistics)) == 1

    class Backwards(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[0](self[1](x))

    assert norms(folded(nn.ModuleList([Backwards(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))]))) == 1


@settings(max_examples=20, deadline=None)
@given(
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 3),
    bias=st.booleans(),
    affine=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_folded_convolution_is_the_two_after_each_other(
    inputs: int, outputs: int, bias: bool, affine: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(outputs, affine=affine)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 4.0)
    pair = nn.ModuleList([nn.Sequential(nn.Conv2d(inputs, outputs, 3, bias=bias), nn.Sequential(norm))]).eval()
    images = torch.rand(1, inputs, 5, 5)
    conv, other = pair[0][0], folded(pair)
    assert norms(other) == 0
    scale = (norm.running_var.double() + norm.eps).rsqrt() * (norm.weight.double() if affine else 1.0)
    plain = nn.functional.conv2d(images.double(), conv.weight.double(), conv.bias.double() if bias else None)
    shifted = (plain - norm.running_mean.double().view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1)
    expected = shifted + (norm.bias.double().view(1, -1, 1, 1) if affine else 0.0)
    with torch.no_grad():
        torch.testing.assert_close(other[0](images).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("axes", "turns"), [((), ()), ((3,), ()), ((2, 3), ()), ((), (10.0,)), ((3,), (-20.0, 20.0))]
)
def test_the_answer_is_the_same_to_the_last_bit_on_any_number_of_cores(
    axes: tuple[int, ...], turns: tuple[float, ...]
) -> None:
    network, images = unet(), torch.rand(5, 1, 32, 32)
    threads, views = torch.get_num_threads(), views_of(axes, turns)
    answers = [Lanes(network, count)(images, views) for count in (1, 2, 3)]
    assert torch.get_num_threads() == threads
    with torch.no_grad():
        torch.testing.assert_close(answers[0], view_averaged(network, images, views), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(answers[0], one) for one in answers[1:])
    alone = torch.cat([Lanes(network, 2)(one, views) for one in images.split(2)])
    assert torch.equal(answers[0], alone)


def test_each_core_has_a_network_of_its_own_and_one_thread() -> None:
    class Remembers(nn.Module):
        """Keeps something between two of its steps, as no network should."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.seen: set[tuple[str, int]] = set()

        def forward(self, images: Tensor) -> Tensor:
            self.now = images
            threading.Event().wait(0.01)
            assert self.now is images
            self.seen.add((threading.current_thread().name, torch.get_num_threads()))
            return torch.cat([self.scale * self.now, -self.now], dim=1)

    lanes = Lanes(Remembers(), 3)
    images = torch.rand(9, 1, 4, 4)
    expected = torch.cat([images, -images], dim=1).softmax(dim=1)
    torch.testing.assert_close(lanes(images, views_of(())), expected)
    assert {threads for one in lanes.networks for _, threads in one.seen} == {1}
    assert len({id(one.scale) for one in lanes.networks}) == 1


def test_a_lane_is_one_thread_where_torch_has_several() -> None:
    """In a fresh process: here, torch has one."""
    code = (
        "import torch\nfrom torch import nn\nfrom ringfence.weak.inference.lanes import Lanes, leave_cores\n"
        "from ringfence.weak.training.views import views_of\n"
        "counts = []\n"
        "class Counts(nn.Module):\n"
        "    def forward(self, images):\n"
        "        images.relu()\n"  # large enough to be shared out
        "        counts.append(torch.get_num_threads())\n"
        "        return torch.cat([images, -images], dim=1)\n"
        "torch.set_num_threads(3)\n"
        "look = lambda some: counts.append(torch.get_num_threads())\n"
        "Lanes(Counts(), 2)(torch.zeros(9, 1, 300, 300), views_of((3,)), look)\n"
        "print(len(counts), set(counts), torch.get_num_threads())\n"
        "leave_cores()\nprint(torch.get_num_threads())\n"
    )
    done = python("-W", "ignore", "-c", code)
    assert done.stdout == "27 {1} 3\n1\n", done.stderr


def test_what_is_begun_ahead_is_the_same_and_can_be_left() -> None:
    network, images = unet(), torch.rand(6, 1, 32, 32)
    lanes = Lanes(network, 2)
    expected = lanes(images, views_of((3,)))
    with lanes.begin(images[:4], views_of((3,))) as first, lanes.begin(images[4:], views_of((3,))) as second:
        assert torch.equal(torch.cat([first.answer(), second.answer()]), expected)

    asked, go_on = [], threading.Event()

    class Waits(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            asked.append(len(image))
            go_on.wait(10)
            return torch.cat([image, -image], dim=1)

    slow = Lanes(Waits(), 2)
    with slow.begin(images, views_of((3,))) as begun:
        pass
    go_on.set()
    with pytest.raises(CancelledError):
        begun.answer()
    assert len(asked) <= 2
    assert slow(images, views_of(())).shape == (6, 2, 32, 32)


def test_a_fork_works_on_threads_of_its_own() -> None:
    """In a fresh process: one that has threads of OpenMP must not be forked."""
    code = (
        "import os, torch\nfrom torch import nn\nfrom ringfence.weak.inference.lanes import Lanes\n"
        "from ringfence.weak.training.views import views_of\n"
        "torch.manual_seed(0)\nlanes = Lanes(nn.Conv2d(1, 2, 1), 2)\nimages = torch.rand(3, 1, 4, 4)\n"
        "before = lanes(images, views_of(()))\nchild = os.fork()\n"
        "if not child:\n    os._exit(0 if torch.equal(lanes(images, views_of(())), before) else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = python("-W", "ignore", "-c", code, OMP_NUM_THREADS="1")
    assert done.stdout == "0\n", done.stderr


def test_an_error_is_the_network_s_own() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        Lanes(nn.Conv2d(3, 2, 1), 2)(torch.rand(4, 1, 8, 8), views_of((3,)))


def test_memory_is_kept_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, name: int, value: int) -> int:
            told.append((name, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    allocator.keep_memory()
    assert told == [(-4, 0), (-1, 2**31 - 1), (-8, 1)]  # malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, M_ARENA_MAX
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    allocator.keep_memory()
