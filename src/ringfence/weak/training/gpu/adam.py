"""The step of Adam or AdamW in one launch: torch's fused one leaves most of a GPU idle where weights are few.

State stays torch's own, so that checkpoints are what they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from ringfence.extras import installed

BLOCK: Final = 1024
"""Numbers of a weight for each program."""
COLUMNS: Final = 6
"""Of the table: addresses of weight, gradient, exp_avg, exp_avg_sq and step; and how many numbers."""
UNUSUAL: Final = ("amsgrad", "maximize", "differentiable")
"""Settings of a group that the kernel does not have."""


class AtOnce:
    """An optimiser's step in one launch for each group of weights.

    Args:
        optimiser: its state and settings are read at each step.
        rates: the groups' learning rates, on the device: a graph reads them anew.
    """

    def __init__(self, optimiser: Optimizer, rates: Sequence[Tensor]) -> None:
        self._optimiser, self._rates = optimiser, rates
        self._room: dict[int, Tensor] = {}
        self._tables: list[tuple[Tensor, Tensor]] = []

    def serves(self) -> bool:
        """Whether it can take the next step: gradients and state are there, and room for what is recorded."""
        return (
            all(rate.is_cuda for rate in self._rates)
            and (len(self._room) > 0 or not torch.cuda.is_current_stream_capturing())
            and installed("triton")
            and has_usual_settings(self._optimiser)
            and all(lies_alike(one, self._optimiser.state.get(one, {})) for one in _moved(self._optimiser))
        )

    @torch.no_grad()
    def step(self) -> None:
        """Take it, or record it: then ``fill`` is called before a replay."""
        for place, (group, rate) in enumerate(zip(self._optimiser.param_groups, self._rates, strict=True)):
            weights = [one for one in group["params"] if one.grad is not None and one.numel() > 0]
            if not weights:
                continue
            states = [self._optimiser.state[one] for one in weights]
            torch._foreach_add_([state["step"] for state in states], 1)  # its own launch: programs would race
            rows = table_of(weights, states)
            if torch.cuda.is_current_stream_capturing():
                # Gradients have their addresses only now. A copy of them would become part of the graph, and read
                # at each replay what would have to stay in pinned memory. But nothing runs before the first replay:
                # until then there is time to fill the table. Its memory is that of a step before: what is allocated
                # in a graph may have been something else in it before, and is written to at each replay.
                table = self._room.pop(place)
                self._tables.append((table, rows))
            else:
                table = self._room[place] = rows.to(rate.device)
            launch_step(table, rate, group, is_decoupled(self._optimiser, group))
            torch.autograd.graph.increment_version(weights)

    def fill(self) -> None:
        """Fill the tables of steps that were recorded: once, after recording and before a replay."""
        for table, rows in self._tables:
            table.copy_(rows)


def has_usual_settings(optimiser: Optimizer) -> bool:
    """Whether it is Adam or AdamW, with nothing that the kernel does not have, and nobody looks at its steps."""
    hooks = optimiser._optimizer_step_pre_hooks or optimiser._optimizer_step_post_hooks
    return (
        type(optimiser) in (Adam, AdamW)
        and not hooks
        and all(
            not any(group.get(name) for name in UNUSUAL)
            and not any(isinstance(one, Tensor) for one in (*group["betas"], group["eps"], group["weight_decay"]))
            for group in optimiser.param_groups
        )
    )


def lies_alike(weight: Tensor, state: Mapping[str, Any]) -> bool:
    """Whether a weight, its gradient and its moments are float32, and have their numbers in memory in one order."""
    steps = state.get("step")
    if not isinstance(steps, Tensor) or steps.dtype != torch.float32 or steps.device != weight.device:
        return False
    tensors = [weight, weight.grad, state.get("exp_avg"), state.get("exp_avg_sq")]
    order = _order(weight)
    return order is not None and all(
        isinstance(one, Tensor)
        and one.layout == torch.strided
        and one.dtype == torch.float32
        and one.device == weight.device
        and one.shape == weight.shape
        and _order(one) == order
        for one in tensors
    )


def is_decoupled(optimiser: Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether weights decay by themselves, as AdamW has it, and not by their gradient."""
    return isinstance(optimiser, AdamW) or bool(group.get("decoupled_weight_decay"))


def table_of(weights: Sequence[Tensor], states: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """A row for each program, int64 ``[programs, COLUMNS]``, on the CPU."""
    parts = []
    for weight, state in zip(weights, states, strict=True):
        assert weight.grad is not None  # noqa: S101 - the caller's
        start = torch.arange(0, weight.numel(), BLOCK)
        tensors = (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])
        places = [one.data_ptr() + start * one.element_size() for one in tensors]
        steps = torch.full_like(start, state["step"].data_ptr())
        parts.append(torch.stack([*places, steps, (weight.numel() - start).clamp(max=BLOCK)], dim=1))
    return torch.cat(parts)


def launch_step(table: Tensor, rate: Tensor, group: Mapping[str, Any], decoupled: bool) -> None:
    """The kernel, for a table's weights; the group's numbers but ``rate`` become part of a graph."""
    from ringfence.weak.training.gpu import adam_kernels as kernels

    # 1 - β before it is rounded: in float32, the difference would be off by as much as 1e-5
    (beta1, rest1, log1), (beta2, rest2, log2) = (
        (beta, 1.0 - beta, math.log(beta) if beta > 0.0 else -math.inf) for beta in map(float, group["betas"])
    )
    decay = float(group["weight_decay"])
    kernels.step[(len(table),)](
        table, rate, beta1, rest1, log1, beta2, rest2, log2, float(group["eps"]), decay,
        DECAYS=decay != 0.0, DECOUPLED=decoupled, COLUMNS=COLUMNS, BLOCK=BLOCK,
    )  # fmt: skip


def _moved(optimiser: Optimizer) -> list[Tensor]:
    return [one for group in optimiser.param_groups for one in group["params"] if one.grad is not None]


def _order(tensor: Tensor) -> list[tuple[int, int]] | None:
    """Strides and their axes, from the innermost; None where numbers overlap, or have gaps between them."""
    order = sorted((stride, axis) for axis, stride in enumerate(tensor.stride()) if tensor.shape[axis] > 1)
    expected = 1
    for stride, axis in order:
        if stride != expected:
            return None
        expected *= tensor.shape[axis]
    return order
