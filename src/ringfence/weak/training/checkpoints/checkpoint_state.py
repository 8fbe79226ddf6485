"""Whether the parts of a checkpoint are like those of the training that is to go on with them.

An optimiser's moments reach compiled loops, which take their length from the weights: one of another shape would
end the process. So each is compared with that of an optimiser of the same kind, after a step on the same weights.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ringfence.hints import first_line, shown

LARGEST: Final = 2**53
"""No count is larger."""
LONGEST: Final = 200
"""Characters of a column's name."""
SCHEDULED: Final = ("lr", "initial_lr", "max_lr", "min_lr", "momentum", "base_momentum", "max_momentum", "betas")
"""Settings of an optimiser that torch's schedules change."""


class Wrong(ValueError):  # noqa: N818 - the entry is
    """An entry of a checkpoint that cannot be used, and why."""


def in_range(kept: dict[str, Any], name: str, below: int = LARGEST) -> int:
    """The count of that name."""
    value = kept[name]
    if type(value) is not int or not 0 <= value < below:
        raise Wrong(f"{name} is {shown(value)}")
    return value


def check_alike(value: Any, own: Any, name: str, *, whole: bool = False) -> None:
    """Refuse a value that is not of the kind of our own: the same names, as long a list, a number for a number.

    Args:
        value: of the checkpoint.
        own: of the training, now.
        name: what it is, for messages.
        whole: numbers are counts, from 0 on.
    """
    if isinstance(own, dict):
        if not isinstance(value, dict) or value.keys() != own.keys():
            raise Wrong(f"{name} is {shown(value)}, and should have {shown(list(own))}")
        for key in own:
            check_alike(value[key], own[key], f"{name}.{key}", whole=whole)
    elif isinstance(own, (list, tuple)):
        if type(value) is not type(own) or len(value) != len(own):
            raise Wrong(f"{name} is {shown(value)}, and should be as {shown(own)}")
        for number, (one, other) in enumerate(zip(value, own, strict=True)):
            check_alike(one, other, f"{name}.{number}", whole=whole)
    elif isinstance(own, Tensor):
        if not isinstance(value, Tensor) or value.shape != own.shape or value.dtype != own.dtype:
            raise Wrong(f"{name} is {_described(value)}, and should be {_described(own)}")
    elif isinstance(own, bool) or own is None or isinstance(own, str):
        ours = isinstance(value, bool) if isinstance(own, bool) and whole else value == own
        if not (ours or (own is None and _is_number(value))):
            raise Wrong(f"{name} is {shown(value)}, and should be {shown(own)}")
    elif not _is_number(value) or (whole and (type(value) is not int or not 0 <= value < LARGEST)):
        raise Wrong(f"{name} is {shown(value)}, and should be a number")


def checked_rows(rows: list[Any], count: int) -> list[dict[str, float]]:
    """The epochs' measures: a row for each."""
    if len(rows) != count:
        raise Wrong(f"callbacks: there are {len(rows)} rows, of {count} epochs")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or row.get("epoch") != number:
            raise Wrong(f"callbacks: row {number} is {shown(row)}")
        for name, value in row.items():
            if not isinstance(name, str) or len(name) > LONGEST or not name.isprintable() or not _is_number(value):
                raise Wrong(f"callbacks: row {number} has {shown(value)} as its {shown(name)}")
        if missing := [name for name in ("satisfaction", "seconds_train", "seconds_validation") if name not in row]:
            raise Wrong(f"callbacks: row {number} has no {missing[0]}")
    return rows


