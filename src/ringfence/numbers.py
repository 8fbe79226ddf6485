"""Checks of a user's numbers: each returns the number, or raises an error that names it."""

from __future__ import annotations

import math
from numbers import Real
from typing import TypeGuard

from torch import Tensor


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a plain real number, NumPy's included; a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def positive_number(name: str, number: float) -> float:
    """``number`` as a float if it is positive and finite; otherwise an error that names it."""
    number = _untensored(number)
    if not is_number(number):
        raise TypeError(f"{name} must be a number, got {type(number).__name__}")
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {name}={number}")
    return float(number)


def not_negative(name: str, number: float) -> float:
    """``number`` as a float if it is finite and >= 0; otherwise an error that names it."""
    number = _untensored(number)
    if not is_number(number):
        raise TypeError(f"{name} must be a number, got {type(number).__name__}")
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {number}")
    return float(number)


def _untensored(number: float) -> float:
    """A plain number for a tensor of one: what a calculation of t often ends in."""
    given: object = number
    return given.item() if isinstance(given, Tensor) and given.ndim == 0 else number
