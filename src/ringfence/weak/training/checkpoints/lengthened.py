"""A training that goes on for more epochs than it was begun for.

From the epoch that it has reached on, what depends on the number of epochs is as in a training of the new length:
the learning rate's schedule, a t that grows to ``final_t``, the temperature. Weights, moments and λ stay.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringfence.methods.dual import DualMethod
from ringfence.weak.training.checkpoints.checkpoint_state import SCHEDULED
from ringfence.weak.training.history import History
from ringfence.weak.training.optimisers import LENGTHS

if TYPE_CHECKING:
    from ringfence.weak.training.module import WeakSegmentation


def length_before(kept: Any, checked: dict[str, Any]) -> int | None:
    """How many epochs a checkpoint was to have; older ones tell by their schedule, None if by nothing.

    Args:
        kept: the checkpoint as it was read.
        checked: what of it was checked.
    """
    said = kept["callbacks"][History.__qualname__].get("length")
    known = [schedule[name] for schedule in checked["lr_schedulers"] for name in LENGTHS if name in schedule]
    found = said if isinstance(said, int) and not isinstance(said, bool) else next(iter(known), None)
    return found if isinstance(found, int) else None


def for_more_epochs(
    checked: dict[str, Any], module: WeakSegmentation, before: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """A checkpoint for a training of the length that ``module``'s trainer has.

    Args:
        checked: as it was written.
        module: whose training goes on.
        before: how many epochs it was to have; None, if nothing says so, and nothing is changed.
        say: told in a line what is different from now on.
    """
    epochs = checked["epoch"] + 1
    if before is None:
        return checked
    made = module.configure_optimizers()
    words = []
    state = dict(checked)
    if isinstance(made, dict):
        optimiser, schedule = made["optimizer"], made["lr_scheduler"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimiser took no steps
            for _ in range(epochs):
                schedule.step()
        groups = copy.deepcopy(checked["optimizer_states"])
        was = groups[0]["param_groups"][0].get("lr")
        for group, own in zip(groups[0]["param_groups"], optimiser.param_groups, strict=True):
            group |= {name: own[name] for name in SCHEDULED if name in own and name in group}
        state |= {"optimizer_states": groups, "lr_schedulers": [schedule.state_dict()]}
        words.append(f"the learning rate was to be {was:.3g} and is {groups[0]['param_groups'][0]['lr']:.3g}")
    if module.fence is not None and not isinstance(module.fence, DualMethod):
        fence = copy.deepcopy(module.fence)
        for _ in range(epochs):
            fence.step()
        own = fence.state_dict(prefix="fence.")
        state["state_dict"] = {**checked["state_dict"], **own}
        words += [f"{name} is {value:.4g}" for name, value in list(fence.summary().items())[:1]]
    said = f"; in epoch {epochs + 1} " + ", ".join(words) if words else ""
    say(f"{before} epochs become {module.trainer.max_epochs}{said}")
    return state
