"""Training that diverges is stopped with what is needed to understand it, or remarked upon.

The rules are generous, since a barrier's loss grows with its t, and a Lagrangian's with λ, when all is well:

- stopped at once: a loss that is not finite; one beyond 1e18, whose gradients' squares float32 cannot hold; and
  cross-entropy beyond a million times what it was in the first ten steps (or 1, if that was less).
- stopped after the epoch: weights that are not finite, and a λ, t or γ beyond 1e16.
- remarked upon after the epoch: a weight beyond a thousand times the largest at the beginning (or 1). Next to such
  weights float32 cannot hold a step that is small enough to get back.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from ringfence.hints import listed
from ringfence.methods import Method
from ringfence.methods.dual import DualMethod
from ringfence.residuals import Residual
from ringfence.weak.networks.tensor_file import write_tensors

FILE: Final = "diverged.safetensors"
"""The batch at which a training was stopped, in its folder."""
LARGEST_LOSS: Final = 1e18
LARGEST_STRENGTH: Final = 1e16
EXPLODED: Final = 1e6
"""Times what cross-entropy was in the first steps."""
FIRST: Final = 10
"""Steps."""
BLOWN_UP: Final = 1e3
"""Times the largest weight at the beginning."""
BEHIND: Final = 4
"""Steps that a GPU may be ahead of what is known of their losses; their batches are kept until then."""


class Diverged(ValueError):  # noqa: N818 - the training did
    """A training that was stopped: where, which samples, which constraint, and what to do."""


@dataclass(frozen=True)
class Step:
    """A training step, as long as its loss is not known.

    Attributes:
        epoch: from 1.
        number: of the step in its epoch, from 1.
        values: the loss, and cross-entropy with what was added to it (0 without), detached.
        batch: what it was computed from, after augmentation.
        residuals: of each constraint.
    """

    epoch: int
    number: int
    values: Tensor
    batch: Mapping[str, Tensor]
    residuals: Mapping[str, Residual]


class Watch:
    """Looks at the loss of every step: at once on a CPU, a few steps later on a GPU, which never waits for it."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Step, Tensor, Any]] = deque()
        self._pinned: list[Tensor] = []
        self._seen, self._first = 0, 1.0

    def see(self, step: Step) -> tuple[Step, float] | None:
        """The step that is known to have diverged, and its loss; most often None."""
        if not step.values.is_cuda:
            return self._judged(step, step.values)
        kept = {name: replace(one, f=one.f.detach(), checks=()) for name, one in step.residuals.items()}
        if not self._pinned:
            self._pinned = [torch.empty(2, pin_memory=True) for _ in range(BEHIND + 1)]
        copy = self._pinned.pop()
        copy.copy_(step.values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._pending.append((replace(step, residuals=kept), copy, event))
        while self._pending and (len(self._pending) > BEHIND or self._pending[0][2].query()):
            if bad := self._next():
                return bad
        return None

    def settle(self) -> tuple[Step, float] | None:
        """The same, of all steps that have not been looked at: when an epoch ends, say."""
        while self._pending:
            if bad := self._next():
                return bad
        return None

    def _next(self) -> tuple[Step, float] | None:
        step, copy, event = self._pending.popleft()
        event.synchronize()
        bad = self._judged(step, copy)
        self._pinned.append(copy)
        return bad

    def _judged(self, step: Step, values: Tensor) -> tuple[Step, float] | None:
        loss, supervised = values.tolist()
        if self._seen < FIRST and math.isfinite(supervised):
            self._seen, self._first = self._seen + 1, max(self._first, abs(supervised))
        sound = math.isfinite(loss) and abs(loss) <= LARGEST_LOSS and abs(supervised) <= EXPLODED * self._first
        return None if sound else (step, loss)


def largest_weight(network: nn.Module) -> float:
    """The largest of all weights' absolute values; not finite if one of them is not."""
    some = [one.detach() for one in network.parameters() if one.numel()]
    if not some:
        return 0.0
    each = torch._foreach_norm(some, math.inf)  # a launch or two for all of them
    return float(torch.stack([one.float() for one in each]).max())


def check_strengths(fence: Method, epoch: int, names: Sequence[str]) -> None:
    """Refuse to go on with a λ, t or γ that float32 has no use for."""
    for name, value in fence.summary().items():
        if not math.isfinite(value) or value > LARGEST_STRENGTH:
            raise Diverged(
                f"training diverged in epoch {epoch}: {name} is {value:.3g}, beyond what float32 can use"
                f"{_whose(fence, name.rpartition('/')[2], names)}. {advice(fence)}"
            )


def advice(fence: Method | None, rate: float | None = None) -> str:
    """What may help."""
    now = "" if rate is None else f" (it was {rate:g})"
    own = {
        "LogBarrier": " or let t grow more slowly (log_barrier.mu, final_t)",
        "Penalty": " or let γ grow more slowly (penalty.strength, mu)",
        "Lagrangian": " or lower lagrangian.dual_lr",
        "ReLULagrangian": " or lower relu_lagrangian.dual_lr",
        "AugmentedLagrangian": " or lower augmented_lagrangian.rho and mu",
    }
    return (
        f"Lower training.lr{now}{own.get(type(fence).__name__, '')}, and begin a new run: --resume would repeat "
        "this one from its last checkpoint, which is as it was"
    )


@dataclass(frozen=True)
class Circumstances:
    """What is known of a training when it is stopped.

    Attributes:
        fence: how constraints are enforced, or None.
        names: of the training images.
        rate: the learning rate that was asked for.
        temperature: of the network.
        seed: of the training.
        folder: of the run.
    """

    fence: Method | None
    names: Sequence[str]
    rate: float
    temperature: float
    seed: int | None
    folder: Path


def kept(step: Step, loss: float, known: Circumstances) -> str:
    """What to say about a step that diverged; its batch is in a file."""
    samples, file = samples_of(step, known.names), known.folder / FILE
    facts = {
        "method": type(known.fence).__name__ if known.fence else "full supervision",
        "seed": known.seed,
        "samples": samples,
        "learning rate": known.rate,
        "temperature": known.temperature,
        **({} if known.fence is None else known.fence.summary()),
    }
    _write(step, loss, facts, file)
    what = f"the loss is {loss:.3g}" if math.isfinite(loss) else f"the loss is not finite ({loss})"
    terms = _terms(step, known.fence)
    if terms:
        name, term = terms[0]
        what += f", and its largest term is constraints.{name}'s ({term:.3g})"
    strengths = {} if known.fence is None else known.fence.summary()
    if strengths:
        what += "; " + ", ".join(f"{name} = {value:.4g}" for name, value in list(strengths.items())[:4])
    return (
        f"training diverged in epoch {step.epoch}, step {step.number}: {what}. Samples: {listed(samples)}. "
        f"The batch is in {file}. {advice(known.fence, known.rate)}"
    )


def _write(step: Step, loss: float, facts: Mapping[str, Any], file: Path) -> None:
    """The batch and the residuals, with what is known of the step, so that it can be looked into."""
    tensors = {name: tensor for name, tensor in step.batch.items() if isinstance(tensor, Tensor)}
    tensors |= {f"residual/{name}": one.f for name, one in step.residuals.items()}
    known = {"epoch": step.epoch, "step": step.number, "loss": repr(loss), **facts}
    metadata = {name: one if isinstance(one, str) else json.dumps(one) for name, one in known.items()}
    write_tensors(file, tensors, metadata)


def samples_of(step: Step, names: Sequence[str]) -> list[str]:
    """The step's samples by name or number: those with residuals that are not finite, or else all of them."""
    index = step.batch.get("index")
    rows = len(step.batch["image"])
    numbers = list(range(rows)) if index is None else [int(one) for one in index.tolist()]
    wrong = torch.zeros(rows, dtype=torch.bool)
    for one in step.residuals.values():
        f = one.f.detach().cpu()
        if f.ndim and len(f) == rows:
            wrong |= (f.isnan() | (f == math.inf)).reshape(rows, -1).any(dim=1)  # -inf: nothing is constrained
    chosen = [number for number, bad in zip(numbers, wrong.tolist(), strict=True) if bad or not bool(wrong.any())]
    return _named(chosen, names)


def _terms(step: Step, fence: Method | None) -> list[tuple[str, float]]:
    """What each constraint adds to the loss, the worst first."""
    if fence is None:
        return []
    found = []
    with torch.no_grad():
        for name, residual in step.residuals.items():
            try:
                total = fence._total(name, residual, step.batch.get("index"))
                found.append((name, float(total) * fence.weights.get(name, 1.0) / max(len(residual.f), 1)))
            except (RuntimeError, ValueError, KeyError, IndexError, TypeError):  # a method of the user's own
                continue
    return sorted(found, key=lambda one: (math.isfinite(one[1]), -abs(one[1]) if math.isfinite(one[1]) else 0.0))


def _whose(fence: Method, name: str, names: Sequence[str]) -> str:
    """Whose multiplier of a constraint is the largest, where each sample has its own."""
    if not isinstance(fence, DualMethod):
        return ""
    try:
        table = fence.multipliers[name].abs().nan_to_num(math.inf)
        row = int(table.reshape(len(table), -1).amax(dim=1).argmax())
    except (KeyError, IndexError, RuntimeError, TypeError):  # one λ for all, or a network's
        return ""
    return f" ({_named([row], names)[0]} has the largest)" if len(table) == len(names) else ""


def _named(numbers: Iterable[int], names: Sequence[str]) -> list[str]:
    return [names[one] if 0 <= one < len(names) else f"sample {one}" for one in numbers]
