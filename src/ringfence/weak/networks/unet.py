"""A U-Net of any depth, of MONAI's blocks: its BasicUNet halves four times, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from monai.networks.layers.factories import Conv
from monai.networks.nets.basic_unet import Down, TwoConv, UpCat
from torch import Tensor, nn

LEAST: Final = 3
"""Features: of the image's own level, of one that is half as large, and of the end."""


class DeepUNet(nn.Module):
    """MONAI's BasicUNet, halving as often as it has features for: with six of them it is the same network.

    Args:
        spatial_dims: axes of space.
        in_channels: of images.
        out_channels: of logits.
        features: channels of each level, from the image's own to the smallest; and those of the end.
        act: the activation, as MONAI names it.
        norm: the normalisation, likewise.
        bias: whether convolutions have one.
        dropout: its probability.
        upsample: how maps are doubled, as BasicUNet has it.
    """

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 2,
        features: Sequence[int] = (32, 32, 64, 128, 256, 256, 32),
        act: str | tuple[str, dict[str, Any]] = "relu",
        norm: str | tuple[str, dict[str, Any]] = "batch",
        bias: bool = True,
        dropout: float | tuple[str, dict[str, Any]] = 0.0,
        upsample: str = "nontrainable",
    ) -> None:
        super().__init__()
        if len(features) < LEAST:
            raise ValueError(f"features: those of two levels and of the end at least, got {list(features)}")
        *levels, last = features
        self.halvings = len(levels) - 1
        usual = (act, norm, bias, dropout)
        # named and made in BasicUNet's order, so that its weights fit, and a seed's are the same
        self.conv_0 = TwoConv(spatial_dims, in_channels, levels[0], *usual)
        for level in range(1, len(levels)):
            self.add_module(f"down_{level}", Down(spatial_dims, levels[level - 1], levels[level], *usual))
        for level in range(self.halvings, 0, -1):
            above, inner = levels[level - 1], level > 1
            joined = above if inner else last
            self.add_module(
                f"upcat_{level}",
                UpCat(spatial_dims, levels[level], above, joined, *usual, upsample, halves=inner),
            )
        self.final_conv = Conv["conv", spatial_dims](last, out_channels, kernel_size=1)

    @property
    def downwards(self) -> list[nn.Module]:
        """What halves, from the image on."""
        return [self.get_submodule(f"down_{level}") for level in range(1, self.halvings + 1)]

    @property
    def upwards(self) -> list[nn.Module]:
        """What doubles and joins, up to the image."""
        return [self.get_submodule(f"upcat_{level}") for level in range(self.halvings, 0, -1)]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images."""
        kept = [self.conv_0(x)]
        for down in self.downwards:
            kept.append(down(kept[-1]))
        x = kept.pop()
        for up in self.upwards:
            x = up(x, kept.pop())
        logits: Tensor = self.final_conv(x)
        return logits