def rehearse(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load all but the network's weights into a copy, which may fail as it likes: a fence checks its own memory."""
    parts = dict(module.named_children())
    for name in state:
        if name.partition(".")[0] not in parts:
            raise Wrong(f"state_dict has {shown(name)}, which the training has not")
    for prefix, part in parts.items():
        if prefix == "network":
            continue
        own = {name.partition(".")[2]: one for name, one in state.items() if name.startswith(f"{prefix}.")}
        like = copy.deepcopy(part)
        try:
            like.load_state_dict(own)
        except Exception as error:  # whatever damage leads to
            raise Wrong(f"state_dict: {prefix}: {' '.join(str(error).split()) or type(error).__name__}") from None
        for name, one in like.state_dict().items():
            if name not in own or one.dtype != own[name].dtype or not torch.equal(one, own[name]):
                raise Wrong(
                    f"state_dict: {prefix}.{name} is {_described(own.get(name))}, which it does not go on with"
                )


def checked_optimiser(state: Any, own: Optimizer) -> dict[str, Any]:
    """The optimiser's groups are as ours; its moments have the shapes that they have after a step of ours."""
    wanted = own.state_dict()
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        raise Wrong(f"optimizer_states: it is {shown(state)}")
    check_alike(state.get("param_groups"), wanted["param_groups"], "optimizer_states: param_groups")
    for group, ours in zip(state["param_groups"], wanted["param_groups"], strict=True):
        _check_group(group, ours)
    weights = [weight for group in own.param_groups for weight in group["params"]]
    after = _after_a_step(own)
    if state["state"] and not set(state["state"]) <= set(range(len(weights))):
        raise Wrong(f"optimizer_states: state is of weights {shown(list(state['state']))}")
    if after and not state["state"]:
        raise Wrong("optimizer_states: state is empty")
    compiled = any(name in own.defaults for name in ("fused", "foreach"))
    moments = {
        key: _moments(key, one, after.get(key, {}), weights[key] if compiled else None)
        for key, one in state["state"].items()
    }
    checked = {"state": moments, "param_groups": state["param_groups"]}
    try:
        own.load_state_dict(copy.deepcopy(checked))
    except Exception as error:  # a user's optimiser: whatever it expects
        raise Wrong(f"optimizer_states: {first_line(error)}") from None
    return checked


def _check_group(group: dict[str, Any], own: dict[str, Any]) -> None:
    """Settings are ours, but for those that schedules change."""
    for name, value in group.items():
        if name not in SCHEDULED and value != own[name]:
            raise Wrong(f"optimizer_states: {name} is {shown(value)}, and should be {shown(own[name])}")
        if name == "momentum" and bool(value) != bool(own[name]):
            raise Wrong(f"optimizer_states: {name} is {shown(value)}, and should be as {shown(own[name])}")
        numbers = value if isinstance(value, (tuple, list)) else [value]
        if not all(math.isfinite(one) for one in numbers if isinstance(one, float)):
            raise Wrong(f"optimizer_states: {name} is {shown(value)}")


def _moments(key: int, kept: Any, wanted: dict[str, Any], weight: Tensor | None) -> dict[str, Any]:
    """What an optimiser remembers of one weight, laid out in memory as ours is.

    Args:
        key: the weight's number.
        kept: of the checkpoint.
        wanted: after a step of ours.
        weight: itself, if the optimiser has compiled loops: nothing of another shape may reach them.
    """
    name = f"optimizer_states: state.{key}"
    if not isinstance(kept, dict):
        raise Wrong(f"{name} is {shown(kept)}")
    if missing := [one for one in wanted if one not in kept]:
        raise Wrong(f"{name} has no {missing[0]}")
    found: dict[str, Any] = {}
    for one, value in kept.items():
        ours = wanted.get(one)
        if ours is not None:
            check_alike(value, ours, f"{name}.{one}")
        elif weight is not None and value is not None:
            check_alike(value, weight, f"{name}.{one}")
        if isinstance(value, Tensor):
            value = torch.empty_like(ours).copy_(value) if isinstance(ours, Tensor) else value.clone()
        found[one] = value
    return found


def _after_a_step(own: Optimizer) -> dict[int, Any]:
    """The state of a copy after a step with gradients of 0; {} if it takes none so."""
    with torch.random.fork_rng(devices=[]):
        try:
            like = copy.deepcopy(own)
            for group in like.param_groups:
                for weight in group["params"]:
                    weight.grad = torch.zeros_like(weight)
            like.step(lambda: 0.0)
        except Exception:  # a user's optimiser, which may need more than that
            return {}
    state: dict[int, Any] = like.state_dict()["state"]
    return state


def checked_schedule(state: Any, own: Any, *, goes_on: bool) -> Any:
    """The schedule's numbers, by the same names as ours; if there is an epoch to come, it can take a step."""
    ours = own.state_dict()
    check_alike(state, ours, "lr_schedulers")
    checked = {name: Counter(value) if isinstance(ours[name], Counter) else value for name, value in state.items()}
    try:
        own.load_state_dict(copy.deepcopy(checked))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimiser took no step before
            if goes_on:
                own.step()
    except Exception as error:
        raise Wrong(f"lr_schedulers: {first_line(error)}") from None
    return checked


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _described(value: Any) -> str:
    return f"{list(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else shown(value)
