"""Settings as dataclasses: every field is an option of the command line and a key of a YAML file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


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


def check_words(settings: object) -> None:
    """Raise unless every field that is one of some words is one of them; a number that a word is made of will do.

    Args:
        settings: a dataclass; the command line checks by itself, and Python does not.
    """
    kind: Any = type(settings)  # mypy does not take a class for hashable
    for name, words in _words(kind).items():
        given = getattr(settings, name)
        if given not in words and str(given) in words:  # such as 32
            object.__setattr__(settings, name, str(given))
        elif given not in words:
            raise ValueError(f"{name} is one of {', '.join(words)}; got {given!r}")


def words_of(hint: Any) -> tuple[str, ...]:
    """The words that a field of this type may be; none of any other type."""
    return get_args(hint) if get_origin(hint) is Literal else ()


@cache
def _words(kind: type) -> dict[str, tuple[str, ...]]:
    try:
        hints = get_type_hints(kind)
    except NameError:  # of somebody's own class, whose annotations are for a type checker alone
        return {}
    return {name: words_of(one) for name, one in hints.items() if words_of(one)}
