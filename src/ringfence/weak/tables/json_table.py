"""JSON: a list of objects with the same names as the CSV's header, or an object that holds this list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringfence.hints import shown
from ringfence.weak.tables.problems import Problems
from ringfence.weak.tables.table import Row, Table


def json_table(path: Path, content: Any, key: str) -> Table:
    """The rows of parsed JSON.

    Args:
        path: of the file, for messages.
        content: a list of objects, or an object with one at ``key``.
        key: 'boxes' or 'sizes'.
    """
    some = content.get(key) if isinstance(content, dict) else content
    if not isinstance(some, list):
        found = f"an object with {shown(list(content))}" if isinstance(content, dict) else shown(content)
        raise ValueError(f'{path}: it should hold a list of objects, or {{"{key}": [...]}}; this is {found}')
    problems, rows = Problems(path), list[Row]()
    for index, one in enumerate(some):
        where = f"{key}[{index}]"
        with problems.at(where):
            if not isinstance(one, dict):
                raise ValueError(f"{shown(one)} is not an object with names and values")
            rows.append(Row(where, {name.strip().lower(): value for name, value in one.items()}))
        if problems.enough:
            break
    problems.check()
    return Table(None, rows)
