"""Fingerprints to make plans from."""

from __future__ import annotations

from ringfence.weak.planning.fingerprint import ClassFacts, Fingerprint


def fingerprint(
    side: float = 20.0,
    size: tuple[int, int] = (64, 64),
    depth: int = 12,
    tight: int = 9,
    visible: float = 0.0,
    fill: float = 0.8,
    deep: float = 1.0,
) -> Fingerprint:
    """Of one class, whose boxes are square; ``depth`` slices of a volume, and ``deep`` of an object."""
    sides = (side, side, side)
    one = ClassFacts("object", 4, 9, 9, 1, sides, sides, 0.1, tight, visible, fill, looked=12, depth=deep)
    return Fingerprint("set", 5, 60, (depth, depth, depth), size, 1, (1.0, 1.0, 1.0), 1.0, (one,), {}, 1, 1)
