"""Constraints by name: every file of this folder that holds one, and classes of a user's own by ``class_path``."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from ringfence import class_path
from ringfence.hints import first_line, hint, listed, one_line
from ringfence.options import inside
from ringfence.weak import constraints
from ringfence.weak.constraints.constraint import Constraint


@cache
def kinds() -> dict[str, type[Constraint]]:
    """Every kind of constraint there is, by name: a new file in this folder is found by itself."""
    found: dict[str, type[Constraint]] = {}
    for module in pkgutil.iter_modules(constraints.__path__, f"{constraints.__name__}."):
        for value in vars(import_module(module.name)).values():
            ours = isinstance(value, type) and issubclass(value, Constraint) and value.__module__ == module.name
            if ours and value.kind:
                found[value.kind] = value
    return found


def make_constraints(asked: Mapping[str, Any]) -> dict[str, Constraint]:
    """Constraints by name, from ``{name: settings}``; None in place of settings leaves one out.

    Settings are those of the kind of that name (``{"strips": {"width": 3}}``), or name a class:
    ``{"mine": {"class_path": "my_module.Mine", "init_args": {"most": 3}}}``. A Constraint is taken as it is.
    """
    made = {name: _made(name, settings) for name, settings in asked.items() if settings is not None}
    if not made:
        raise ValueError(f"constraints: there is none; there are: {listed(kinds())}")
    return made


def settings_of(kind: type[Constraint]) -> dict[str, str]:
    """The names of a kind's settings, each with its help."""
    declared: Any = kind
    if not is_dataclass(declared):
        return dict.fromkeys(inspect.signature(kind).parameters, "")
    # what is not shown is no setting, but what ``ready`` found out
    return {one.name: one.metadata.get("help", "") for one in fields(declared) if one.init and one.repr}


def _made(name: str, settings: Any) -> Constraint:
    where = f"constraints.{one_line(name)}"
    if isinstance(settings, Constraint):
        return settings
    if not isinstance(settings, Mapping):
        raise ValueError(f"{where}: settings are a mapping, such as {{}}; got {settings!r}")
    kind, arguments = _kind(name, dict(settings))
    known = settings_of(kind)
    for argument in arguments:
        if argument not in known and not _takes_any(kind):
            hinted = hint(argument, known) if known else f"{kind.__name__} has none"
            raise ValueError(f"{where}.{one_line(str(argument))}: there is no such setting; {hinted}")
    ours = kinds().get(kind.kind) is kind  # whose messages begin with the setting
    try:
        with inside(f"{where}." if ours else f"{where}: "):
            return kind(**arguments)
    except (ValueError, TypeError):
        raise
    except Exception as error:  # whatever a user's class raises, the answer is in its arguments
        raise ValueError(f"{where}: {kind.__name__} does not take {arguments}: {first_line(error)}") from error


def _kind(name: str, settings: dict[str, Any]) -> tuple[type[Constraint], dict[str, Any]]:
    if "class_path" not in settings:
        if name not in kinds():
            raise ValueError(
                f"constraints: there is no kind '{one_line(name)}'; {hint(name, kinds())} "
                "(a class of your own is named by its class_path)"
            )
        return kinds()[name], settings
    path, arguments = settings.pop("class_path"), settings.pop("init_args", None) or {}
    if settings:
        raise ValueError(
            f"constraints.{name}: beside class_path there is init_args and nothing else, got {settings}"
        )
    kind = kinds().get(path) or class_path.find(str(path), f"constraints.{name}.class_path")
    if not (isinstance(kind, type) and issubclass(kind, Constraint)):
        raise ValueError(f"constraints.{name}.class_path: '{path}' is not a ringfence.weak.Constraint")
    return kind, dict(arguments)


def _takes_any(kind: type[Constraint]) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in inspect.signature(kind).parameters.values())
