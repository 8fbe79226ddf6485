"""Processes that we started: they end with us, and we see to it that they have ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Final

GRACE: Final = 10.0
"""Seconds that processes have to end by themselves, and then again after SIGTERM."""


def end_with_parent() -> None:
    """From now on, do not outlive who started us, however that ends."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_all(processes: Sequence[BaseProcess], grace: float = GRACE) -> None:
    """See to it that all have ended: by themselves, or else by SIGTERM and SIGKILL."""
    begun = [one for one in processes if one.pid is not None]
    for force in (None, "terminate", "kill"):
        left = [one for one in begun if one.is_alive()]
        for one in left:
            if force:
                getattr(one, force)()
        until = time.monotonic() + grace
        for one in left:
            one.join(max(0.0, until - time.monotonic()))


def end_by_signal(number: int, frame: FrameType | None) -> None:
    """For ``signal.signal``: end as by ``sys.exit``, so that what is half done is cleaned up."""
    raise SystemExit(128 + number)


def how_ended(code: int) -> str:
    """What an exit code says, for a reader."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
