"""Multipliers as a network's output: λ(x), for more data points than a table could hold, or none twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.methods.multipliers.kinds import INEQUALITY, Kind
from ringfence.methods.multipliers.store import Climb, Multipliers, counts
from ringfence.residuals import Residual


@final
class Network(Multipliers):
    """λ = module(x), with x what ``index=`` gives of each row; its weights ascend the mean of λ·v.

    The module's answers must not be negative for inequalities: end it with ``Softplus`` or ``ReLU``. (Softplus
    never quite reaches 0, but unlike ReLU it cannot get stuck there.) On the CPU that is checked; on a GPU, where
    looking would stall, they count as 0.

    Args:
        name: the constraint's.
        kind: of the constraint.
        pair: whether v's last dimension is (low, high).
        module: from ``[rows, ...]`` to λ, one number for each entry of a row's residual.
        optimiser: from parameters to what ascends with them.
    """

    code = "network"

    def __init__(
        self,
        name: str,
        kind: Kind,
        pair: bool,
        module: nn.Module,
        optimiser: Callable[[list[nn.Parameter]], Any],
    ) -> None:
        super().__init__(name, kind, pair, 0.0)
        self.module = module
        self._parameters = [one for one in module.parameters() if one.requires_grad]
        if not self._parameters:
            raise ValueError(f"the multiplier network of '{name}' has no parameter to train")
        self.optimiser = optimiser(self._parameters)
        self._gradients: list[Tensor] | None = None  # ours, not .grad: another optimiser must not take them along
        self._violation: Tensor | None = None  # summed over the same entries
        self._count = 0.0
        self._latest: Tensor | None = None  # the last call's answers

    def __str__(self) -> str:
        return f"multipliers by {type(self.module).__name__}"

    @property
    def ready(self) -> bool:
        """From the start."""
        return True

    @property
    def value(self) -> Tensor:
        """Its weights, flat: there is no table."""
        return torch.cat([one.detach().reshape(-1) for one in self._parameters])

    def put(self, value: Tensor) -> None:
        """Not for networks."""
        raise ValueError(f"the multipliers of '{self.name}' are a network's answers: change its weights instead")

    def fit(self, shape: torch.Size, like: Tensor, index: Tensor | None) -> None:
        """Follow the residuals to their device."""
        if self._parameters[0].device != like.device:
            self.module.to(like.device)

    def rows(self, v: Tensor, index: Tensor | None) -> Tensor:
        """The network's answers, as they are: no gradient goes into it."""
        with torch.no_grad():
            return self._answers(v, index)

    def _answers(self, v: Tensor, index: Tensor | None) -> Tensor:
        if index is None or not index.is_floating_point():
            kind = "nothing" if index is None else str(index.dtype)
            raise TypeError(
                f"the multipliers of '{self.name}' are a network's: index= must hold what it reads of each row, a "
                f"floating-point tensor [rows, ...]; got {kind}"
            )
        shape = self.kind.shape(v.shape)
        if not index.ndim or not v.ndim or len(index) != len(v):
            raise ValueError(
                f"index= must hold one row of features for each row of '{self.name}': it has shape "
                f"{list(index.shape)}, the residual {list(v.shape)}"
            )
        answers: Tensor = self.module(index.to(self._parameters[0].device))
        if answers.numel() != math.prod(shape):
            raise ValueError(
                f"the multiplier network of '{self.name}' answered {list(answers.shape)}, but the residual needs "
                f"{list(shape)}"
            )
        answers = answers.reshape(shape).to(v.dtype)
        lowest = answers.min().item() if answers.is_cpu and answers.numel() else 0.0
        if math.isnan(lowest):
            raise ValueError(f"the multiplier network of '{self.name}' answered NaN: its weights have diverged")
        if lowest < self.kind.lowest:
            raise ValueError(
                f"the multiplier network of '{self.name}' answered {lowest:g}, and an inequality's λ "
                "must not be negative: end it with torch.nn.Softplus()"
            )
        return answers.clamp(min=self.kind.lowest)

    def see(self, v: Tensor, residual: Residual, index: Tensor | None, sound: bool | Tensor) -> None:
        """Add the gradient of Σ λ·v to those of the calls before."""
        with torch.inference_mode(False):
            v, there = counts(v.detach().clone(), residual, sound)
            with torch.enable_grad():
                answers = self._answers(v, index.clone() if index is not None else None)
                total = self.kind.product(answers, v)
                gradients = torch.autograd.grad(total, self._parameters, allow_unused=True)
            filled = [
                torch.zeros_like(one) if gradient is None else gradient
                for one, gradient in zip(self._parameters, gradients, strict=True)
            ]
            if self._gradients is None:
                self._gradients = filled
            else:
                self._gradients = [old + new for old, new in zip(self._gradients, filled, strict=True)]
            violation = self.kind.infeasibility(v).sum(dtype=torch.float64)
            self._violation = violation if self._violation is None else self._violation + violation
            self._count += float(v.numel() if there is None else there.sum())
            self._latest = answers.detach().reshape(-1)

    @property
    def seen(self) -> bool:
        """Whether there was a call."""
        return self._gradients is not None

    def step(self, climb: Climb) -> Tensor:
        """The weights move; ``climb``, which is about tables, is not asked. Of v the mean violation is known."""
        assert self._gradients is not None  # noqa: S101
        downwards = not any(group.get("maximize") for group in self.optimiser.param_groups)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient / (-max(self._count, 1.0) if downwards else max(self._count, 1.0))
        self.optimiser.step()
        for parameter in self._parameters:
            parameter.grad = None
        assert self._violation is not None  # noqa: S101
        mean = (self._violation / max(self._count, 1.0)).reshape(1)
        self.forget()
        return mean if self.kind is INEQUALITY else torch.stack((-mean, mean), dim=-1)

    def forget(self) -> None:
        """Drop the gradients."""
        self._gradients = self._violation = None
        self._count = 0.0

    def used(self) -> tuple[Tensor, None]:
        """Its answers in the last call."""
        return (self.value[:0] if self._latest is None else self._latest), None

    def sums(self) -> list[Tensor]:
        """Gradients, of how many entries they are, and how far those are violated."""
        gradients = self._gradients or [torch.zeros_like(one) for one in self._parameters]
        numbers = torch.tensor([self._count, float(self._violation or 0.0)], dtype=torch.float64)
        return [*gradients, numbers.to(gradients[0].device)]

    def take_sums(self, sums: list[Tensor]) -> None:
        """Those of all ranks."""
        *gradients, numbers = sums
        self._gradients = [one.to(like.dtype) for one, like in zip(gradients, self._parameters, strict=True)]
        self._count, self._violation = float(numbers[0]), numbers[1]

    def tensors(self) -> dict[str, Tensor]:
        """Weights, the optimiser's state, and what was seen."""
        found = {f"network/{key.replace('.', '/')}": tensor for key, tensor in self.module.state_dict().items()}
        for number, parameter in enumerate(self._parameters):
            for key, tensor in self.optimiser.state.get(parameter, {}).items():
                found[f"optimiser/{number}/{key}"] = torch.as_tensor(tensor)
        found["optimiser/rate"] = torch.tensor(self.optimiser.param_groups[0]["lr"], dtype=torch.float64)
        if self._gradients is not None:
            found |= {f"gradient/{number}": tensor for number, tensor in enumerate(self._gradients)}
            found["counts"] = torch.tensor([self._count, float(self._violation or 0.0)], dtype=torch.float64)
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As saved."""
        weights = {
            key.split("/", 1)[1].replace("/", "."): tensor
            for key, tensor in tensors.items()
            if key.startswith("network/")
        }
        if not weights:
            return
        device = next(iter(weights.values())).device
        self.module.to(device)
        self.module.load_state_dict(weights)
        for number, parameter in enumerate(self._parameters):
            mark = f"optimiser/{number}/"
            state = {key[len(mark) :]: tensor for key, tensor in tensors.items() if key.startswith(mark)}
            self.optimiser.state.pop(parameter, None)
            if state:
                self.optimiser.state[parameter] = state
        if "optimiser/rate" in tensors:
            self.optimiser.param_groups[0]["lr"] = tensors["optimiser/rate"].item()
        if "counts" in tensors:
            self._gradients = [tensors[f"gradient/{number}"] for number in range(len(self._parameters))]
            self._count, self._violation = float(tensors["counts"][0]), tensors["counts"][1]
        else:
            self.forget()
