"""Memory that is kept for the next image, instead of given back to the system and taken again page by page."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

MOST: Final = 2**31 - 1
"""An int in C."""
SETTINGS: Final = (
    (-4, 0),  # M_MMAP_MAX: no block of its own for a large array
    (-1, MOST),  # M_TRIM_THRESHOLD: what is free at the end of the heap stays
    (-8, 1),  # M_ARENA_MAX: threads share one heap, since others would be given back
)


def keep_memory() -> None:
    """Tell glibc to keep what is freed, for the rest of this process; elsewhere nothing is done.

    A network asks for the same few maps again and again: nearly half of a prediction's time was the system's,
    clearing pages. For a process that is our own; a library does not change its host's.
    """
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in SETTINGS:
            mallopt(parameter, value)
