"""Words for messages: the nearest known name, and lists that stay short."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MOST: Final = 10
"""Names that are listed of many."""
LONGEST: Final = 60
"""Characters of a value that are shown."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that ``name`` is most like, if it is like any."""
    near = difflib.get_close_matches(name[:LONGEST], list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def hint(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Such as "did you mean 'strips'?", or what there is if nothing is near."""
    names = list(known)
    near = nearest(name, names, cutoff)
    return f"did you mean '{near}'?" if near else f"there is {listed(names)}"


def listed(names: Iterable[str]) -> str:
    """Names with commas, no more than ten of them."""
    names = list(names)
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + rest


def shown(value: object) -> str:
    """A value as it is quoted in a message: short, and without control characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).strip().splitlines()[0]
