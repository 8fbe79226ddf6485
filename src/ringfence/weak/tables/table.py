"""Text to rows, whatever the format: which format a file is in, and where in it each row stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from ringfence import memory
from ringfence.documents import EXPANDED
from ringfence.files import TEXT, read_bytes

CSV: Final = (".csv", ".tsv", ".txt", "")


class Row(NamedTuple):
    """One box or one bound as it stands in a file.

    Attributes:
        where: for messages: 'line 3', 'boxes[2]'.
        fields: by name, in lower case.
    """

    where: str
    fields: dict[str, Any]


class Table(NamedTuple):
    """What a file holds.

    Attributes:
        header: the names of all rows' fields, and where they stand; None if each row has its own.
        rows: all of them.
    """

    header: Row | None
    rows: list[Row]


def table_text(path: Path, what: str) -> str:
    """A file's text; ``what`` it should hold is for messages."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a file with {what} is needed")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; a file with {what} is needed")
    content = read_bytes(path, TEXT)
    memory.check(EXPANDED * len(content), str(path))
    try:
        text = content.decode("utf-8-sig")  # Excel writes the mark that is dropped here
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line}: byte 0x{content[error.start]:02x} is not UTF-8; it should be a CSV or JSON file "
            "(in Excel: save as 'CSV UTF-8')"
        ) from None
    if not text.strip():
        raise ValueError(f"{path} is empty; it should hold {what}")
    return text


def is_json(path: Path, text: str) -> bool:
    """Whether this is JSON, else CSV: by how it begins, then by its name's ending."""
    if text.lstrip()[:1] in ("{", "[") or path.suffix.lower() == ".json":
        return True
    if path.suffix.lower() in CSV:
        return False
    raise ValueError(f"{path} is not in a known format: it should be a .csv or a .json file")
