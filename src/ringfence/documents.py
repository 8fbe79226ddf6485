"""JSON and YAML of unknown origin, as plain values: bounded in length, depth, repetition and numbers.

A document of a few lines can stand for gigabytes (YAML's aliases), exhaust Python's stack (lists within lists) or
hold numbers that no float can. Such a one is refused with the reason, before anything is made of it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, Final

from ringfence import memory
from ringfence.files import TEXT, read_text
from ringfence.hints import shown

DEPTH: Final = 64
"""Levels of lists and names; settings have five, COCO has three."""
NODES: Final = 100_000
"""Values of a YAML document, aliases counted as often as they are used."""
YAML_TEXT: Final = 1_000_000
"""Characters of a YAML document: PyYAML reads a few hundred thousand a second."""
EXPANDED: Final = 40
"""Times a text's length: what lists of nothing, the worst there is, take in memory."""
LARGEST: Final = 2**63
"""Whole numbers are below it, above its negative."""
LONGEST: Final = 100
NUMERALS: Final = frozenset("0123456789abcdefABCDEFxob_:+-.")
"""No number has more characters than that, of those."""


def read_json(path: Path, most: int = TEXT) -> Any:
    """What a JSON file says."""
    text = read_text(path, most)
    memory.check(EXPANDED * len(text), str(path))
    return parse_json(text, str(path))


def parse_json(text: str, name: str) -> Any:
    """What the text says; a message about it begins with ``name``.

    Names that come twice, NaN, infinities, whole numbers beyond 64 bits and more than 64 levels are refused.
    """
    try:
        value = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_named,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name}: line {error.lineno}, column {error.colno}: this is not JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError(_too_deep(name)) from None
    except _Refused as error:
        raise ValueError(f"{name} cannot be used: {error}") from None
    check_values(value, name)
    return value


def read_yaml(path: Path) -> Any:
    """What a YAML file says."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, name: str) -> Any:
    """What the text says; a message about it begins with ``name``."""
    import yaml

    check_yaml(text, name)
    try:
        value = yaml.safe_load(text)
    except Exception as error:  # PyYAML's own, and what its constructors stumble over: dates that are none, "0x"
        raise ValueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    check_values(value, name)
    return value


def check_yaml(text: str, name: str) -> None:
    """Refuse a YAML text that is too long, too deep, too repetitive, or holds numbers beyond 64 bits.

    It is read as a sequence of events: nothing is built of it yet.
    """
    import yaml

    if len(text) > YAML_TEXT:
        raise ValueError(f"{name} has {len(text):,} characters, and settings at most {YAML_TEXT:,}")
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, count))
                if len(opened) > DEPTH:
                    raise ValueError(_too_deep(name))
            if isinstance(event, yaml.AliasEvent):
                if any(anchor == event.anchor for anchor, _ in opened):
                    raise ValueError(f"{name}: the alias *{event.anchor} is inside of what it stands for")
                count += sizes.get(event.anchor or "", 0)
            if isinstance(event, yaml.NodeEvent):
                count += 1
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor is not None:
                    sizes[event.anchor] = 1
                _check_scalar(event.value, name)
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, before = opened.pop()
                if anchor is not None:
                    sizes[anchor] = count - before
            if count > NODES:
                raise ValueError(f"{name} stands for more than {NODES:,} values: is it a file of settings?")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None


def check_values(value: Any, name: str) -> None:
    """Refuse values more than 64 levels deep, numbers that a float or 64 bits cannot hold, and broken text."""
    level = [value]
    for _ in range(DEPTH + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (dict, list)):
                inner += [*one, *one.values()] if isinstance(one, dict) else one
            elif isinstance(one, (int, float)) and not abs(one) < LARGEST * (
                1.0 if isinstance(one, int) else 1e290
            ):
                raise ValueError(f"{name} cannot be used: {shown(one)} is no number that can be used")
            elif isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one):
                raise ValueError(f"{name} cannot be used: {shown(one)} holds half a character (a lone surrogate)")
        if not inner:
            return
        level = inner
    raise ValueError(_too_deep(name))


def _usable(number: float) -> bool:
    return abs(number) < LARGEST if isinstance(number, int) else math.isfinite(number)


class _Refused(ValueError):  # noqa: N818
    """What the JSON parser's hooks refuse; a JSONDecodeError is a ValueError as well."""


def _named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise _Refused(f"{shown(name)} is there twice")
    return found


def _no_number(text: str) -> float:
    raise _Refused(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"the number {shown(text)} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= LARGEST:
        raise _Refused(f"the number {shown(text)} is too large")
    return int(text)


def _check_scalar(text: str, name: str) -> None:
    """YAML 1.1 counts in sixties, too ("1:30:00"), and takes its time over a long one."""
    if len(text) > LONGEST and text.lstrip("+-.")[:1].isdigit() and set(text) <= NUMERALS:
        raise ValueError(f"{name} cannot be used: the number {shown(text)} is too large")


def _too_deep(name: str) -> str:
    return f"{name} cannot be used: lists or names within each other, more than {DEPTH} levels deep"
