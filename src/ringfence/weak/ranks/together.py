"""Work that several processes do together: if one fails, all end, and its cause is said once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from torch.distributed import Store  # type: ignore[attr-defined]

from ringfence.hints import listed
from ringfence.weak.ranks.processes import end_by_signal
from ringfence.weak.ranks.world import POLL, NoMeeting, World, from_all, leave, meet

FAILED: Final = "failed"
"""Under this name the first rank that fails says why."""
SOON: Final = 3.0
"""Seconds in which a rank that lives says so, when another is missed."""
MISTAKES: Final = (ValueError, TypeError, OSError, ModuleNotFoundError, MemoryError)
"""What a user can mend: one line, and no traceback."""
LOST: Final = ("closed by peer", "reset by peer", "Broken pipe", "gloo", "Gloo", "NCCL", "c10d", "recvValue")
"""Words of torch.distributed when it has lost somebody."""


class RankFailed(ValueError):  # noqa: N818 - it did
    """Another rank failed or is gone."""


@dataclass(frozen=True)
class Failure:
    """Why the work ended: which rank, what kind of end, and what it says."""

    rank: int
    kind: str
    text: str

    def packed(self) -> str:
        """As the others read it."""
        return f"{self.rank}\n{self.kind}\n{self.text}"

    @classmethod
    def unpacked(cls, text: str) -> Failure:
        """What ``packed`` made."""
        rank, kind, said = text.split("\n", 2)
        return cls(int(rank), kind, said)

    def in_words(self) -> str:
        """For the user."""
        whose = f"rank {self.rank}: " if self.rank else ""
        return f"{whose}{self.text}" if self.kind == "mistake" else f"{whose}{self.text} (see its traceback)"


@contextmanager
def together(world: World, backend: str = "gloo") -> Iterator[None]:
    """Meet, work, part. The first rank that fails raises its error; the others end with a status and no words.

    Nothing is done for a world of one.
    """
    try:
        store = meet(world, backend=backend)
    except NoMeeting as error:
        if world.launched or not error.spokesman:
            raise SystemExit(2) from None
        raise
    if store is None:
        yield
        return
    with _sigterm(end_by_signal):
        try:
            yield
            from_all(None)  # nobody succeeds alone
        except BaseException as error:
            with _sigterm(signal.SIG_IGN):  # a launcher may be impatient
                raised = _raised(error, world, store)
            if raised is error:
                raise
            raise raised from None
        finally:
            leave()


def failure(store: Store) -> Failure | None:
    """What the first rank that failed says, if any did; nothing if the place where they met is gone."""
    try:
        return Failure.unpacked(store.get(FAILED).decode()) if store.check([FAILED]) else None
    except RuntimeError:
        return None


def _raised(error: BaseException, world: World, store: Store) -> BaseException:
    """What this rank ends with: the error, if it is the one to say it."""
    silent = SystemExit(2)
    if isinstance(error, KeyboardInterrupt):
        _claim(store, Failure(world.rank, "interrupt", ""))
        return error if world.first and not world.launched else SystemExit(130)
    lost = isinstance(error, SystemExit) or any(word in str(error) for word in LOST)
    if not lost or isinstance(error, MISTAKES):
        # an error that all have is rank 0's to say
        heard = None if world.first else _awaited(store, SOON / 3)
        kind = "mistake" if isinstance(error, MISTAKES) or "memory" in str(error) else "fault"
        text = str(error) if kind == "mistake" else f"{type(error).__name__}: {error}"
        mine = heard is None and _claim(store, Failure(world.rank, kind, text or type(error).__name__))
        if kind == "fault":
            return error
        if not mine or world.launched:
            return silent
        return error if world.first else RankFailed(f"rank {world.rank}: {error}")
    if world.launched or _awaited(store, SOON / 3) is not None:
        return silent  # who started us knows who is gone
    gone = _gone(world, store)
    if gone is None or (gone == [] and isinstance(error, SystemExit)):
        return RankFailed("rank 0 is gone, and with it the place where all met") if gone is None else error
    who = f"rank {listed(map(str, gone))} is gone" if gone else f"a rank is gone ({error})"
    text = f"{who}: killed, perhaps for want of memory? What started it may say more"
    return RankFailed(text) if _claim(store, Failure(world.rank, "mistake", text)) else silent


def _claim(store: Store, what: Failure) -> bool:
    """Say why the work ends, unless somebody has; whether this is what counts."""
    try:
        return bool(store.compare_set(FAILED, "", what.packed()).decode() == what.packed())
    except RuntimeError:
        return True  # nobody is there to have said it


def _awaited(store: Store, seconds: float) -> Failure | None:
    until = time.monotonic() + seconds
    while (found := failure(store)) is None and time.monotonic() < until:
        time.sleep(POLL)
    return found


def _gone(world: World, store: Store) -> list[int] | None:
    """Ranks that do not say that they live; None if nobody can say anything any more."""
    until = time.monotonic() + SOON
    try:
        store.set(f"lives {world.rank}", "yes")
        while True:
            gone = [rank for rank in range(world.size) if not store.check([f"lives {rank}"])]
            if not gone or time.monotonic() > until:
                return gone
            time.sleep(POLL)
    except RuntimeError:
        return None


@contextmanager
def _sigterm(handler: Any) -> Iterator[None]:
    """A launcher that misses one rank ends the others by SIGTERM: not before they have said why."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
