"""Trees of plain values, as JSON and YAML have them: other types, numbers, names, depths; then the text itself."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

import yaml

from faults.canary import ADDRESSES, CODE, PLACES
from faults.mutations.raw import mutate_bytes

RAW = "@raw:"
"""Begins a string that stands for text which no value has: a number of 400 digits, a thousand brackets."""
TEXTS: tuple[str, ...] = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1e3",
        "NaN",
        "true",
        "null",
        "None",
        "a" * 300,
        "b" * 5000,
        "é",
        "中文",
        "\u202eabc",
        "\ufeff",
    ),
    *(
        "\x00",
        "\x1b[2J\x1b]0;title\x07",
        "a\nb",
        "a\r\nb",
        "\t",
        "=HYPERLINK(1)",
        "%s%n",
        "{}",
        "../x",
        "/",
        ".",
        "..",
        "a/b",
    ),
    *("\ud800", "CON", "-", "--out", "x" * 255, "x\\y", "C:\\x", "~", "$HOME", "*", "\x7f", "\x85", "\u2028"),
    *PLACES,
    *CODE,
    *ADDRESSES,
)
NUMBERS: tuple[Any, ...] = (
    *(
        0,
        -1,
        1,
        2,
        3,
        255,
        256,
        65535,
        65536,
        2**31 - 1,
        2**31,
        2**32,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
        -(2**63) - 1,
    ),
    *(
        10**30,
        0.0,
        -0.0,
        0.5,
        1.5,
        -1.5,
        1e-300,
        5e-324,
        1e30,
        1e308,
        1e38,
        float("nan"),
        float("inf"),
        -float("inf"),
        30000,
        100000,
    ),
    *(
        RAW + "1e999",
        RAW + "-1e999",
        RAW + "9" * 400,
        RAW + "1" + "0" * 5000,
        RAW + "1E400",
        RAW + "0x7f",
        RAW + "0o17",
        RAW + "1_000",
    ),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"a": {}}, [None], {"": ""}, [0] * 300)
DEEP = tuple(
    RAW + opened * depth + closed * depth
    for depth in (66, 1200)
    for opened, closed in (("[", "]"), ('{"a":[', "]}"))
)


def hostile(rng: random.Random, near: Any = None) -> Any:
    """A value to put where another was, now and then one that is almost it."""
    if near is not None and rng.random() < 0.3:
        return copy.deepcopy(_almost(rng, near))
    return copy.deepcopy(rng.choice(DEEP if rng.random() < 0.02 else rng.choice((TEXTS, NUMBERS, NUMBERS, OTHERS))))


def mutate_tree(rng: random.Random, tree: Any, most: int = 2) -> Any:
    """A copy with a few of its values, names or places changed."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, most)):
        places = list(_places(tree))
        if not places:
            return hostile(rng, tree)
        holder, key = rng.choice(places)
        _change(rng, holder, key, places)
    return tree


def to_json(rng: random.Random, tree: Any) -> bytes:
    """Its text; sometimes with a name twice, and sometimes damaged as text."""
    text = _unraw(json.dumps(tree, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5))
    if rng.random() < 0.05 and "{" in text:
        place = rng.choice([at for at, letter in enumerate(text) if letter == "{"][:50])
        end = text.find(",", place)
        if end > 0:
            text = text[: place + 1] + text[place + 1 : end] + "," + text[place + 1 :]
    return _as_text(rng, text)


def to_yaml(rng: random.Random, tree: Any) -> bytes:
    """Its text; sometimes with anchors, tags and other of YAML's specialities, and sometimes damaged as text."""
    try:
        text = _unraw(
            yaml.safe_dump(
                tree, sort_keys=False, allow_unicode=rng.random() < 0.5, default_flow_style=rng.choice((None, True))
            )
        )
    except (yaml.YAMLError, RecursionError):
        text = _unraw(json.dumps(tree))
    if rng.random() < 0.15:
        text = rng.choice(_YAML)(rng, text)
    return _as_text(rng, text)


