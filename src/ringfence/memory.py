"""How much memory a single file may ask for: what promises more is refused before it is read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

VARIABLE: Final = "RINGFENCE_MEMORY"
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
FRACTION: Final = 0.5
"""Of the machine's memory: the default."""
_sharers = 1


def parsed(text: str) -> int:
    """Bytes, of "4GB", "500 MB" or "1e9"-like plain numbers."""
    match = _SIZE.fullmatch(text)
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if not 0 < size < 10**18:
        raise ValueError(f"{VARIABLE} (or --memory) is '{text}'; it should be as 4GB or 500MB")
    return size


def divide(processes: int) -> None:
    """Say that this process is one of several that work side by side: the limit is for all of them together."""
    global _sharers
    _sharers = processes


def limit() -> int:
    """Bytes that the content of one file may take: RINGFENCE_MEMORY, or half of what the machine has.

    Of several processes side by side, each has its share.
    """
    text = os.environ.get(VARIABLE)
    return (parsed(text) if text else int(FRACTION * _machine())) // _sharers


def check(needed: int, what: str) -> None:
    """Refuse what would take more than the limit; ``what`` is the file, and begins the message."""
    allowed = limit()
    if needed > allowed:
        raise ValueError(
            f"{what} would take {in_words(needed)} of memory, and the limit is {in_words(allowed)}{_shared()}: if "
            f"it is meant so, allow more, as in {VARIABLE}={_sharers * (-(-needed // 10**9) + 1)}GB"
        )


def _shared() -> str:
    return f" for each of {_sharers} workers" if _sharers > 1 else ""


def in_words(size: int) -> str:
    """Bytes for a reader."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}" if size < 1000 * unit else f"{size // unit:,} {name}"
    return f"{size} bytes"


def _machine() -> int:
    """What the machine has, or what this container may use of it."""
    sizes = []
    try:
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        sizes.append(8 * 10**9)  # a system that does not say
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            sizes.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return min(sizes)
