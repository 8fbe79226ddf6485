"""A setting that is one number for all constraints, or one for each by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class ByName(Generic[T]):
    """v for every constraint, or v_i for constraint i: what ``dual_lr=0.1`` and ``dual_lr={"size": 0.1}`` become.

    Args:
        option: what the setting is called, for messages.
        given: the value, or a mapping from names to values.
        checked: from a description and a value to the value as it is used; raises if it is bad.
    """

    def __init__(self, option: str, given: T | Mapping[str, T], checked: Callable[[str, T], T]) -> None:
        self.option = option
        self._named: dict[str, T] | None = None
        self._one: T | None = None
        if isinstance(given, Mapping):
            if not given:
                raise ValueError(f"{option} is an empty mapping: name at least one constraint, or give one value")
            self._named = {name: checked(f"{option} of '{name}'", value) for name, value in given.items()}
        else:
            self._one = checked(option, given)

    def __getitem__(self, name: str) -> T:
        return self._one if self._named is None else self._named[name]  # type: ignore[return-value]

    @property
    def value(self) -> T | dict[str, T]:
        """The one value, or those by name: as it was given."""
        return self._one if self._named is None else dict(self._named)  # type: ignore[return-value]

    def require_at_most(self, other: ByName[T]) -> None:
        """Raise where this setting is above ``other``."""
        names = [*(self._named or {}), *(other._named or {})] or [""]
        for name in names:
            if (self._named is None or name in self._named) and (other._named is None or name in other._named):
                mine, theirs = self[name], other[name]
                if mine > theirs:  # type: ignore[operator]
                    raise ValueError(f"{self.option}={mine} is above {other.option}={theirs}")

    def check_names(self, names: Iterable[str]) -> None:
        """Raise unless this setting speaks of exactly the constraints ``names``."""
        if self._named is None or set(self._named) == set(names):
            return
        missing, unknown = sorted(set(names) - set(self._named)), sorted(set(self._named) - set(names))
        raise ValueError(
            f"{self.option} "
            + " and ".join(
                [f"lacks {quoted(missing)}"] * bool(missing) + [f"names {quoted(unknown)}"] * bool(unknown)
            )
            + f": the constraints are {quoted(names)}; give each of them a value, or one value for all"
        )

    def __str__(self) -> str:
        if self._named is None:
            return _shown(self._one)
        return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in self._named.items()) + "}"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "__name__", value))


def quoted(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(f"'{name}'" for name in names)
