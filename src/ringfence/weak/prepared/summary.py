"""A few lines about something that was made, as text for a terminal and as a table for a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ringfence.hints import one_line

Rows: TypeAlias = Sequence[tuple[str, str]]
"""A name and what there is to say of it."""


def as_text(title: str, rows: Rows) -> str:
    """The title, and a line for each row; names of cases and classes come from other people's files."""
    return "\n".join([one_line(title), *(f"  {name:<11} {one_line(value)}" for name, value in rows)])


def as_html(title: str, rows: Rows) -> str:
    """The same as a table, everything escaped."""
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption><tbody>{cells}</tbody></table>"


def counted(slices: Iterable[int]) -> str:
    """Such as "3 cases, 60 slices", from the number of slices of each case."""
    numbers = list(slices)
    cases, total = len(numbers), sum(numbers)
    return f"{cases} case{'' if cases == 1 else 's'}, {total} slice{'' if total == 1 else 's'}"
