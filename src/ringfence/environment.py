"""Where a number was measured: the versions and hardware that stand beside every result."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ringfence import __version__

_PACKAGES = ("torch", "torchmetrics", "pytorch-lightning", "lightning", "monai", "numpy", "matplotlib")


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


def commit() -> str:
    """The commit that ringfence runs from, marked if files were changed since; "unknown" outside of a clone.

    A copy of the tree without its history can say which it is by the variable RINGFENCE_COMMIT.
    """
    told = os.environ.get("RINGFENCE_COMMIT")
    if told:
        return told
    here = str(Path(__file__).resolve().parent)
    try:
        _git(
            here, "ls-files", "--error-unmatch", Path(__file__).name
        )  # ours, not one that ringfence is installed in
        head = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{head} with changes" if changed else head


def _git(folder: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - a fixed list, no shell
        ["git", "-C", folder, *arguments],  # noqa: S607 - whichever git is on the path
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()
