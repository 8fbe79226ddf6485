"""Region's sums by fused kernels: against float64 on a GPU; and what autograd sees of them, anywhere."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator

import plain_launch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ringfence.segmentation import Region, fused
from ringfence.segmentation.fused import sums as fused_sums
from ringfence.segmentation.fused.cut import Cut, finishing_warps, power_of_two

GPU = pytest.mark.gpu
Measure = Callable[[Region, Tensor], list[Tensor]]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels' place is taken by plain operations; the passes over the logits."""
    monkeypatch.setitem(sys.modules, "ringfence.segmentation.fused.launch", plain_launch)
    monkeypatch.setattr(fused, "launch", plain_launch, raising=False)
    monkeypatch.setattr(fused_sums, "can_fuse", lambda logits: logits.ndim > 3)
    plain_launch.passes.clear()
    yield plain_launch.passes
    plain_launch.passes.clear()


def boxes_in(space: tuple[int, ...], classes: int, objects: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    ends = [torch.randint(0, length + 1, (2, classes, objects, 2), generator=generator) for length in space]
    return torch.stack([end.sort(dim=-1).values for end in ends], dim=3)


def everything(region: Region, boxes: Tensor) -> list[Tensor]:
    margin = torch.tensor([[1] * region.axes])
    strips = region.strips(boxes, 3, margin.to(boxes.device))
    return [region.size, region.centroid, region.outside(boxes), region.inside(boxes), strips.sums, *region.sums]


def with_gradient(logits: Tensor, measure: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
    """The measures, and the gradient of something that depends on all of them."""
    leaf = logits.detach().requires_grad_()
    found = measure(leaf)
    (gradient,) = torch.autograd.grad(sum((one / (1 + one.detach().abs())).sum() for one in found), leaf)
    return [*(one.detach() for one in found), gradient]


class Mark:
    """Something that can be seen to go."""


@pytest.mark.parametrize("known", [True, False], ids=["boxes known", "boxes later"])
@pytest.mark.parametrize(
    "device", [pytest.param("cpu", id="stand-in"), pytest.param("cuda", marks=GPU, id="kernels")]
)
def test_a_step_leaves_nothing_behind(device: str, known: bool, request: pytest.FixtureRequest) -> None:
    """What a network's graph holds is let go of with the last of the measures, and not when garbage is collected."""
    if device == "cpu":
        request.getfixturevalue("stand_in")
    boxes = boxes_in((12, 9), 2).to(device)
    weight = torch.randn(2, 3, 12, 9, device=device, requires_grad=True)
    logits, mark = weight.exp(), Mark()
    logits.grad_fn.register_hook(lambda *words, mark=mark: None)  # it is there as long as the network's graph is
    held = [weakref.ref(logits), weakref.ref(mark)]
    collecting = gc.isenabled()
    gc.disable()
    try:
        region = Region(logits, boxes=boxes if known else None)
        torch.stack([one.sum() for one in everything(region, boxes)]).sum().backward()
        del region, logits, mark
        assert [one() for one in held] == [None, None]
    finally:
        if collecting:
            gc.enable()


@pytest.mark.parametrize("known", [True, False], ids=["boxes known", "boxes later"])
@pytest.mark.parametrize("objects", [1, 3])
@pytest.mark.parametrize("space", [(12, 9), (5, 6, 7)], ids=str)
def test_one_pass_there_and_one_back(
    space: tuple[int, ...], objects: int, known: bool, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, boxes = 3 * torch.randn(2, 3, *space, dtype=torch.float64), boxes_in(space, 2, objects)
    found = with_gradient(logits, lambda leaf: everything(Region(leaf, boxes=boxes if known else None), boxes))
    assert stand_in == ["forward", "backward"]
    monkeypatch.undo()
    expected = with_gradient(logits, lambda leaf: everything(Region(leaf), boxes))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_what_comes_later_hands_its_gradient_to_what_came_first(
    stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(2, 2, 10, 8, dtype=torch.float64)
    first, second = boxes_in((10, 8), 1), boxes_in((10, 8), 1).flip(0)

    def measure(leaf: Tensor) -> list[Tensor]:
        region = Region(leaf)
        size = region.size  # nobody knows of boxes yet
        found = [size, region.outside(first), region.strips(first, 2).sums, region.strips(first, 3).sums]
        return [*found, region.outside(second), region.inside(second)]

    found = with_gradient(logits, measure)
    assert stand_in.count("forward") == 3  # the whole, and each group of boxes
    assert stand_in.count("backward") == 3  # two groups, and strips of another width
    monkeypatch.undo()
    for one, other in zip(found, with_gradient(logits, measure), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_of_gradients_are_those_of_plain_operations(
    stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = boxes_in((6, 5), 1)

    def curved(logits: Tensor) -> Tensor:
        leaf = logits.detach().requires_grad_()
        found = everything(Region(leaf, boxes=boxes), boxes)
        (gradient,) = torch.autograd.grad(sum(one.square().sum() for one in found), leaf, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), leaf)[0]

    logits = torch.randn(2, 2, 6, 5, dtype=torch.float64)
    found = curved(logits)
    monkeypatch.undo()
    torch.testing.assert_close(found, curved(logits))


def test_a_graph_that_is_kept_can_be_gone_back_twice(stand_in: list[str]) -> None:
    logits, boxes = torch.randn(2, 2, 6, 5, requires_grad=True), boxes_in((6, 5), 1)
    loss = sum(one.sum() for one in everything(Region(logits), boxes))
    first = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, logits)[0])


def test_classes_apart_and_crowds_are_left_to_plain_operations(stand_in: list[str]) -> None:
    logits = torch.randn(2, 4, 6, 5)
    Region(logits, classes=[0, 2]).size  # noqa: B018
    Region(logits, boxes=boxes_in((6, 5), 3, 17)).size  # noqa: B018
    assert stand_in == []
    region = Region(logits)
    region.outside(boxes_in((6, 5), 3, 17))
    assert stand_in == []


@given(
    space=st.lists(st.integers(1, 1500), min_size=2, max_size=3),
    batch=st.integers(1, 80),
    channels=st.integers(1, 256),
    objects=st.integers(1, 16),
    element=st.sampled_from([2, 4]),
)
def test_tiles_cover_the_map_once(space: list[int], batch: int, channels: int, objects: int, element: int) -> None:
    """Every row and column is in a tile, no tile is beyond the map, and a program holds a bounded part of it."""
    count = max(1, channels - 1)
    cut = Cut.of((batch, channels, *space), min(1, channels - 1), count, objects, element)
    deep, height, width = cut.space
    assert cut.lengths == tuple(space)
    assert (cut.tiles_x - 1) * cut.columns < width <= cut.tiles_x * cut.columns
    assert (cut.tiles_y - 1) * cut.rows < height <= cut.tiles_y * cut.rows
    across, along = (cut.tiles_y, deep) if cut.deep else (deep, cut.tiles_y)  # where it stays, and where it walks
    walked, rest = divmod(cut.parts, across)
    assert rest == 0
    assert (walked - 1) * cut.steps < along <= walked * cut.steps
    fits = height == walked * cut.steps * cut.rows and width == cut.tiles_x * cut.columns
    assert cut.deep or cut.even == fits
    assert all(one & (one - 1) == 0 for one in (cut.rows, cut.columns))  # as Triton wants them
    assert power_of_two(channels) * cut.rows * cut.columns <= 8192


@pytest.mark.parametrize(("programs", "warps"), [(1, 16), (64, 16), (128, 8), (192, 8), (256, 4), (5000, 4)])
def test_few_programs_add_up_parts_by_more_warps(programs: int, warps: int) -> None:
    assert finishing_warps(programs) == warps


CASES = [
    ((96, 80), 2, 1, False),
    ((96, 80), 2, 1, True),
    ((33, 700), 2, 1, False),
    ((33, 130), 2, 1, True),
    ((40, 56), 1, 1, False),
    ((96, 80), 5, 3, False),
    ((20, 24, 28), 3, 2, True),
    ((20, 24, 28), 2, 1, False),
    ((20, 24, 28), 2, 1, True),
    ((8, 64, 128), 2, 1, False),
    ((20, 24, 28), 4, 1, True),
    ((20, 24, 28), 1, 1, False),
    ((16, 16), 20, 1, False),
    ((64, 256), 4, 1, False),
    ((64, 512), 2, 1, False),
    ((64, 512), 2, 1, True),
]


@GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("space", "channels", "objects", "last"), CASES)
def test_the_kernels_against_float64(
    space: tuple[int, ...], channels: int, objects: int, last: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(2, channels, *space)).to(dtype)
    boxes = boxes_in(space, max(channels - 1, 1), objects)
    given = logits.cuda()
    if last:
        given = given.contiguous(memory_format=torch.channels_last if len(space) == 2 else torch.channels_last_3d)
    there = boxes.cuda()
    found = with_gradient(given, lambda leaf: everything(Region(leaf, temperature=0.7, boxes=there), there))
    expected = with_gradient(logits.double(), lambda leaf: everything(Region(leaf, temperature=0.7), boxes))
    again = with_gradient(given, lambda leaf: everything(Region(leaf, temperature=0.7, boxes=there), there))
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    for one, other in zip(found[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-5, atol=1e-4)
    rounding = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(found[-1].cpu().double(), expected[-1], rtol=rounding, atol=rounding / 10)
    assert found[-1].stride() == given.stride()


@GPU
def test_the_gradient_is_all_the_memory_there_is() -> None:
    logits = torch.randn(16, 2, 512, 512, device="cuda")
    boxes = torch.tensor([[100, 300], [50, 400]]).expand(16, 1, 2, 2).contiguous().cuda()

    def step() -> None:
        leaf = logits.detach().requires_grad_()
        region = Region(leaf, boxes=boxes)
        found = [region.size, region.centroid, region.outside(boxes), region.strips(boxes).sums]
        torch.autograd.grad(found, leaf, [torch.ones_like(one) for one in found])

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    assert torch.cuda.max_memory_allocated() - before <= 1.1 * logits.nbytes


@GPU
def test_in_a_cuda_graph() -> None:
    logits = torch.randn(4, 2, 64, 64, device="cuda")
    boxes = torch.tensor([[10, 40], [5, 50]]).expand(4, 1, 2, 2).contiguous().cuda()

    def step() -> Tensor:
        leaf = logits.detach().requires_grad_()
        region = Region(leaf, boxes=boxes)
        return torch.autograd.grad(region.size.sum() + region.strips(boxes).sums.square().sum(), leaf)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    logits.normal_()
    graph.replay()
    torch.testing.assert_close(found, step())
