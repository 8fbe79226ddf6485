"""Settings as dataclasses: every field is an option of the command line and a key of a YAML file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any


def option(default: Any, text: str, **marks: Any) -> Any:
    """A dataclass field with its default and its help.

    Args:
        default: the value; a list or a dict is copied for every instance.
        text: the help.
        marks: further metadata for whoever builds a command line from the fields.
    """
    metadata = {"help": text} | marks
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@contextmanager
def inside(group: str) -> Iterator[None]:
    """Errors of the block begin with the group that the setting at fault is in: "training.lr must be ..."."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{group}{error}") from None
    except TypeError as error:
        raise TypeError(f"{group}{error}") from None
