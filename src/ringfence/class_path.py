"""Python objects by their path, as in ``my_module.MyClass``: how a user's own code joins from a configuration."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, TypeVar

from ringfence.hints import first_line, nearest

Kind = TypeVar("Kind")


def find(class_path: str, option: str, *, here: bool = True) -> Any:
    """The object at ``class_path`` (module, dot, name). Modules in the current folder are found as well.

    Args:
        class_path: such as ``monai.networks.nets.UNet``.
        option: what it was given for, which every message begins with: ``network.class_path``.
        here: whether the current folder is looked in.

    Raises:
        ValueError: there is no such module, or importing it fails, or it has no such name.
    """
    module_name, _, name = class_path.rpartition(".")
    if not module_name or not name:
        raise ValueError(f"{option}: '{class_path}' needs its module, as in my_module.MyClass")
    try:
        with _current_folder() if here else nullcontext():
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{option}: there is no module '{error.name}' for '{class_path}'") from error
    except Exception as error:  # the user's module: whatever is in it
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(f"{option}: '{module_name}' cannot be imported: {reason}") from error
    if not hasattr(module, name):
        near = nearest(name, (key for key in vars(module) if not key.startswith("_")))
        hinted = f"; did you mean '{near}'?" if near else ""
        raise ValueError(f"{option}: {module_name} has no '{name}'{hinted}")
    return getattr(module, name)


def make(
    class_path: str, init_args: Mapping[str, Any], option: str, kind: type[Kind], *first: Any, here: bool = True
) -> Kind:
    """An instance of the class at ``class_path``, which must be a ``kind``, with these arguments.

    Args:
        class_path: as for ``find``.
        init_args: arguments by name.
        option: the group of settings that both are in, for messages.
        kind: what it must be.
        first: arguments that come before those.
        here: as for ``find``.
    """
    found = find(class_path, f"{option}.class_path", here=here)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise ValueError(f"{option}.class_path: '{class_path}' is not a {kind.__module__}.{kind.__name__}")
    try:
        return found(*first, **init_args)
    except Exception as error:  # whatever the user's class raises, the answer is in its arguments
        known = [one for one in parameters(found) if one not in ("args", "kwargs")][len(first) :]
        raise ValueError(
            f"{option}.init_args: {class_path} does not take {dict(init_args)}: {first_line(error)}\n"
            f"It takes: {', '.join(known)}"
        ) from error


def parameters(kind: Any) -> list[str]:
    """The names of a class's arguments."""
    return list(inspect.signature(kind).parameters) if isinstance(kind, type) else []


def source(class_path: str) -> str | None:
    """The file that ``find`` would import the module from, found without importing anything; None if there is none.

    Python's own ``find_spec`` imports the packages that a module is in.
    """
    places: list[str] | None = [*sys.path, ""]
    name, file = "", None
    for part in class_path.split(".")[:-1]:
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, places) if places else None
        if spec is None:
            return None
        file, places = spec.origin, list(spec.submodule_search_locations or ())
    return file


@contextmanager
def _current_folder() -> Iterator[None]:
    """A script's folder is on Python's path, a command's is not: look there too, after everything else."""
    sys.path.append("")
    try:
        yield
    finally:
        sys.path.reverse()
        sys.path.remove("")  # the one that was added, not one that was there before
        sys.path.reverse()
