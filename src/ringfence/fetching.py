"""Tensors from a GPU in one copy: each copy of its own waits for the GPU anew."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def fetched(*tensors: Tensor) -> list[Tensor]:
    """The tensors on the CPU, by one copy of all that are on a GPU (on each, if there are several)."""
    brought = {}
    for device in dict.fromkeys(one.device for one in tensors if not one.is_cpu):
        away = [one for one in tensors if one.device == device]
        brought[device] = iter(from_bytes(as_bytes(away).cpu(), away))
    return [one if one.is_cpu else next(brought[one.device]) for one in tensors]


def as_bytes(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of all tensors, one after the other, those of wide dtypes first: so that each is aligned."""
    parts = [tensors[place].detach().reshape(-1).view(torch.uint8) for place in _order(tensors)]
    return torch.cat(parts)


def from_bytes(data: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What ``as_bytes`` made bytes of; only dtypes and shapes of ``like`` are looked at."""
    order = _order(like)
    parts = data.split([like[place].numel() * like[place].element_size() for place in order])
    found = {
        place: part.view(like[place].dtype).view(like[place].shape)
        for place, part in zip(order, parts, strict=True)
    }
    return [found[place] for place in range(len(like))]


def _order(tensors: Sequence[Tensor]) -> list[int]:
    return sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
