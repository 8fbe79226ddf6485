"""Optional dependencies: imported when first touched, with the exact install command where they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, what: str, extra: str) -> ModuleType:
    """Import ``module``, which ``what`` needs and ``pip install 'ringfence[extra]'`` brings."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module is there, something inside it is not: its own message says more
        raise ModuleNotFoundError(
            f"{what} needs {error.name}: pip install 'ringfence[{extra}]'", name=error.name
        ) from None
