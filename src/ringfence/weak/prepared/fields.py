"""Fields of a manifest, each taken for what it must be and for nothing else: "no" is not True, 3.7 not a 3."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ringfence.hints import shown
from ringfence.numbers import is_number
from ringfence.weak.volumes.geometry import LARGEST, SMALLEST

LONGEST: Final = 255
"""Bytes of a file's name, on all file systems in use."""
_SHA256: Final = re.compile("[0-9a-f]{64}")


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Names and values."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is {shown(value)}; names and values are needed")
    return value


def field(facts: Mapping[str, Any], name: str) -> Any:
    """What is there by this name."""
    if name not in facts:
        raise ValueError(f"there is no '{name}'")
    return facts[name]


def items(facts: Mapping[str, Any], name: str) -> list[Any]:
    """A list."""
    value = field(facts, name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}; a list is needed")
    return value


def text(facts: Mapping[str, Any], name: str) -> str:
    """A name."""
    value = field(facts, name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}; a text is needed")
    return value


def texts(facts: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    """Names."""
    values = items(facts, name)
    if not 1 <= len(values) <= most or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{name} are {shown(values)}; 1 to {most} names are needed")
    return tuple(values)


def flag(facts: Mapping[str, Any], name: str) -> bool:
    """True or false."""
    value = field(facts, name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shown(value)}; true or false is needed")
    return value


def lengths(facts: Mapping[str, Any], name: str, most: int) -> tuple[int, int, int]:
    """Voxels along three axes."""
    values = field(facts, name)
    if (
        not isinstance(values, list)
        or len(values) != 3
        or not all(type(one) is int and 1 <= one <= most for one in values)
    ):
        raise ValueError(
            f"{name} is {shown(values)}; slices, height and width are needed, whole numbers between 1 and {most}"
        )
    return values[0], values[1], values[2]


def spacing(facts: Mapping[str, Any], name: str) -> tuple[float, float, float] | None:
    """Millimetres along three axes, or null."""
    values = field(facts, name)
    if values is None:
        return None
    if (
        not isinstance(values, list)
        or len(values) != 3
        or not all(is_number(one) and SMALLEST <= one <= LARGEST for one in values)
    ):
        raise ValueError(f"{name} is {shown(values)}; three lengths above 0 are needed, or null")
    return float(values[0]), float(values[1]), float(values[2])


def extents(facts: Mapping[str, Any], name: str, most: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """First row and one past the last, and the same of columns, of at most so many."""
    values = field(facts, name)
    if (
        not isinstance(values, list)
        or len(values) != 2
        or not all(
            isinstance(one, list) and len(one) == 2 and all(type(end) is int for end in one) for one in values
        )
        or not all(0 <= low < high <= length for (low, high), length in zip(values, most, strict=True))
    ):
        raise ValueError(f"{name} is {shown(values)}; start and stop of rows and of columns are needed")
    (top, bottom), (left, right) = values
    return (top, bottom), (left, right)


def file_name(facts: Mapping[str, Any], name: str) -> str:
    """The name of a file in the same folder, and nowhere else."""
    value = text(facts, name)
    if not value or "/" in value or "\0" in value or value in (".", "..") or len(value.encode("utf-8")) > LONGEST:
        raise ValueError(f"its {name} {shown(value)} should be in the set's own folder: a name without slashes")
    return value


def sha256(facts: Mapping[str, Any], name: str) -> str:
    """A checksum."""
    value = field(facts, name)
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"{name} is {shown(value)}; 64 hexadecimal digits are needed")
    return value