def mutate_rows(rng: random.Random, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """A table as CSV, with changes in its cells, its lines, its header and its text."""
    table = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    for _ in range(rng.randint(1, 3)):
        row, kind = rng.choice(table), rng.random()
        if kind < 0.6 and row:
            row[rng.randrange(len(row))] = _cell(rng)
        elif kind < 0.7:
            table.append(list(rng.choice(table)))
        elif kind < 0.8 and len(table) > 1:
            table.remove(row)
        elif kind < 0.9 and row:
            del row[rng.randrange(len(row))]
        else:
            row.append(_cell(rng))
    between = rng.choice((",", ",", ",", ";", "\t"))
    text = rng.choice(("\n", "\n", "\r\n")).join(between.join(row) for row in table) + "\n"
    return _as_text(rng, text)


def _cell(rng: random.Random) -> str:
    value = hostile(rng)
    text = value if isinstance(value, str) else json.dumps(value)
    return (
        rng.choice((text.removeprefix(RAW), f'"{text}"', f" {text} ", f'"{text}'))
        if rng.random() < 0.3
        else text.removeprefix(RAW)
    )


def _places(tree: Any) -> Any:
    """Every place of a tree: the list or dictionary that holds it, and its key."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            waiting.append(holder[key])


def _change(rng: random.Random, holder: Any, key: Any, places: list[Any]) -> None:
    kind = rng.random()
    if kind < 0.6:
        holder[key] = hostile(rng, holder[key])
    elif kind < 0.7:
        del holder[key]
    elif kind < 0.8 and isinstance(holder, dict):
        name = rng.choice((rng.choice(TEXTS), key.upper() if isinstance(key, str) else "x", f"{key} "))
        holder[name] = holder.pop(key) if rng.random() < 0.5 else copy.deepcopy(holder[key])
    elif kind < 0.9 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(rng.choice((holder[key], hostile(rng)))))
    else:
        other, name = rng.choice(places)
        try:
            holder[key] = copy.deepcopy(other[name])
        except (KeyError, IndexError):  # changed before
            holder[key] = None


def _almost(rng: random.Random, near: Any) -> Any:
    if isinstance(near, bool) or near is None:
        return rng.choice((not near, int(bool(near)), str(near)))
    if isinstance(near, (int, float)):
        return rng.choice((near + 1, near - 1, -near, float(near), str(near), [near], near * 10**6, near + 0.5))
    if isinstance(near, str):
        at = rng.randrange(len(near) + 1)
        return rng.choice(
            (near[:at], near[at:], near + near, near[:at] + rng.choice(TEXTS) + near[at:], near.upper(), [near])
        )
    if isinstance(near, (list, tuple)):
        return rng.choice((near * 2, near[:-1], near[::-1], {str(k): v for k, v in enumerate(near)}, list(near)))
    return rng.choice((list(near), list(near.values()), str(near))) if isinstance(near, dict) else str(near)[:9]


def _unraw(text: str) -> str:
    """Raw text in the place of the strings that stand for it."""
    while (at := text.find(RAW)) >= 0:
        begin, end = at - (text[at - 1 : at] in ("'", '"')), at + len(RAW)
        quote = text[begin] if begin < at else ""
        stop = end
        while stop < len(text) and (text[stop] != quote if quote else text[stop] not in ",]}\n"):
            stop += 2 if text[stop] == "\\" else 1
        text = text[:begin] + text[end:stop].replace('\\"', '"') + text[stop + len(quote) :]
    return text


def _as_text(rng: random.Random, text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    kind = rng.random()
    if kind < 0.12:
        return mutate_bytes(rng, data)
    if kind < 0.14:
        return rng.choice(
            (b"\xef\xbb\xbf" + data, text.encode("utf-16", "surrogatepass"), data + b"\x00", data * 2, b"")
        )
    return data


def _bomb(rng: random.Random, text: str) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, rng.choice((3, 9)))]
    return "\n".join(lines) + "\n" + text


def _own_alias(rng: random.Random, text: str) -> str:
    return rng.choice(("&a [*a]\n", "a: &a {b: *a}\n", "<<: &a {<<: *a}\n")) + text


def _tag(rng: random.Random, text: str) -> str:
    tags = (
        "!!python/object/apply:os.system ['true']",
        "!!python/name:os.system ''",
        "!!binary aGk=",
        "!!set {a}",
        "!!timestamp 2020-99-99",
        "!x y",
        "!!float x",
        "!!int ''",
        "2001-12-14t21:59:43.10-05:00",
        "190:20:30:15",
    )
    return f"{rng.choice(('x', 'training', 'seeds', 'name'))}: {rng.choice(tags)}\n" + text


def _twice(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    return text + rng.choice(lines) if lines else text


def _documents(rng: random.Random, text: str) -> str:
    return rng.choice(
        (
            f"{text}\n---\n{text}",
            f"%YAML 9.9\n---\n{text}",
            f"---\n...\n{text}",
            f"? {{a: b}}\n: c\n{text}",
            f"? [a]\n: c\n{text}",
            f"1: x\n{text}",
            f"null: x\n{text}",
        )
    )


_YAML = (_bomb, _own_alias, _tag, _tag, _twice, _documents)
