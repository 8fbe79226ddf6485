"""Medical files in and out, with their geometry.

Names are imported when first touched: which files are volumes is asked by a command's help, which loads no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.weak.volumes.formats import METAIMAGE, NIFTI, is_metaimage, is_nifti, volume_name
    from ringfence.weak.volumes.grid import check_same_grid, check_same_shape, check_same_steps
    from ringfence.weak.volumes.orientation import axes, upright
    from ringfence.weak.volumes.parts import largest_parts
    from ringfence.weak.volumes.places import Place
    from ringfence.weak.volumes.volume import (
        Volume,
        header_sizes,
        read_channels,
        read_shape,
        read_spacing,
        read_volume,
        write_volume,
    )

_HOMES = {
    "formats": ("METAIMAGE", "NIFTI", "is_metaimage", "is_nifti", "volume_name"),
    "grid": ("check_same_grid", "check_same_shape", "check_same_steps"),
    "orientation": ("axes", "upright"),
    "parts": ("largest_parts",),
    "places": ("Place",),
    "volume": (
        "Volume",
        "header_sizes",
        "read_channels",
        "read_shape",
        "read_spacing",
        "read_volume",
        "write_volume",
    ),
}

__all__ = [
    "METAIMAGE",
    "NIFTI",
    "Place",
    "Volume",
    "axes",
    "check_same_grid",
    "check_same_shape",
    "check_same_steps",
    "header_sizes",
    "is_metaimage",
    "is_nifti",
    "largest_parts",
    "read_channels",
    "read_shape",
    "read_spacing",
    "read_volume",
    "upright",
    "volume_name",
    "write_volume",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"ringfence.weak.volumes.{home}"), name)
    raise AttributeError(f"module 'ringfence.weak.volumes' has no attribute '{name}'")
