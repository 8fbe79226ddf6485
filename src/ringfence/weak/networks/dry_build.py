"""What a network would have for weights, told without making them: a file's numbers may ask for terabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

SPARE: Final = 1_000
"""Parts that any network may have."""
RATIO: Final = 50
"""Parts (layers, and those that hold layers) for each of its weights; MONAI's networks have at most six."""
SHORT: Final = 10_000
"""Numbers that are really made: some networks read their own, one for each layer."""


def state_of(make: Callable[[], nn.Module], weights: int) -> dict[str, Tensor]:
    """The names, shapes and dtypes of the network's state, as tensors on torch's "meta" device.

    Args:
        make: makes the network.
        weights: how many tensors it should have; far larger ones are given up, or might never be finished.
    """
    with _at_most(SPARE + RATIO * weights), torch.device("meta"), _ShortOnes():
        return dict(make().state_dict())


@contextmanager
def _at_most(most: int) -> Iterator[None]:
    """Stop a network that is made of more parts."""
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > most:
            raise ValueError("it would have far more layers than there are weights")

    handles = [
        register(count)
        for register in (
            hooks.register_module_parameter_registration_hook,
            hooks.register_module_buffer_registration_hook,
            hooks.register_module_module_registration_hook,
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _ShortOnes(TorchFunctionMode):
    """A short ``linspace`` is made for real, inside of a network that is not: SwinUNETR reads its numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        steps = args[2] if len(args) > 2 else kwargs.get("steps")
        if func is torch.linspace:
            if not isinstance(steps, int) or steps > SHORT:
                raise ValueError(f"it would have {steps} layers")
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)
