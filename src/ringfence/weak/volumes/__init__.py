"""Images and masks in and out, with their geometry.

Names are imported when first touched: which files are volumes is asked by a command's help, which loads no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.weak.volumes.formats import (
        ENDINGS,
        METAIMAGE,
        NIFTI,
        OVERLAY,
        PNG,
        is_metaimage,
        is_nifti,
        is_png,
        pictures_among,
        volume_name,
        volumes_among,
        what_is_read,
    )
    from ringfence.weak.volumes.grid import check_same_grid, check_same_shape, check_same_steps
    from ringfence.weak.volumes.orientation import axes, upright
    from ringfence.weak.volumes.parts import largest_parts
    from ringfence.weak.volumes.places import Place
    from ringfence.weak.volumes.volume import (
        Volume,
        channel_count,
        header_sizes,
        read_channels,
        read_shape,
        read_spacing,
        read_volume,
        write_volume,
    )

_HOMES = {
    "formats": (
        "ENDINGS",
        "METAIMAGE",
        "NIFTI",
        "OVERLAY",
        "PNG",
        "is_metaimage",
        "is_nifti",
        "is_png",
        "pictures_among",
        "volume_name",
        "volumes_among",
        "what_is_read",
    ),
    "grid": ("check_same_grid", "check_same_shape", "check_same_steps"),
    "orientation": ("axes", "upright"),
    "parts": ("largest_parts",),
    "places": ("Place",),
    "volume": (
        "Volume",
        "channel_count",
        "header_sizes",
        "read_channels",
        "read_shape",
        "read_spacing",
        "read_volume",
        "write_volume",
    ),
}

__all__ = [
    "ENDINGS",
    "METAIMAGE",
    "NIFTI",
    "OVERLAY",
    "PNG",
    "Place",
    "Volume",
    "axes",
    "channel_count",
    "check_same_grid",
    "check_same_shape",
    "check_same_steps",
    "header_sizes",
    "is_metaimage",
    "is_nifti",
    "is_png",
    "largest_parts",
    "pictures_among",
    "read_channels",
    "read_shape",
    "read_spacing",
    "read_volume",
    "upright",
    "volume_name",
    "volumes_among",
    "what_is_read",
    "write_volume",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"ringfence.weak.volumes.{home}"), name)
    raise AttributeError(f"module 'ringfence.weak.volumes' has no attribute '{name}'")
