"""How much memory a network takes for an answer, told without computing it: a card's size may ask for terabytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final
from weakref import finalize

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ringfence import memory

FLOAT: Final = 4
"""Bytes of a number."""


def affordable(network: nn.Module, shape: Sequence[int], batch: int) -> int:
    """How many images of a ``shape`` ``[C, *space]`` the network can take at once: ``batch``, or fewer.

    Raises:
        ValueError: not even one, within the limit of ``memory``; with what it would take.
    """
    limit = memory.limit()
    try:
        one, _ = peak(network, (1, *shape))
    except Exception:  # a user's network, or one that will say so when it is given an image
        one = 2 * math.prod(shape) * FLOAT
    memory.check(one, f"the network's answer about an image of {' × '.join(map(str, shape[1:]))}")
    return max(1, min(batch, limit // one))


def peak(network: nn.Module, shape: Sequence[int]) -> tuple[int, list[int]]:
    """Bytes at the most, of images of a ``shape`` and all that is computed of them; and the answer's shape.

    The network runs on torch's "meta" device, where tensors have shapes and no numbers. What a convolution needs
    while it works is not in it.
    """
    state = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in state.items()}
    with torch.no_grad(), _Counted() as counted:
        images = torch.empty(tuple(shape), device="meta")
        answer = functional_call(network, shapes, (images,))
    if not isinstance(answer, Tensor):
        raise TypeError(f"the network should answer with a tensor, not {type(answer).__name__}")
    return counted.most, list(answer.shape)


class _Counted(TorchDispatchMode):
    """Bytes of the tensors that are alive, after each operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self._take(one.untyped_storage())
        return result

    def _take(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.now += size
            self.most = max(self.most, self.now)
            finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size
