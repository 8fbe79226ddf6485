"""Networks by name: MONAI's, or any of the user's own, checked before anything is trained."""

from __future__ import annotations

import difflib
import inspect
import math
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator


class Tempered(nn.Module):
    """logits_k = network(x)_k / T + log(π_k / π_0): sharper as T falls; at first, class k covers about a share π_k.

    T: a soft map lets a region be found; a sharp one makes its measured size that of the likeliest class.

    π: a network fresh from its initialisation calls half of the image foreground, and every size limit begins by
    pushing the region down, most where features are strong: on the objects themselves, we suppose. From below the
    limits, regions grow on the objects. (Without it the barrier found nothing: results/synthetic/ablation-small.)

    Args:
        network: from images ``[batch, channels, *space]`` to logits ``[batch, 1 + classes, *space]``.
        classes: how many foreground classes.
        prior: π_k of each of them, above 0 and together below 1; None leaves out the second term.
    """

    temperature: Tensor
    offset: Tensor

    def __init__(self, network: nn.Module, classes: int = 1, prior: float | None = None) -> None:
        super().__init__()
        if prior is not None and not 0.0 < classes * prior < 1.0:
            raise ValueError(f"prior: {classes} × {prior} must be a share between 0 and 1")
        self.network = network
        ratio = 0.0 if prior is None else math.log(prior / (1.0 - classes * prior))
        # tensors, so that a CUDA graph reads what they are at the time
        self.register_buffer("temperature", torch.tensor(1.0))
        self.register_buffer("offset", torch.tensor([0.0, *[ratio] * classes]))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, in float32 whatever the network computes in."""
        logits: Tensor = self.network(images).float()
        return logits / self.temperature + self.offset.view(1, -1, *[1] * (logits.ndim - 2))


def build_network(class_path: str, init_args: Mapping[str, Any]) -> nn.Module:
    """An instance of the class at ``class_path`` (as in ``monai.networks.nets.UNet``), with these arguments.

    Modules in the current folder are found as well.
    """
    kind = _find(class_path)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"network.class_path: '{class_path}' is not a torch.nn.Module")
    try:
        network = kind(**init_args)
    except Exception as error:  # whatever the user's class raises, the answer is in its arguments
        known = [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "kwargs")]
        raise ValueError(
            f"network.init_args: {class_path} does not take {dict(init_args)}: {_first_line(error)}\n"
            f"It takes: {', '.join(known)}"
        ) from error
    return network


def fitted_arguments(
    class_path: str, init_args: Mapping[str, Any], channels: int, classes: int, axes: int
) -> dict[str, Any]:
    """``init_args``, completed by what the data say: MONAI's spatial_dims, in_channels and out_channels.

    Args:
        class_path: of the network.
        init_args: what is given; it is never changed.
        channels: of the images.
        classes: of the foreground.
        axes: of space.
    """
    facts = {"spatial_dims": axes, "in_channels": channels, "out_channels": 1 + classes}
    kind = _find(class_path)
    known = inspect.signature(kind).parameters if isinstance(kind, type) else {}
    return {name: value for name, value in facts.items() if name in known} | dict(init_args)


def check_network(network: nn.Module, image: Tensor, channels: int) -> None:
    """Refuse a network that does not turn images like ``image`` ``[C, *space]`` into ``channels`` logits each."""
    name, wanted = type(network).__name__, [2, channels, *image.shape[1:]]
    network.eval()
    try:
        with torch.no_grad():
            logits = network(torch.stack([image, image]))
    except Exception as error:  # as above
        raise ValueError(
            f"network: {name} cannot take images {list(image.shape)}: {_first_line(error)}. "
            "Are the images too small for its depth, or its channels not theirs?"
        ) from error
    finally:
        network.train()
    got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != wanted:
        raise ValueError(f"network: {name} must return logits {wanted} for two images, got {got}")


def _find(class_path: str) -> Any:
    module_name, _, name = class_path.rpartition(".")
    if not module_name:
        raise ValueError(f"network.class_path: '{class_path}' needs its module, as in monai.networks.nets.UNet")
    try:
        with _current_folder():
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"network.class_path: there is no module '{error.name}' for '{class_path}'") from error
    except Exception as error:  # the user's module: whatever is in it
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise ValueError(f"network.class_path: '{module_name}' cannot be imported: {reason}") from error
    if not hasattr(module, name):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        near = difflib.get_close_matches(name, classes, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"network.class_path: {module_name} has no '{name}'{hint}")
    return getattr(module, name)


@contextmanager
def _current_folder() -> Iterator[None]:
    """A script's folder is on Python's path, a command's is not: look there too, after everything else."""
    sys.path.append("")
    try:
        yield
    finally:
        sys.path.remove("")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
