"""MONAI's BasicUNet, and a deeper one, in fewer passes: their blocks, as subclasses that compute the same."""

from __future__ import annotations

from collections.abc import Sequence

from monai.networks.nets.basic_unet import BasicUNet, Down, UpCat
from torch import Tensor, nn

from ringfence.weak.networks.fast.convolutions import rounded_together
from ringfence.weak.networks.fast.maps import Halving, join_doubled
from ringfence.weak.networks.unet import DeepUNet


def compute_directly(module: nn.Module) -> None:
    """Make one of MONAI's blocks, or a U-Net of them, what is below; leave others alone, subclasses too."""
    kinds: dict[type[nn.Module], type[nn.Module]] = {
        UpCat: Joining,
        Down: Lowering,
        BasicUNet: Passing,
        DeepUNet: PassingDeep,
    }
    module.__class__ = kinds.get(type(module), type(module))


class Joining(UpCat):
    """UpCat upsamples in float32, pads where there is nothing to pad, and copies all of it to join it."""

    def forward(self, x: Tensor, x_e: Tensor | None) -> Tensor:
        """As UpCat's."""
        *before, last = self.upsample.children()
        if not _doubles(last) or x_e is None or x_e.shape[2:] != tuple(2 * length for length in x.shape[2:]):
            return super().forward(x, x_e)  # type: ignore[no-any-return]
        for one in before:
            x = one(x)
        return self.convs(join_doubled(x_e, x))  # type: ignore[no-any-return]


class Lowering(Down):
    """Down, which hands back the map that it halves: see ``Halving``."""

    def forward(self, x: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        """As Down's; ``kept`` gets x, to be used again."""
        first, *others = self
        if isinstance(first, Halving):
            x = first(x, kept)
        else:
            if kept is not None:
                kept.append(x)
            x = first(x)
        for one in others:
            x = one(x)
        return x


class Passing(BasicUNet):
    """BasicUNet, whose encoder passes its maps on by way of their halving, and rounds its weights at once."""

    def forward(self, x: Tensor) -> Tensor:
        """As BasicUNet's."""
        downwards = [self.down_1, self.down_2, self.down_3, self.down_4]
        return _passed(self, x, downwards, [self.upcat_4, self.upcat_3, self.upcat_2, self.upcat_1])


class PassingDeep(DeepUNet):
    """Likewise DeepUNet."""

    def forward(self, x: Tensor) -> Tensor:
        """As DeepUNet's."""
        return _passed(self, x, self.downwards, self.upwards)


def _passed(
    network: BasicUNet | DeepUNet, x: Tensor, downwards: Sequence[nn.Module], upwards: Sequence[nn.Module]
) -> Tensor:
    kept: list[Tensor] = []
    with rounded_together(network):
        x = network.conv_0(x)
        for down in downwards:
            if not isinstance(down, Lowering):  # somebody's own
                kept.append(x)
            x = down(x, kept) if isinstance(down, Lowering) else down(x)
        for up in upwards:
            x = up(x, kept.pop())
        return network.final_conv(x)  # type: ignore[no-any-return]


def _doubles(upsampling: nn.Module) -> bool:
    return (
        isinstance(upsampling, nn.Upsample)
        and upsampling.mode == "bilinear"
        and upsampling.align_corners is True
        and upsampling.scale_factor == (2.0, 2.0)
    )
