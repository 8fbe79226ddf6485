"""Batch normalisation folded into the convolution before it: the same function, and one pass over memory less."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Leaf = tuple[nn.Module, str, nn.Module]
"""Who holds a layer, by which name, and the layer."""


def folded(network: nn.Module) -> nn.Module:
    """A copy of a network in which w ← γ w / σ and b ← β + γ (b - μ) / σ, wherever that is certain to be the same.

    Certain is a convolution with its batch normalisation right after it in an ``nn.Sequential`` (MONAI's blocks are
    such), both used there alone, and without hooks. All else stays as it is.
    """
    network = copy.deepcopy(network).eval()
    uses = Counter(id(one) for _, one in network.named_modules(remove_duplicate=False))
    for chain in list(_chains(network)):
        for (holder, name, layer), (after, norm_name, norm) in pairwise(chain):
            if _foldable(layer, norm) and uses[id(layer)] == uses[id(norm)] == 1:
                setattr(holder, name, fuse_conv_bn_eval(layer, norm))  # type: ignore[arg-type, type-var]
                setattr(after, norm_name, nn.Identity())
    return network


def _foldable(layer: nn.Module, norm: nn.Module) -> bool:
    hooked = any(one._forward_hooks or one._forward_pre_hooks for one in (layer, norm))
    return (
        type(layer) in CONVOLUTIONS
        and isinstance(norm, _BatchNorm)
        and type(norm).forward is _BatchNorm.forward
        and norm.running_mean is not None
        and not hooked
    )


def _chains(network: nn.Module) -> Iterator[list[Leaf]]:
    """The layers of each outermost Sequential in the order in which they are applied."""
    for one in network.children():
        if _is_chain(one):
            leaves = list(_leaves(one))
            yield leaves
            for _, _, leaf in leaves:
                yield from _chains(leaf)
        else:
            yield from _chains(one)


def _leaves(chain: nn.Module) -> Iterator[Leaf]:
    for name, one in chain.named_children():
        if _is_chain(one):
            yield from _leaves(one)
        else:
            yield chain, name, one


def _is_chain(one: nn.Module) -> bool:
    hooked = one._forward_hooks or one._forward_pre_hooks
    return isinstance(one, nn.Sequential) and type(one).forward is nn.Sequential.forward and not hooked
