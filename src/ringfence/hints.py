"""Words for messages: the nearest known name, lists that stay short, and names from other people's files.

Such a name may hold anything: codes that move a terminal's cursor, or a spreadsheet's formula. ``printable`` and
``one_line`` are for terminals, ``spreadsheet`` is for the cells of a CSV file.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterable, Sequence
from typing import Final

MOST: Final = 10
"""Names that are listed of many."""
LONGEST: Final = 60
"""Characters of a value that are shown."""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet would compute instead of showing it."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that ``name`` is most like, if it is like any."""
    near = difflib.get_close_matches(name[:LONGEST], list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def hint(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Such as "did you mean 'strips'?", or what there is if nothing is near."""
    names = list(known)
    near = nearest(name, names, cutoff)
    return f"did you mean '{one_line(near)}'?" if near else f"there is {listed(names)}"


def listed(names: Iterable[str]) -> str:
    """Names with commas, no more than ten of them."""
    names = list(names)
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(one_line, names[:MOST])) + rest


def shown(value: object) -> str:
    """A value as it is quoted in a message: short, and without control characters."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def printable(text: str) -> str:
    r"""Text for a terminal: control characters, and what turns or hides text, as \x1b; lines stay lines."""
    return "".join(one if one == "\n" or one.isprintable() else repr(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """A name for a terminal: as ``printable``, and all of it in one line."""
    return printable(text).replace("\n", "\\n")


def spreadsheet(text: str) -> str:
    """A name as a cell of a CSV file: one that a spreadsheet would take for a formula gets an apostrophe before it.

    (OWASP's advice.) ``from_spreadsheet`` gives the name back, whatever it is.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # names of files need not be UTF-8
    return f"'{text}" if _computed(text) else text


def from_spreadsheet(cell: str) -> str:
    """The name that ``spreadsheet`` made this cell of."""
    return cell[1:] if cell.startswith("'") and _computed(cell) else cell


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file; its cells of text have been through ``spreadsheet``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(header)
    for row in rows:  # a bare \r would end the line for whoever reads it
        (quoting if any("\r" in str(cell) for cell in row) else writer).writerow(row)
    return text.getvalue()


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).strip().splitlines()[0]


def _computed(text: str) -> bool:
    """Apostrophes before it do not count, so that one more can always be told from those that were there."""
    return text.lstrip("'").startswith(FORMULA)
