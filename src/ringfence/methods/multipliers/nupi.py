"""νPI: a controller for multipliers, with a proportional part that damps what plain ascent lets swing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ringfence.numbers import not_negative


class NuPI(torch.optim.Optimizer):
    """x ← x - lr·(ki·e + kp·(ξ - ξ_before)), ξ ← ν·ξ + (1 - ν)·e, with e the gradient.

    Sohrabi et al. (2024), "On PI controllers for updating Lagrange multipliers". For a fence's ``dual_optimiser``:
    e is then the residual and λ moves up. The proportional part answers to how the violation *changes*, so that λ
    stops rising before the constraint is met, not after: worth it when stepping once an iteration. The first step
    of each entry is plain ascent; with ``kp=0`` all of them are, and ``kp=1, ki=1, nu=0`` is the optimistic
    gradient method.

    Args:
        params: what to move.
        lr: the learning rate.
        kp: the proportional gain.
        ki: the integral gain.
        nu: how much of the smoothed gradient is kept from step to step, 0 to 1.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, kp: float = 1.0, ki: float = 1.0, nu: float = 0.0
    ) -> None:
        defaults = {"lr": not_negative("lr", lr), "kp": not_negative("kp", kp), "ki": not_negative("ki", ki)}
        if not 0.0 <= nu < 1.0:
            raise ValueError(f"nu must be at least 0 and below 1, got {nu}")
        super().__init__(params, defaults | {"nu": float(nu)})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every entry that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        error, state = parameter.grad, self.state[parameter]
        assert error is not None  # noqa: S101
        if not state:
            state["smoothed"] = torch.zeros_like(parameter)
            state["begun"] = torch.zeros_like(parameter)  # by entry: rows of multipliers begin when they are seen
        before = torch.where(state["begun"] > 0, state["smoothed"], error)
        smoothed = torch.lerp(error, before, group["nu"])
        parameter.sub_(group["ki"] * error + group["kp"] * (smoothed - before), alpha=group["lr"])
        state["smoothed"].copy_(smoothed)
        state["begun"].fill_(1.0)
