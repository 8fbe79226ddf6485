"""Seconds before the first step: Lightning without what it imports for others alone, and a GPU woken meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any, Final

from ringfence.extras import require

UNUSED: Final = ("transformers", "torchvision", "torchaudio", "scipy", "nltk", "librosa", "onnxruntime")
"""What torchmetrics imports, where it is installed, for measures of texts, sounds and pictures; four seconds."""


def import_lightning(device: str, what: str) -> None:
    """Import what trains, in a process that does nothing else; a GPU is set up at the same time.

    Args:
        device: of ``training.device``.
        what: needs it, for the message where it is not installed.
    """
    import torch

    if device != "cpu" and "WORLD_SIZE" not in os.environ and "SLURM_PROCID" not in os.environ:
        threading.Thread(target=_wake, args=(torch,), daemon=True).start()
    with _unseen(UNUSED):
        require("pytorch_lightning", what, "train")


def _wake(torch: Any) -> None:
    """The first touch of a GPU takes half a second, in which the other thread can import."""
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")


@contextmanager
def _unseen(packages: tuple[str, ...]) -> Iterator[None]:
    """Have torchmetrics believe that these are not installed, while it is imported; others still find them."""
    try:
        looks: Any = import_module("lightning_utilities.core.imports")
        version, available = looks._version, looks.package_available
    except (ImportError, AttributeError):  # another version of it: slower, then
        yield
        return

    def seen_version(name: str) -> str:
        if name.lower() in packages:
            raise PackageNotFoundError(name)
        return str(version(name))

    def seen(name: str) -> bool:
        return name not in packages and bool(available(name))

    looks._version, looks.package_available = seen_version, seen
    try:
        yield
    finally:
        looks._version, looks.package_available = version, available
