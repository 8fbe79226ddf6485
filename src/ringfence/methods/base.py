"""What every method shares: the four verbs, names, weights, reduction, checks and certificates."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import torch
from torch import Tensor

from ringfence.certificate import Certificate
from ringfence.methods.admission import Admitting, Call, transformed
from ringfence.methods.by_name import quoted
from ringfence.numbers import not_negative
from ringfence.residuals import Constraint, Residual

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

Reduction: TypeAlias = Literal["sum", "mean", "batchmean"]


class Options(TypedDict, total=False):
    """The keyword arguments every method takes; ``Method`` says what they mean."""

    weights: Mapping[str, float] | None
    reduction: Reduction
    shapes: Mapping[str, Sequence[int]] | None
    validate: bool | None


class Method(Admitting):
    """loss = Σ_i w_i Σ_n φ(f_i^n): named residuals in (``f <= 0`` satisfied), one scalar out.

    Concrete methods say what φ is. All of them share these verbs:

    - ``fence(name=residual, ...)``: the scalar to add to a loss;
    - ``fence.duals(name=residual, ...)``: λ, exactly the derivative of that scalar with respect to each f;
    - ``fence.step()``: once an epoch or once an iteration, as one steps a learning-rate schedule;
    - ``fence.certificate(objective, name=residual, ...)``: feasibility and duality gap.

    Names are fixed at the first call (or by ``shapes``); a name that changes later is an error, not a silently
    dropped constraint. Nothing here owns the model or the optimiser.

    Args:
        weights: w_i by constraint name; 1 where not given.
        reduction: "sum" over constraints and data points (the paper's objective), "mean" over all constraints
            present, or "batchmean": the sum divided by the number of rows.
        shapes: declares the names, and the shape of one row of each (without the first dimension).
        validate: whether values are checked: on the CPU at once, on a GPU at ``step()`` or after 64 calls, unless
            given. True checks at once on a GPU too, at the price of a stall per call; False never, for loops that
            count microseconds and whose residuals and indices are known to be sound. Inside ``torch.compile``
            nothing is checked.
    """

    def __init__(
        self,
        *,
        weights: Mapping[str, float] | None = None,
        reduction: Reduction = "sum",
        shapes: Mapping[str, Sequence[int]] | None = None,
        validate: bool | None = None,
        **unknown: object,
    ) -> None:
        if unknown:
            raise TypeError(f"{type(self).__name__} takes no argument {quoted(unknown)}")
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be one of {', '.join(get_args(Reduction))}, got '{reduction}'")
        self.reduction = reduction
        self.steps = 0
        super().__init__(
            {name: not_negative(f"the weight of '{name}'", weight) for name, weight in (weights or {}).items()},
            {name: tuple(shape) for name, shape in (shapes or {}).items()},
            validate,
        )

    # The verbs

    def forward(self, *unnamed: Constraint, index: Tensor | None = None, **constraints: Constraint) -> Tensor:
        """The scalar Σ_i w_i Σ_n φ(f_i^n).

        Args:
            *unnamed: refused, with a message: every constraint has a name.
            index: int64 ``[rows]``, which data point each row is; only methods that keep a multiplier per data
                point need it, the others ignore it.
            **constraints: residuals by name; a plain tensor is taken as "should be ``<= 0``".

        Returns:
            A scalar, float32 or wider.
        """
        if unnamed:
            raise TypeError("a constraint needs a name: fence(size=rf.between(...)), not fence(rf.between(...))")
        by_loss = self._names is not None and self._tells(next(iter(self._names))) and not transformed()
        call = self._admit(constraints, index, look=not by_loss)
        loss = self._loss(call)
        if by_loss:
            self._check_values(call, told=loss.is_cpu and math.isfinite(loss.item()))
            self._ledger.close_call()
        if self.training and torch.is_grad_enabled():
            self._see(call)
        return loss

    def observe(self, *, index: Tensor | None = None, **constraints: Constraint) -> None:
        """Show residuals for the next dual step; methods without explicit multipliers have no use for them."""

    def duals(self, *, index: Tensor | None = None, **constraints: Constraint) -> dict[str, Tensor]:
        """λ by name, shaped like each residual: d(loss)/df, weights and reduction included; 0 where masked."""
        call = self._admit(constraints, index)
        with torch.no_grad():
            return self._duals(call)

    def step(self) -> None:
        """End an epoch, or an iteration: make the checks still waiting, then raise the barrier or move λ."""
        try:
            self._ledger.settle()
        except ValueError as fault:
            self._discard(fault)  # what was seen since the last step may hold the fault
            raise
        self._advance()
        self.steps += 1

    def certificate(
        self,
        objective: Tensor | float,
        *,
        index: Tensor | None = None,
        parameters: Iterable[Tensor] | None = None,
        radius: float | None = None,
        tolerance: float = 0.0,
        **constraints: Constraint,
    ) -> Certificate:
        """Feasibility, worst violation, duality gap and its bound at this point; see ``Certificate``.

        Args:
            objective: E, the loss without the constraints' terms, over the same data as the residuals.
            index: as in the call.
            parameters: if given, the gradient norm of the method's loss is reported as well; ``objective`` and
                the residuals must then carry their graph.
            radius: with ``parameters``: no farther than this from them lies an optimum. Then, if the problem is
                convex, the certificate holds at this very point, be it a minimiser or not.
            tolerance: how large an f still counts as feasible.
            **constraints: residuals by name, as in the call.
        """
        tolerance = not_negative("tolerance", tolerance)
        if isinstance(objective, Tensor) and objective.numel() != 1:
            raise ValueError(f"objective must be one number, got a tensor of shape {list(objective.shape)}")
        if radius is not None:
            radius = not_negative("radius", radius)
            if parameters is None:
                raise ValueError("radius= needs parameters=: it is the distance in them that a gradient is worth")
        call = self._admit(constraints, index)
        self._ledger.settle()
        stationarity = None
        if parameters is not None:
            stationarity = _gradient_norm(objective + self._loss(call), parameters)
        with torch.no_grad():
            duals = self._duals(call)
            # float64: a gap is a small difference of many terms
            gap = -sum(
                (duals[name].double() * residual.filled(0.0).double()).sum().item()
                for name, residual in call.residuals.items()
            )
            worst = {
                name: residual.violation.max().item() if residual.f.numel() else 0.0
                for name, residual in call.residuals.items()
            }
        name = max(worst, key=lambda key: worst[key])
        return Certificate(
            objective=objective.item() if isinstance(objective, Tensor) else float(objective),
            feasible=worst[name] <= tolerance,
            worst=worst[name],
            worst_name=name if worst[name] > 0.0 else None,
            gap=gap,
            bound=self._bound(call.residuals),
            reduction=self.reduction,
            count=sum(int(residual.judged.present.sum()) for residual in call.residuals.values()),
            tolerance=tolerance,
            stationarity=stationarity,
            radius=radius,
            surrogate=any(residual.strict is not None for residual in call.residuals.values()),
        )

    def summary(self) -> dict[str, float]:
        """The numbers worth logging once an epoch."""
        return {}

    # What a CUDA graph can record

    def follow(self, device: torch.device | None) -> bool:
        """Keep all that steps change in tensors on ``device``, always the same: a graph of ``term`` stays right.

        None ends that. False where a call does what no graph can record: then call the fence as usual.
        """
        return False

    def term(self, residuals: Mapping[str, Residual], index: Tensor | None = None) -> Tensor:
        """The call's scalar, of residuals that a call has seen the like of; nothing is checked."""
        return self._loss(Call(dict(residuals), index))

    def note(self, residuals: Mapping[str, Residual], index: Tensor | None = None) -> None:
        """Put what multipliers must see of the residuals into the tensors that follow: nobody waits for it.

        It belongs to ``term``, and comes before the next ``step()``; ``replayed`` says that both took place.
        """

    def term_duals(self, residuals: Mapping[str, Residual], index: Tensor | None = None) -> dict[str, Tensor]:
        """``duals`` of residuals that somebody has looked at; nothing is checked."""
        with torch.no_grad():
            return self._duals(Call(dict(residuals), index))

    def replayed(self) -> None:
        """Say after each replay of a graph that recorded ``note``: what it saw counts towards the next step."""

    def followed(self) -> list[Tensor]:
        """The tensors that ``note`` writes to, so that who tries it out can put back what was there."""
        return []

    # What a concrete method says

    @abstractmethod
    def _total(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        """Σ φ(f) over what is constrained, differentiable."""

    @abstractmethod
    def _slope(self, name: str, residual: Residual, index: Tensor | None) -> Tensor:
        """φ'(f), broadcasting to f; any number where nothing is constrained."""

    @abstractmethod
    def _advance(self) -> None:
        """What ``step()`` does, the checks made; ``self.steps`` counts the steps before this one."""

    def _see(self, call: Call) -> None:
        """What a call made in training does besides its loss; nothing for methods without multipliers."""

    def _discard(self, fault: ValueError) -> None:
        """Forget what was seen since the last step, because a check failed."""

    def _bound(self, residuals: Mapping[str, Residual]) -> float | None:
        """An upper bound on the gap that holds at any point, or None."""
        return None

    # How it is put together

    def _loss(self, call: Call) -> Tensor:
        loss: Tensor | None = None
        for name, residual in call.residuals.items():
            term = self._total(name, residual, call.index)
            weight = self.weights.get(name, 1.0)
            term = term if weight == 1.0 else weight * term
            loss = term if loss is None else loss + term
        assert loss is not None  # noqa: S101  (_admit refuses a call without constraints)
        return loss if self.reduction == "sum" else loss / self._divisor(call.residuals)

    def _duals(self, call: Call) -> dict[str, Tensor]:
        duals = {}
        divisor = self._divisor(call.residuals)
        for name, residual in call.residuals.items():
            coefficient = self.weights.get(name, 1.0) / divisor
            slope = coefficient * self._slope(name, residual, call.index).expand_as(residual.f)
            duals[name] = torch.where(residual.present, slope, 0.0) if residual.ragged else slope
        return duals

    def _divisor(self, residuals: Mapping[str, Residual]) -> float | Tensor:
        """What the reduction divides the sum of all terms by."""
        if self.reduction == "mean":
            counts = [r.present.sum() if r.ragged else r.f.numel() for r in residuals.values()]
            first = next(iter(residuals.values())).f
            return torch.as_tensor(sum(counts), dtype=first.dtype).clamp(min=1.0)
        if self.reduction == "batchmean":
            rows = {name: r.f.shape[0] if r.f.ndim else 1 for name, r in residuals.items()}
            if len(set(rows.values())) > 1:
                raise ValueError(f"reduction='batchmean' needs constraints with as many rows each, got {rows}")
            return float(max(*rows.values(), 1))
        return 1.0

    # State: what all methods remember

    def _header(self) -> dict[str, Any]:
        return {"method": type(self).__name__, "names": sorted(self._names or ())}

    def _numbers(self) -> dict[str, float]:
        return {"steps": float(self.steps)}

    def _tensors(self) -> dict[str, Tensor]:
        return {}

    def _refusal(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
        saved = header.get("names", [])
        if saved and self._names is not None and set(saved) != self._names:
            return (
                f"the state is about the constraints {quoted(saved)}, this method's are "
                f"{quoted(sorted(self._names))}"
            )
        return None

    def _restore(self, header: dict[str, Any], numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        self._names = frozenset(header["names"]) or self._names
        self.steps = int(numbers["steps"])


def _gradient_norm(loss: Tensor | float, parameters: Iterable[Tensor]) -> float:
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise ValueError("parameters= needs an objective or residuals that carry their graph: do not detach them")
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True) if trained else ()
    squares = [gradient.double().square().sum() for gradient in gradients if gradient is not None]
    if not squares:
        raise ValueError(
            "parameters= holds nothing that objective or residuals depend on, so its gradient says nothing: give "
            "the parameters of this model (an iterator is used up after one pass), not frozen"
        )
    return float(torch.stack(squares).sum().sqrt())
