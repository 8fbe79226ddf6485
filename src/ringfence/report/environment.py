"""Where a number was measured: the versions and hardware that stand beside every result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from ringfence import __version__

_PACKAGES = ("torch", "torchmetrics", "pytorch-lightning", "lightning", "numpy", "matplotlib")


def environment() -> dict[str, str]:
    """Versions of ringfence, Python and what it builds on; processor and GPU."""
    found = {"ringfence": __version__, "python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["cpu"] = f"{platform.machine()}, {os.cpu_count()} cores"
    found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return found
