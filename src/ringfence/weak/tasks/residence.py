"""Whether a set is kept in memory or streamed from the disk, and how much memory either takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from ringfence import memory
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.ranks.world import world_of_environment
from ringfence.weak.tasks.judged import judged_cases
from ringfence.weak.tasks.tiles import tile_starts

FRACTION: Final = 0.5
"""Of the memory that is free: a network and its training need some, too."""


def streams(prepared: PreparedSet, asked: str, patch: tuple[int, int, int] | None = None) -> bool:
    """Whether to stream a set: as asked ("always", "never"), or if memory cannot hold it ("auto").

    A system that runs out of memory ends the program without a word: a set that cannot be held is refused, if it is
    not to be streamed.

    Args:
        prepared: the set.
        asked: "auto", "always" or "never".
        patch: where volumes are trained on, the size of a patch.
    """
    if asked == "always":
        return True
    needed, allowed = resident_bytes(prepared, patch), allowance()
    if needed <= allowed:
        return False
    if asked == "never":
        raise ValueError(
            f"{prepared.path} takes {memory.in_words(needed)} of memory, and {memory.in_words(allowed)} can be "
            f"used for it: stream it from the disk (data.streamed: auto), or allow more, as in {memory.VARIABLE}="
            f"{-(-needed // 10**9) + 1}GB"
        )
    return True


def resident_bytes(prepared: PreparedSet, patch: tuple[int, int, int] | None = None) -> int:
    """What all samples take in memory: a byte for each channel and for each class of each pixel.

    Volumes to cut patches from are filled up to the largest, those to judge by are in tiles that overlap.
    """
    planes = len(prepared.channels) + len(prepared.classes)
    cases, judges = prepared.of("train"), judged_cases(prepared)
    if patch is None:
        return planes * math.prod(prepared.size) * sum(case.shape[0] for case in (*cases, *judges))
    spaces = [(case.shape[0], *prepared.size) for case in (*cases, *judges)]
    largest: list[int] = [max(lengths) for lengths in zip(patch, *spaces[: len(cases)], strict=True)]
    tiles: list[int] = [
        math.prod(len(tile_starts(length, size)) * size for length, size in zip(space, patch, strict=True))
        for space in spaces[len(cases) :]
    ]
    return planes * len(cases) * math.prod(largest) + (planes + 1) * sum(tiles)  # and what of a tile is judged


def allowance() -> int:
    """Bytes that a set may take in memory: RINGFENCE_MEMORY's, and no more than half of what is free.

    Where several processes of a machine train together, each has a copy.
    """
    free = available()
    allowed = memory.limit() if free is None else min(memory.limit(), int(FRACTION * free))
    return allowed // world_of_environment().local_size


def available() -> int | None:
    """Bytes of memory that can be had, asked from Linux; not known elsewhere."""
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None
