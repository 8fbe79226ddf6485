"""Where a network has a batch norm followed by a ReLU, the fused module takes their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from ringfence.weak.networks.fast.batch_norm import NormWithReLU, fits
from ringfence.weak.networks.fast.convolutions import compute_here, without_bias
from ringfence.weak.networks.fast.maps import Halving

_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout2d, nn.Dropout3d)


def faster(network: nn.Module) -> int:
    """Change in place how ``network`` is computed; its weights, their names and its answers stay.

    In every nn.Sequential (MONAI's blocks are such), a batch norm and the ReLU after it become one module, and the
    convolution before them leaves out its bias, which batch norm takes away again: its gradient is 0, and it is not
    trained any more; 3 × 3 convolutions of large maps with few channels train by kernels of their own. A 1 × 1
    convolution to a few channels, such as the last, reads its map once each way, and a halving by maxima keeps no
    indices. MONAI's UpCat doubles and joins maps in one pass; its BasicUNet adds the gradients of a map's two uses
    where it is halved, and rounds its weights for autocast at once.

    Returns:
        How many batch norms were found.
    """
    uses = Counter(id(one) for parent in network.modules() for one in parent.children())
    found = 0
    for chain in list(_chains(network)):
        for place in range(len(chain)):
            parent, name, norm = chain[place]
            after = [spot for spot in range(place + 1, len(chain)) if not _is_nothing(chain[spot][2])][:1]
            if not fits(norm) or not after or type(chain[after[0]][2]) is not nn.ReLU or uses[id(norm)] > 1:
                continue
            relu_parent, relu_name, relu = chain[after[0]]
            if uses[id(relu)] > 1:
                continue
            before = chain[place - 1][2] if place else None
            bias = without_bias(before) if isinstance(before, nn.Module) and uses[id(before)] == 1 else None
            assert isinstance(norm, (nn.BatchNorm2d, nn.BatchNorm3d))  # noqa: S101 - see fits
            setattr(parent, name, NormWithReLU(norm, bias))
            setattr(relu_parent, relu_name, nn.Identity())
            found += 1
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.MaxPool2d and _halves(child):
                setattr(module, name, Halving())
    from ringfence.weak.networks.fast.unet import compute_directly  # MONAI takes its time

    for module in network.modules():
        compute_here(module)
        compute_directly(module)
    return found


def _chains(network: nn.Module) -> Iterator[list[tuple[nn.Module, str, nn.Module]]]:
    """The leaves of every outermost nn.Sequential, in the order in which they are applied, with their parents."""
    for module in [network, *network.children()]:
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            yield list(_leaves(module))
        elif module is not network:
            yield from _chains(module)


def _leaves(chain: nn.Sequential) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for name, child in chain.named_children():
        if isinstance(child, nn.Sequential) and type(child).forward is nn.Sequential.forward:
            yield from _leaves(child)
        else:
            yield chain, name, child


def _is_nothing(module: nn.Module) -> bool:
    return isinstance(module, _NOTHING) and getattr(module, "p", 0.0) == 0.0


def _halves(pooling: nn.MaxPool2d) -> bool:
    two = pooling.kernel_size in (2, (2, 2)) and pooling.stride in (2, (2, 2))
    plain = pooling.padding in (0, (0, 0)) and pooling.dilation in (1, (1, 1))
    return two and plain and not pooling.ceil_mode and not pooling.return_indices
