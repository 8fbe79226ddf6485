"""Files and words of settings, looked at before jsonargparse gets them: it follows YAML wherever that leads.

A few lines of aliases can stand for gigabytes, a string may hold YAML of its own, and of a key that comes twice the
second would win without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ringfence.documents import DEPTH, check_values, check_yaml
from ringfence.files import read_text
from ringfence.hints import first_line, shown

LONGEST: Final = 100_000
"""Characters of a file of settings: all that can be set has four thousand."""
MOST: Final = 5_000
"""Values in it."""
PLAIN: Final = (str, int, float, bool, type(None))
_WORD: Final = re.compile(r"[\w./+-]{0,300}")
"""Names, numbers and paths: YAML makes nothing else of them."""


def config_files(arguments: Sequence[str]) -> list[Path]:
    """The files of every --config."""
    files = [argument.partition("=")[2] for argument in arguments if argument.startswith("--config=")]
    files += [after for before, after in pairwise(arguments) if before == "--config"]
    return [Path(file) for file in files]


def read_config(file: Path) -> Any:
    """What a file of settings says: plain values, by names that are texts, each once."""
    try:
        text = read_text(file, 4 * LONGEST)
    except FileNotFoundError:
        raise FileNotFoundError(f"--config {file}: No such file or directory") from None
    except (OSError, ValueError) as error:
        raise type(error)(f"--config {first_line(error)}") from None
    return parse_config(text, f"--config {file}")


@lru_cache(maxsize=32)  # a command looks at its file more than once
def parse_config(text: str, name: str) -> Any:
    """What a text of settings says; a message about it begins with ``name``."""
    import yaml
    from jsonargparse import get_loader

    _check_text(text, name)
    check_yaml(text, name)
    try:
        _check_nodes(yaml.compose(text, Loader=yaml.SafeLoader))
        value = get_loader("yaml")(text)  # as it will be read: 1e-3 is a number, and 2024-01-01 a text
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    except Exception as error:  # what PyYAML's constructors stumble over
        raise ValueError(f"{name} cannot be used: {' '.join(str(error).split())}") from None
    check_values(value, name)
    for one in _inner(value):
        if not isinstance(one, (dict, list, *PLAIN)):
            raise ValueError(f"{name} cannot be used: {shown(one)} is no plain text, number, list or name")
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    raise ValueError(f"{name} cannot be used: the name {shown(key)} is no text; put it in quotes")
        if isinstance(one, str) and one != text:
            check_word(one, name)
    return value


def check_word(text: str, name: str) -> None:
    """Refuse a string that jsonargparse would make too much of: it may be YAML. What is none is left alone."""
    import yaml

    if _WORD.fullmatch(text):
        return
    _check_text(text, name)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH:
                break  # refused below, be the rest YAML or not
    except (yaml.YAMLError, ValueError):
        return
    parse_config(text, name)


def _check_text(text: str, name: str) -> None:
    if len(text) > LONGEST:
        raise ValueError(
            f"{name} cannot be used: it has {len(text):,} characters, and settings at most {LONGEST:,}"
        )
    if "\0" in text:
        raise ValueError(f"{name} cannot be used: {shown(text)} holds a null character")


def _check_nodes(node: Any) -> None:
    """Refuse a name that comes twice, though ``<<`` may; and more values than anybody sets."""
    import yaml

    seen: set[int] = set()
    todo = [node]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MOST:
            raise ValueError(f"it has more than {MOST:,} values: is it a file of settings?")
        if isinstance(one, yaml.SequenceNode):
            todo += one.value
        elif isinstance(one, yaml.MappingNode):
            keys = [key.value for key, _ in one.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            if twice := [key for number, key in enumerate(keys) if key in keys[:number]]:
                line = one.start_mark.line + 1
                raise ValueError(f"{shown(twice[0])} is there twice, in what begins in line {line}")
            todo += [inner for pair in one.value for inner in pair]


def _inner(value: Any) -> Iterator[Any]:
    """Everything in a value that is not too deep; aliases share what they stand for, and it is looked at once."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        yield one
        if isinstance(one, (dict, list)) and id(one) not in seen:
            seen.add(id(one))
            todo += one.values() if isinstance(one, dict) else one
