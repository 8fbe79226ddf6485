"""Checks of a user's numbers: each returns the number, or raises an error that names it. Needs no torch."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final, TypeGuard

LARGEST: Final = 3.4e38
"""That float32 holds."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a plain real number, NumPy's included; a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def positive_number(name: str, number: float) -> float:
    """``number`` as a float if it is positive and finite; otherwise an error that names it."""
    number = _number(name, number)
    if not 0.0 < number <= LARGEST:
        raise ValueError(f"{name} must be positive and finite{_beyond(number)}, got {name}={number}")
    return float(number)


def not_negative(name: str, number: float) -> float:
    """``number`` as a float if it is finite and >= 0; otherwise an error that names it."""
    number = _number(name, number)
    if not 0.0 <= number <= LARGEST:
        raise ValueError(f"{name} must be finite and not negative{_beyond(number)}, got {number}")
    return float(number)


def fraction(name: str, number: float) -> float:
    """``number`` as a float if it is from 0 to below 1; otherwise an error that names it."""
    number = _number(name, number)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"{name} is a fraction from 0 to below 1, got {number}")
    return float(number)


def whole_number(name: str, number: int, least: int = 1) -> int:
    """``number`` if it is a whole number of at least ``least``; otherwise an error that names it."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {number!r}")
    return number


def true_or_false(name: str, value: bool) -> bool:
    """``value`` if it is True or False; otherwise an error that names it: the word "false" would count as true."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {value!r}")
    return value


def _beyond(number: float) -> str:
    return f", and at most {LARGEST:g}" if LARGEST < number < math.inf else ""


def _number(name: str, number: Any) -> float:
    """A plain number, also for a tensor of one: what a calculation of t often ends in."""
    if getattr(number, "ndim", None) == 0 and hasattr(number, "item"):
        number = number.item()
    if not is_number(number):
        raise TypeError(f"{name} must be a number, got {type(number).__name__}")
    return number
