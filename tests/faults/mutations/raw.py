"""Bytes: flipped, cut, inserted, doubled, spliced."""

from __future__ import annotations

import random
from collections.abc import Sequence

ODD = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
"""Numbers on the edges of what 1, 2, 4 and 8 bytes hold."""


def mutate_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = (), most: int = 3) -> bytes:
    """A few small changes; or, now and then, the beginning of one file and the end of another."""
    if others and rng.random() < 0.1:
        other = rng.choice(others)
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    changed = bytearray(data)
    for _ in range(rng.randint(1, most)):
        rng.choice(_CHANGES)(rng, changed)
    return bytes(changed)


def _place(rng: random.Random, data: bytearray) -> int:
    """Anywhere, but beginnings and ends are where the structure is."""
    kind = rng.random()
    if kind < 0.3:
        return rng.randrange(min(len(data), 400) or 1)
    if kind < 0.45:
        return max(0, len(data) - 1 - rng.randrange(120))
    return rng.randrange(len(data) or 1)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    if data:
        data[_place(rng, data)] = rng.randrange(256)


def _number(rng: random.Random, data: bytearray) -> None:
    size, at = rng.choice((1, 2, 4, 8)), _place(rng, data)
    order = rng.choice(("little", "big"))
    data[at : at + size] = (rng.choice(ODD) % 2 ** (8 * size)).to_bytes(size, order)


def _cut(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice((1, 2, 4, 8, 64, len(data)))]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 4, 16)))) * rng.choice((1, 1, 1, 64))


def _double(rng: random.Random, data: bytearray) -> None:
    at, to = _place(rng, data), _place(rng, data)
    data[to:to] = data[at : at + rng.choice((1, 4, 16, 128))]


def _swap(rng: random.Random, data: bytearray) -> None:
    size, one, other = rng.choice((1, 4, 16)), _place(rng, data), _place(rng, data)
    if one + size <= other and other + size <= len(data):
        data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


_CHANGES = (_flip, _flip, _set, _number, _cut, _insert, _double, _swap)
