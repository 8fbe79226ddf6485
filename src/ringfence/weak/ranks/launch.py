"""Processes of our own on this machine: started, watched, and ended together."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ringfence.weak.ranks.processes import end_all, end_with_parent, how_ended
from ringfence.weak.ranks.together import SOON, RankFailed, failure, together
from ringfence.weak.ranks.world import World, patience

HERE: Final = "127.0.0.1"


def launch(work: Callable[..., None], size: int, backend: str, *arguments: Any) -> None:
    """Call ``work(world, *arguments)`` in ``size`` new processes on this machine, and wait for them.

    Args:
        work: a function of a module, with arguments that can be pickled.
        size: how many processes.
        backend: of torch.distributed.
        *arguments: for all of them.

    Raises:
        RankFailed: with what the first rank that failed says; or which one is gone, and how. None is left behind.
        KeyboardInterrupt: when all have ended after Ctrl-C.
    """
    place = TCPStore(
        HERE, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=patience())
    )  # here, so that it outlives every rank
    context = multiprocessing.get_context("spawn")  # a fork would inherit threads and a GPU's state
    worlds = [World(rank, size, HERE, place.port, rank, size, hosted=True, launched=True) for rank in range(size)]
    ranks = [context.Process(target=_rank, args=(one, backend, work, arguments)) for one in worlds]
    ended: list[BaseProcess] = []
    interrupted = False
    try:
        for one in ranks:
            one.start()
        ended = _first_failures(ranks)
    except KeyboardInterrupt:  # the terminal told the ranks, too
        interrupted = True
    finally:
        end_all(ranks)
    if interrupted:
        raise KeyboardInterrupt
    if not ended:
        return
    said = failure(PrefixStore("ringfence-0", place))
    if said is not None and said.kind == "interrupt":
        raise KeyboardInterrupt
    raise RankFailed(said.in_words() if said is not None else _how(ranks, ended))


def _first_failures(ranks: Sequence[BaseProcess]) -> list[BaseProcess]:
    """Wait until all ranks have ended, or any has failed: those that have."""
    left = list(ranks)
    while left:
        wait([one.sentinel for one in left])
        codes = [one.exitcode for one in left]  # asked once: they change while we look
        if any(code not in (None, 0) for code in codes):
            until = time.monotonic() + SOON  # who was first may be the last to be gone
            for one in left:
                one.join(max(0.0, until - time.monotonic()))
            return [one for one in left if one.exitcode not in (None, 0)]
        left = [one for one, code in zip(left, codes, strict=True) if code is None]
    return []


def _how(ranks: Sequence[BaseProcess], ended: Sequence[BaseProcess]) -> str:
    """Which ranks are gone without a word."""
    killed = [one for one in ended if (one.exitcode or 0) < 0] or ended
    one = killed[0]
    code = one.exitcode or 0
    if code >= 0:
        return (
            f"rank {ranks.index(one)} {how_ended(code)} before it could say why; in a script, call this "
            'under: if __name__ == "__main__":'
        )
    return (
        f"rank {ranks.index(one)} is gone ({how_ended(code)}; for want of memory, perhaps), "
        "and the others were ended"
    )


def _rank(world: World, backend: str, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    """What each process does."""
    end_with_parent()
    os.environ.update(world.variables())
    torch.set_num_threads(max(1, torch.get_num_threads() // world.local_size))
    with together(world, backend):
        work(world, *arguments)
