"""Adam's step in one launch: when it serves, and that it is torch's."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer

from ringfence.weak.training.gpu.adam import BLOCK, AtOnce, has_usual_settings, is_decoupled, lies_alike, table_of
from ringfence.weak.training.gpu.optimiser import InGraph

SHAPES = ((8, 4, 3, 3), (16, 8, 3, 3), (1,), (5,), (BLOCK,), (3 * BLOCK + 7,), (2, 1, 1, 1), ())


def weights_of(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Of many sizes, one in another order in memory, and (the last but one) one that gets no gradient."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator) for shape in SHAPES]
    values[1] = values[1].contiguous(memory_format=torch.channels_last)
    return [nn.Parameter(one.to(device, dtype)) for one in values]


def give_gradients(weights: list[nn.Parameter], number: int) -> None:
    generator = torch.Generator().manual_seed(100 + number)
    for place, weight in enumerate(weights):
        size = 10.0 ** int(torch.randint(-6, 3, (), generator=generator))
        gradient = size * torch.randn(weight.shape, generator=generator)
        if place != len(weights) - 2:
            weight.grad = torch.empty_like(weight).copy_(gradient)


def test_it_serves_usual_settings_of_adam_alone() -> None:
    weights = weights_of()
    assert has_usual_settings(Adam(weights))
    assert has_usual_settings(AdamW(weights, weight_decay=0.3, betas=(0.5, 0.9)))
    for other in (Adam(weights, amsgrad=True), AdamW(weights, maximize=True), NAdam(weights), SGD(weights, lr=0.1)):
        assert not has_usual_settings(other), other
    watched = Adam(weights)
    watched.register_step_post_hook(lambda *_: None)
    assert not has_usual_settings(watched)


def test_weight_decay_is_the_optimisers_own() -> None:
    for kind, expected in ((Adam, False), (AdamW, True)):
        optimiser = kind(weights_of())
        assert is_decoupled(optimiser, optimiser.param_groups[0]) == expected


def test_without_a_gpu_the_optimiser_steps_by_itself() -> None:
    ours, theirs = weights_of(), weights_of()
    inside, plain = InGraph(Adam(ours, lr=0.1, fused=True)), Adam(theirs, lr=0.1, fused=True)
    for number in range(3):
        give_gradients(ours, number)
        give_gradients(theirs, number)
        inside.step()
        plain.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def state_of(weight: Tensor) -> dict[str, Tensor]:
    return {"step": torch.zeros(()), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}


@pytest.mark.parametrize("shape", [(8, 4, 3, 3), (8, 4, 1, 1), (8, 1, 3, 3), (7,), ()])
def test_what_lies_in_one_order_is_served(shape: tuple[int, ...]) -> None:
    weight = nn.Parameter(torch.randn(shape))
    weight.grad = torch.randn(shape)
    assert lies_alike(weight, state_of(weight))
    if len(shape) == 4:
        weight.grad = weight.grad.contiguous(memory_format=torch.channels_last)
        same = 1 in shape  # then there is nothing to order
        assert lies_alike(weight, state_of(weight)) == same
        turned = nn.Parameter(weight.detach().contiguous(memory_format=torch.channels_last))
        turned.grad = weight.grad
        assert lies_alike(turned, state_of(turned))


def changed(weight: nn.Parameter, state: dict[str, Any], what: str) -> tuple[nn.Parameter, dict[str, Any]]:
    if what == "no state":
        return weight, {}
    if what == "steps in double":
        return weight, state | {"step": torch.zeros((), dtype=torch.float64)}
    if what == "moments in bfloat16":
        return weight, state | {"exp_avg": state["exp_avg"].bfloat16()}
    if what == "moments in another order":
        return weight, state | {"exp_avg_sq": state["exp_avg_sq"].t().contiguous().t()}
    if what == "one number for all":
        weight.grad = torch.ones(()).expand(6, 4)
    elif what == "gaps":
        weight.grad = torch.zeros(6, 8)[:, ::2]
    elif what == "weights in double":
        weight = nn.Parameter(weight.detach().double())
        weight.grad = torch.zeros_like(weight)
        state = state_of(weight)
    return weight, state


@pytest.mark.parametrize(
    "what",
    [
        "no state",
        "steps in double",
        "moments in bfloat16",
        "moments in another order",
        "one number for all",
        "gaps",
        "weights in double",
    ],
)
def test_what_does_not_is_left_to_torch(what: str) -> None:
    weight = nn.Parameter(torch.randn(6, 4))
    weight.grad = torch.zeros(6, 4)
    assert lies_alike(weight, state_of(weight))
    weight, state = changed(weight, state_of(weight), what)
    assert not lies_alike(weight, state)


def test_the_table_has_every_number_once() -> None:
    """What is at the addresses, put together, are the weights and the gradients."""
    weights = [one for one in weights_of() if one.numel() > 0]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    states = [state_of(one) for one in weights]
    rows = table_of(weights, states).tolist()
    assert max(row[-1] for row in rows) == BLOCK

    def read(address: int, count: int) -> list[float]:
        return list((ctypes.c_float * count).from_address(address))

    for column, tensors in ((0, weights), (1, [one.grad for one in weights])):
        found = [value for row in rows for value in read(row[column], row[-1])]
        expected = [one.detach().permute(_by_stride(one)).flatten() for one in tensors if one is not None]
        assert found == torch.cat(expected).tolist()
    pointers = [state["step"].data_ptr() for state in states for _ in range(-(-state["exp_avg"].numel() // BLOCK))]
    assert [row[4] for row in rows] == pointers


def _by_stride(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))


def make(kind: type[Optimizer], weights: list[nn.Parameter], decay: float, fused: bool) -> Any:
    return kind(weights, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay, fused=fused)  # type: ignore[call-arg]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_from_a_graph_are_torchs(
    kind: type[Optimizer], decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five of them, at two learning rates: against torch's fused kernel, and torch in double precision."""
    calls = []
    own = AtOnce.step
    monkeypatch.setattr(AtOnce, "step", lambda self: (calls.append(1), own(self)))
    ours, theirs, exact = weights_of("cuda"), weights_of("cuda"), weights_of("cuda", torch.float64)
    optimisers = [make(kind, ours, decay, True), make(kind, theirs, decay, True), make(kind, exact, decay, False)]
    inside = InGraph(optimisers[0])
    given = [torch.zeros_like(one) for one in ours]
    before = [one.detach().clone() for one in ours]

    def step() -> None:
        for place, (weight, gradient) in enumerate(zip(ours, given, strict=True)):
            weight.grad = None if place == len(ours) - 2 else gradient * 1.0  # in memory of the graph
        inside.step()

    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with inside.recorded():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    assert len(calls) == 3  # the first is torch's own
    with torch.no_grad():
        for weight, value in zip(ours, before, strict=True):
            weight.copy_(value)
    for number in range(5):
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = 1e-3 if number < 3 else 3e-3
        assert inside.as_recorded()
        for weights in (theirs, exact):
            give_gradients(weights, number)
        for gradient, weight in zip(given, theirs, strict=True):
            if weight.grad is not None:
                gradient.copy_(weight.grad)
        graph.replay()
        optimisers[1].step()
        optimisers[2].step()
    assert all(float(one["step"]) == 5.0 for one in optimisers[0].state.values())
    assert len(optimisers[0].state) == len(ours) - 1
    for place, (mine, fused, double) in enumerate(zip(ours, theirs, exact, strict=True)):
        torch.testing.assert_close(mine, fused, rtol=1e-6, atol=3e-7)
        torch.testing.assert_close(mine.double(), double, rtol=1e-6, atol=1e-6)
        if place == len(ours) - 2:
            assert torch.equal(mine, before[place])
            continue
        for name in ("exp_avg", "exp_avg_sq"):
            found, expected = (one.state[w][name] for one, w in zip(optimisers[:2], (mine, fused), strict=True))
            # some of torch's kernels have 1 - β₂ in float32, which is 1.3e-5 off
            torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-6 * float(expected.abs().max()))
