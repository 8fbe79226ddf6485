"""Optional dependencies: imported when first touched, with the install command where they are missing."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

PACKAGES: Final = {"PIL": "pillow", "yaml": "pyyaml"}
"""Modules that are called otherwise where they come from."""


def require(module: str, what: str, extra: str) -> ModuleType:
    """Import ``module``, which ``what`` needs and ringfence's extra brings."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module is there, something inside it is not: its own message says more
        package = PACKAGES.get(error.name, error.name.replace("_", "-"))
        raise ModuleNotFoundError(
            f"{what} needs {package}: pip install 'ringfence[{extra}]' (from a clone: pip install '.[{extra}]') "
            "brings it",
            name=error.name,
        ) from None


@lru_cache
def installed(package: str) -> bool:
    """Whether a package is there; looked for once."""
    return find_spec(package) is not None
