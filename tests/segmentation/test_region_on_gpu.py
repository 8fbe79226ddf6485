"""On a real GPU: the CPU's numbers, no stall, in a compiled graph and in a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ringfence.segmentation import Region, contact
from stalls import no_stalls

pytestmark = pytest.mark.gpu

SPACES = [(96, 80), (20, 24, 28)]


def case(space: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 3, *space, generator=generator)
    ends = [torch.randint(0, length + 1, (2, 2, 4, 2), generator=generator) for length in space]
    boxes = torch.stack([end.sort(dim=-1).values for end in ends], dim=3)
    boxes[0, 0, 0] = torch.tensor([[0, length] for length in space])
    boxes[1, 0, 3] = 0
    return logits, boxes, torch.randint(0, 3, (2, len(space)), generator=generator)


def measured(logits: Tensor, boxes: Tensor, margin: Tensor) -> list[Tensor]:
    region = Region(logits)
    p = region.probabilities
    found = [region.outside(boxes), region.inside(boxes), region.sizes(boxes), region.boundary]
    found += [contact(p[:, 0], p[:, 1], region.axes), region.inside(boxes[:, :, 0])]
    found += region.strips(boxes, 3, margin)
    for angle in (45.0, -45.0, 30.0, -7.5):
        found += region.slanted_strips(boxes, angle, 3, margin)
    return [*found, *region.slanted_strips(boxes[:, :, 0], 20.0, 5)]


def with_gradient(logits: Tensor, boxes: Tensor, margin: Tensor, function=measured) -> tuple[list[Tensor], Tensor]:
    logits = logits.detach().requires_grad_()
    found = function(logits, boxes, margin)
    floats = [one for one in found if one.requires_grad]
    (gradient,) = torch.autograd.grad(sum((one / (1 + one.detach().abs())).sum() for one in floats), logits)
    return [one.detach() for one in found], gradient


def assert_same(found: tuple[list[Tensor], Tensor], expected: tuple[list[Tensor], Tensor]) -> None:
    for one, other in zip([*found[0], found[1]], [*expected[0], expected[1]], strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_cpus_numbers_without_a_stall(space: tuple[int, ...]) -> None:
    data = case(space)
    there = [one.cuda() for one in data]
    with_gradient(*there)  # the first call sets libraries up
    with no_stalls():
        found = with_gradient(*there)
    assert_same(found, with_gradient(*data))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_under_autocast(space: tuple[int, ...]) -> None:
    data = case(space)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = with_gradient(*[one.cuda() for one in data])
    assert_same(found, with_gradient(*data))


@pytest.mark.filterwarnings("ignore:\\s*Online softmax is disabled")  # Inductor's, about its own choice
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch, of itself
def test_compiled_by_inductor_in_one_graph() -> None:
    def few(logits: Tensor, boxes: Tensor, margin: Tensor) -> list[Tensor]:
        region = Region(logits)
        strips, slanted = region.strips(boxes, 3, margin), region.slanted_strips(boxes, -30.0, 3, margin)
        return [region.sizes(boxes), region.boundary, strips.sums, slanted.sums, slanted.widths]

    data = case((40, 48))
    compiled = torch.compile(few, dynamic=False, fullgraph=True)
    assert_same(with_gradient(*[one.cuda() for one in data], compiled), with_gradient(*data, few))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_in_a_cuda_graph(space: tuple[int, ...]) -> None:
    data = case(space)
    static = [one.cuda() for one in data]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        with_gradient(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = with_gradient(*static)
    static[0].copy_(data[0].flip(0))  # another batch, its boxes as well
    static[1].copy_(data[1].flip(0))
    graph.replay()
    assert_same(found, with_gradient(data[0].flip(0), data[1].flip(0), data[2]))
