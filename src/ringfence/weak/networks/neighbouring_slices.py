"""Neighbours: slices are found one by one, and an object goes on from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


def with_neighbours(probabilities: Tensor, case: Tensor, share: float) -> Tensor:
    """p̄_i = (1 - 2w) p_i + w p_{i-1} + w p_{i+1}, in each slice i between the first and the last: ``[S - 2, ...]``.

    Where the slice before or after is of another case, slice i stands in for it.

    Args:
        probabilities: of slices in their order, ``[S, 1 + K, *space]``.
        case: which case each is of, ``[S]``; a slice that is there twice stands in for itself.
        share: w, from 0 to 1/3.
    """
    own, before, after = probabilities[1:-1], probabilities[:-2], probabilities[2:]
    shape = (-1, *[1] * (probabilities.ndim - 1))
    before = torch.where((case[1:-1] == case[:-2]).view(shape), before, own)
    after = torch.where((case[1:-1] == case[2:]).view(shape), after, own)
    return (1.0 - 2.0 * share) * own + share * before + share * after


def neighbours_averaged(answers: Iterable[Tensor], share: float) -> Iterator[Tensor]:
    """The same of a whole case that comes in parts: some slices ``[S, 1 + K, *space]`` at a time, in their order.

    As many slices come out as went in; no more than a part is waited for.

    Args:
        answers: probabilities of some slices each.
        share: w.
    """
    waiting: Tensor | None = None  # the last slice handed out, and those whose next one has not come
    for part in answers:
        if not len(part):
            continue
        waiting = torch.cat([part[:1], part]) if waiting is None else torch.cat([waiting, part])
        if len(waiting) > 2:
            yield _of_one_case(waiting, share)
            waiting = waiting[-2:]
    if waiting is not None:
        yield _of_one_case(torch.cat([waiting, waiting[-1:]]), share)


def _of_one_case(slices: Tensor, share: float) -> Tensor:
    return with_neighbours(slices, torch.zeros(len(slices), device=slices.device), share)
