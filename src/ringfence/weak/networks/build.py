"""Networks by name: MONAI's, or any of the user's own, checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ringfence import class_path
from ringfence.barrier import computing_dtype
from ringfence.hints import first_line


class Tempered(nn.Module):
    """logits_k = network(x)_k / T + log(π_k / π_0): sharper as T falls; at first, class k covers a fraction π_k.

    T: a soft map lets a region be found; a sharp one makes its measured size that of the likeliest class.

    π: a network fresh from its initialisation calls half of the image foreground, and a bound on sizes begins by
    pushing the region down, most where features are strong: on the objects themselves, we suppose. From below the
    bounds, regions grow on the objects. (Without it the barrier found nothing: results/synthetic/ablation/small.)

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
            raise ValueError(f"prior: {classes} × {prior} must be a fraction between 0 and 1")
        self.network = network
        self._prior = ratio = 0.0 if prior is None else math.log(prior / (1.0 - classes * prior))
        # tensors, so that a CUDA graph reads what they are at the time
        self.register_buffer("temperature", torch.tensor(1.0))
        self.register_buffer("offset", torch.tensor([0.0, *[ratio] * classes]))

    def level(self, levels: Sequence[float]) -> None:
        """Add one to the logit of each foreground class, in place of those before: above 0, more of it is found."""
        self.offset.copy_(torch.tensor([0.0, *(self._prior + level for level in levels)]))

    @property
    def levels(self) -> Tensor:
        """What ``level`` added, ``[1 + K]``: who averages answers gives it to the mean (``training/views.py``)."""
        beyond = self.offset.clone()
        beyond[1:] -= self._prior  # on the device: a CUDA graph reads what it is at the time
        return beyond

    def forward(self, images: Tensor) -> Tensor:
        """Logits, in float32 (float64 if that is what the network computes in) and never less."""
        logits: Tensor = self.network(images)
        logits = logits.to(computing_dtype(logits.dtype))
        return logits / self.temperature + self.offset.view(1, -1, *[1] * (logits.ndim - 2))


def build_network(path: str, init_args: Mapping[str, Any], *, here: bool = True) -> nn.Module:
    """An instance of the class at ``path`` (as in ``monai.networks.nets.UNet``), with these arguments.

    Args:
        path: of the class.
        init_args: its arguments.
        here: whether the class may be in the current folder.
    """
    return class_path.make(path, init_args, "network", nn.Module, here=here)


def fitted_arguments(
    path: str, init_args: Mapping[str, Any], channels: int, classes: int, axes: int
) -> dict[str, Any]:
    """``init_args``, completed by what the data say: MONAI's spatial_dims, in_channels and out_channels.

    Args:
        path: of the network's class.
        init_args: what is given; it is never changed.
        channels: of the images.
        classes: of the foreground.
        axes: of space.
    """
    facts = {"spatial_dims": axes, "in_channels": channels, "out_channels": 1 + classes}
    known = class_path.parameters(class_path.find(path, "network.class_path"))
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
            f"network: {name} cannot take images {list(image.shape)}: {first_line(error)}. "
            "Are the images too small for its depth, or its channels not theirs?"
        ) from error
    finally:
        network.train()
    got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != wanted:
        raise ValueError(f"network: {name} must return logits {wanted} for two images, got {got}")
    for key, value in network.state_dict().items():
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            raise ValueError(f"network: {name} keeps '{key}', which is no dense tensor, and could not be saved")
