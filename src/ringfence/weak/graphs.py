"""CUDA graphs for a small network: one launch a pass instead of hundreds."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def graph_training(network: nn.Module, sample: Tensor, dtype: torch.dtype | None) -> None:
    """Replay the network's forward and backward passes in training from CUDA graphs, for batches like ``sample``.

    Small batches of a small network leave a GPU waiting for launches most of the time. Batches of another shape,
    and evaluation, run as before. The network's weights and statistics are what they were.

    Args:
        network: on the GPU, in training mode.
        sample: a batch of the shape, dtype and memory format to come.
        dtype: what autocast computes in, or None where there is no autocast.
    """
    before = copy.deepcopy(network.state_dict())  # the warm-up runs would move batch statistics
    eager = network.forward
    # autocast's cache would keep casts of the weights from outside of the graph
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
        torch.cuda.make_graphed_callables(network, (sample,))
    replay = network.forward

    def forward(images: Tensor) -> Tensor:
        fits = images.shape == sample.shape and torch.is_grad_enabled()
        result: Tensor = (replay if fits else eager)(images)
        return result

    network.forward = forward  # type: ignore[method-assign]
    network.load_state_dict(before)
