"""Seconds before the first step: imports without what others need alone, and a GPU that is woken meanwhile."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any, Final

from ringfence.cli.later import imported_later
from ringfence.cli.without_compiler import without_compiler
from ringfence.extras import require
from ringfence.garbage import not_collected

UNUSED: Final = (
    "transformers",
    "torchvision",
    "torchaudio",
    "scipy",
    "nltk",
    "librosa",
    "onnxruntime",
    "matplotlib",
)
"""What torchmetrics imports, where it is installed, for measures of texts, sounds and pictures; four seconds."""
LIGHTNING: Final = ("pytorch_lightning", "lightning_fabric", "lightning_utilities", "torchmetrics")
BY_MONAI: Final = {
    "scipy.signal": ("hilbert", "iirnotch"),
    "scipy.optimize": ("linear_sum_assignment",),
    "scipy.spatial": ("KDTree",),
    "matplotlib": (),
    "matplotlib.pyplot": (),
    "torch.utils.tensorboard": ("SummaryWriter",),
}
"""What MONAI imports for ultrasound, panoptic scores, notebooks and logs, where it is there: most of its time."""
WHOLE: Final = ("torchvision", "transformers", "sklearn", "torchaudio")
"""Of these, MONAI takes networks, scores and filters, and calls them if somebody wants them.

With torchvision comes torch's compiler."""


@contextmanager
def quick_start(device: str, what: str, *, compiles: bool = False) -> Iterator[None]:
    """Import what trains, in a process that does nothing else; a GPU is set up at the same time.

    What is imported inside of the ``with`` is imported without pauses of the garbage collector. At its end the GPU
    is awake: nobody else may touch it while a CUDA graph is recorded.

    Args:
        device: of ``training.device``.
        what: needs it, for the message where it is not installed.
        compiles: whether ``torch.compile`` will be used.
    """
    alone = "WORLD_SIZE" not in os.environ and "SLURM_PROCID" not in os.environ
    waking = threading.Thread(target=_wake, daemon=True) if device != "cpu" and alone else None
    with not_collected():  # imports make a million objects that stay: looking at them takes a tenth of the time
        if waking:
            waking.start()
        import_lightning(what, compiles=compiles)
        import_monai(what)
        yield
    if not gc.get_freeze_count():  # it stays, so that the collector need not look at it; what came later may go
        gc.freeze()
    if waking:
        waking.join()


def import_lightning(what: str, *, compiles: bool = False) -> None:
    """Import Lightning and the fence's callback, without what a training does not need; slowly where that fails.

    Args:
        what: needs it, for the message where it is not installed.
        compiles: whether ``torch.compile`` will be used.
    """
    with _unseen(UNUSED):
        _import("pytorch_lightning", what, without_compiler(compiles), LIGHTNING)
    with _one_lightning():
        import_module("ringfence.lightning")


def import_monai(what: str) -> None:
    """The same for MONAI, whose package imports all that is in it."""
    _import("monai", what, imported_later(BY_MONAI, WHOLE), ("monai",))


def _import(module: str, what: str, less: AbstractContextManager[None], family: Sequence[str]) -> None:
    """Import a module with less than it asks for; with all of it where that fails, once its family is forgotten."""
    before = set(sys.modules)
    try:
        with less:
            require(module, what, "train")
    except Exception:  # a version that needs more, at once; or it is not there, which is said below
        for name in set(sys.modules) - before:
            if name.split(".")[0] in family:
                del sys.modules[name]
        require(module, what, "train")


def _wake() -> None:
    """The first touch of a GPU, and cuDNN's and cuBLAS's libraries, take seconds in which others can import.

    The driver is called without Python's lock, and before torch is there; so are torch's own calls. Nothing here
    draws a random number.
    """
    with suppress(OSError, AttributeError):  # no driver
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    with suppress(Exception):  # what is wrong with the GPU, the training says
        torch: Any = import_module("torch")
        if torch.cuda.is_available():
            last = {"device": "cuda", "dtype": torch.bfloat16}
            image = torch.zeros(2, 16, 32, 32, **last).contiguous(memory_format=torch.channels_last)
            weight = torch.zeros(16, 16, 3, 3, requires_grad=True, **last)
            torch.nn.functional.conv2d(image, weight, padding=1).sum().backward()
            torch.mm(weight[0, 0].detach(), weight[0, 0].detach())
            torch.cuda.synchronize()


@contextmanager
def _one_lightning() -> Iterator[None]:
    """Lightning is there twice where ``lightning`` is installed too; our commands' callbacks meet the one alone."""
    if "lightning" in sys.modules:
        yield
        return
    sys.modules["lightning"] = None  # type: ignore[assignment]  # how Python marks what must not be imported
    try:
        yield
    finally:
        del sys.modules["lightning"]


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
