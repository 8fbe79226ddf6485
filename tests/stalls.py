"""On a GPU: a block in which nobody may wait for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_stalls() -> Iterator[None]:
    """An operation that waits for the GPU is an error in here, and nowhere else, whatever goes wrong."""
    torch.cuda.synchronize()
    try:
        with warnings.catch_warnings():
            # torch says once that it does not find all of them; as an error, that would leave the mode on
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
